"""How many bytes one layer moves through memory in a pass, beside its matrix products: no GPU is needed.

    python benchmarks/step_bytes.py --out results/step-bytes.json
        BERT and families with kernels of their own at base shape, batch 32, 128 tokens, bf16
    python benchmarks/step_bytes.py --without prenorm gated rotary      these parts are not fused

Counted are the operators of torch and the launches of Triton kernels in a forward and a backward pass, of two
layers less those of one. Each operator reads its inputs and writes its outputs once; a kernel in Triton reads
or writes each of its tensors once. Kernels are not run, so the values are nonsense. Copies of weights that
our AdamW reads and writes itself are left to it.
"""

import argparse
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import torch
import transformers
from step_shapes import BASE, SHAPED, TINY
from step_ways import make_batch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from triton.runtime.interpreter import InterpretedFunction

from bermo.models.tasks import BermoForSequenceClassification
from bermo.nn.fast import kernels
from bermo.nn.fast.shadow import Shadow
from bermo.training.fuse import NOTHING, Fused, Fusion
from bermo.training.optimiser import _is_even_matrix
from bermo.training.step import call_with_copies, linear_parameters

FAMILIES = ("bert", "modernbert", "gpt2", "mobilebert", "deberta", "deberta-v2", "xlnet")
KINDS: Mapping[str, tuple[str, ...]] = {
    "products": ("mm", "bmm", "dot_product", "attend_", "tiles_", "_bits"),
    "casts": ("_to_copy",),
    "norms and sums": ("layer_norm", "residual_", "prenorm_", "_sum_parts"),
    "distances": ("gather", "scatter", "shear_", "relative_"),
    "dropout": ("dropout",),
    "gelu": ("gelu", "gated_"),
}
"""Parts of operators' names by kind; the first that fits counts, and all others are "the rest"."""
IN_PLACE = {"rotary_forward": 4 / 3}
"""Bytes of kernels that write what they read, by those of their tensors: two of three parts, both ways."""
FREE = ("empty", "detach", "alias", "view")


PRODUCTS = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)


@dataclass
class Tally:
    """Bytes and launches by the name of an operator or kernel."""

    sizes: Counter[str] = field(default_factory=Counter)
    launches: Counter[str] = field(default_factory=Counter)

    def add(self, name: str, tensors: Iterable[Tensor]) -> None:
        self.sizes[name] += round(IN_PLACE.get(name, 1) * sum(size_of(tensor) for tensor in tensors))
        self.launches[name] += 1


def size_of(tensor: Tensor) -> int:
    """Bytes of a tensor, each counted once where it is expanded."""
    real = [size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride != 0]
    return tensor.element_size() * int(torch.Size(real).numel()) if tensor.numel() else 0


class CountOperators(TorchDispatchMode):
    """In this context every operator that reads or writes memory is counted."""

    def __init__(self, tally: Tally) -> None:
        super().__init__()
        self.tally = tally

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        output = empty_product(*args) if func in PRODUCTS else func(*args, **(kwargs or {}))
        is_view = any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns)
        if not is_view and not any(part in name for part in FREE):
            leaves = tree_leaves((args, kwargs, output))
            self.tally.add(name, (leaf for leaf in leaves if isinstance(leaf, Tensor)))
        return output


def empty_product(*given: Tensor) -> Tensor:
    """A tensor of a product's shape, whose values nobody reads."""
    *_, left, right = given
    return left.new_empty(left.shape[0], right.shape[1])


class OperatorsOfGpus(TorchFunctionMode):
    """In this context dropout, and attention with dropout, are one operator each, as they are on a GPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if func is functional.scaled_dot_product_attention:
            given = given | {"dropout_p": 0.0}
        return dropout(*args, **given) if func is functional.dropout else func(*args, **given)


def dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    return torch.native_dropout(x, p, True)[0] if training and p > 0 else x


@contextmanager
def counted_kernels(tally: Tally) -> Iterator[None]:
    """In this context kernels in Triton are counted and not run."""
    run = InterpretedFunction.run

    def count(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        # An argument that a kernel does not read is given another one in its place.
        tensors = {leaf.data_ptr(): leaf for leaf in args if isinstance(leaf, Tensor)}
        tally.add(str(self.fn.__name__), tensors.values())

    InterpretedFunction.run = count
    runs_on = kernels.runs_on
    kernels.runs_on = lambda device, dtype: True
    try:
        yield
    finally:
        InterpretedFunction.run, kernels.runs_on = run, runs_on


def tally_of(family: str, layers: int, fused: Fused | None, options: argparse.Namespace) -> Tally:
    """Count one pass of a model of so many layers: Hugging Face's own where `fused` is None."""
    torch.manual_seed(0)
    shape = replace(TINY if options.tiny else BASE, layers=layers)
    config = SHAPED[family](shape)
    model = BermoForSequenceClassification.from_backbone(config, mix="none", num_labels=2).train()
    batch = make_batch(options.batch, options.length, 0)
    batch["input_ids"] %= shape.words
    batch["input_ids"].clamp_(min=5)
    copies: dict[str, Tensor] = {}
    shadow = None
    if fused is not None:
        shadow = Shadow((), linear_parameters(model), torch.bfloat16)
        copies = shadow.plain
        shadow.refresh()
        shadow.keep_grads_([copy for weight, copy in shadow.pairs() if _is_even_matrix(weight, 1)])
        shadow.refresh()
    tally = Tally()
    with ExitStack() as stack:
        for context in (CountOperators(tally), OperatorsOfGpus(), counted_kernels(tally)):
            stack.enter_context(context)
        with torch.autocast("cpu", torch.bfloat16):
            if fused is None or fused == NOTHING:
                loss = call_with_copies(model, copies, batch).loss
            else:
                with Fusion(model, shadow, fused).active(torch.device("cpu")):
                    loss = call_with_copies(model, copies, batch).loss
        loss.backward()
        if shadow is not None:
            gather(shadow)
    return tally


def gather(shadow: Shadow) -> None:
    """Bring all gradients of copies to where the update reads them."""
    ours = [copy for weight, copy in shadow.pairs() if _is_even_matrix(weight, 1)]
    shadow.collect(ours)
    shadow.gather(ours)


def kind_of(name: str) -> str:
    return next((kind for kind, parts in KINDS.items() if any(p in name for p in parts)), "the rest")


def layer_of(count: Callable[[int], Tally]) -> dict[str, Any]:
    """What a second layer adds to a pass: MB and launches, by kind and by name."""
    two, one = count(2), count(1)
    two.sizes.subtract(one.sizes)
    two.launches.subtract(one.launches)
    kinds: dict[str, float] = {}
    for name, size in two.sizes.items():
        kinds[kind_of(name)] = kinds.get(kind_of(name), 0) + size / 1e6
    launches = {name: number for name, number in two.launches.items() if number}
    return {
        "mb": {kind: round(size, 1) for kind, size in sorted(kinds.items())},
        "beside_products_mb": round(sum(kinds.values()) - kinds.get("products", 0), 1),
        "launches": sum(launches.values()),
        "by_name": {
            name: [round(two.sizes[name] / 1e6, 1), number] for name, number in sorted(launches.items())
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--families", nargs="+", default=list(FAMILIES), choices=list(SHAPED))
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=128)
    parts = [part.name for part in fields(Fused)]
    parser.add_argument("--without", nargs="+", default=[], choices=parts, help="parts that are not fused")
    parser.add_argument("--tiny", action="store_true", help="small models, to try the script")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    ways = {
        "eager": None,
        "captured, not fused": NOTHING,
        # Keys that no kernel has written would be indices; what is before the layers is not counted anyway.
        "fused": Fused(**dict.fromkeys((*options.without, "embeddings"), False)),
    }
    rows = []
    for family in options.families:
        for way, fused in ways.items():
            found = layer_of(lambda n, family=family, fused=fused: tally_of(family, n, fused, options))
            rows.append({"family": family, "way": way} | found)
            print(f"{family:12}{way:22}{found['beside_products_mb']:9.1f} MB beside the products,", end="")
            print(f"{found['launches']:5} launches   {found['mb']}", flush=True)
    if options.out:
        report = {"torch": torch.__version__, "transformers": transformers.__version__, "rows": rows}
        given = {"batch": options.batch, "length": options.length, "without": options.without}
        options.out.write_text(json.dumps(given | report, indent=1) + "\n")


if __name__ == "__main__":
    main()
