"""What one layer of each family launches and moves in a training step, counted without a GPU.

    python benchmarks/layer_bytes.py [--families bert deberta …] [--batch 32] [--length 128] [--unfused]

The forward and backward pass of two layers less that of one, at base shape with autocast to bfloat16;
products are not computed. A launch is an operation of torch that makes or changes memory, or a kernel of
ours; torch's attention counts as one each way. Bytes are those of every tensor that goes in or comes out,
where a repeated row counts once. On a CPU dropout is three operations and not one, and autocast leaves
softmax in bfloat16, which it widens on a GPU: attention by plain operations moves more there.
"""

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from step_shapes import BASE, SHAPED, TINY, Shape
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from triton.runtime.jit import KernelInterface

from bermo.models.config import BermoConfig
from bermo.models.tasks import BermoForSequenceClassification
from bermo.nn.fast.shadow import Shadow
from bermo.training.fuse import NOTHING, Fused, Fusion
from bermo.training.step import call_with_copies, linear_parameters

CPU = torch.device("cpu")
ALLOCATIONS = (
    "empty",
    "new_empty",
    "empty_like",
    "empty_strided",
    "new_empty_strided",
    "detach",
    "_unsafe_view",
)


def num_bytes(tensors: Iterable[Any]) -> int:
    """The bytes of all tensors among these, each number once however often an expanded axis repeats it."""
    total = 0
    for tensor in tensors:
        if isinstance(tensor, Tensor):
            sizes = [size for size, step in zip(tensor.shape, tensor.stride(), strict=True) if step != 0]
            total += torch.Size(sizes).numel() * tensor.element_size()
    return total


class Ledger(TorchDispatchMode):
    """Counts operations of torch, by name, and their bytes; products are not computed."""

    def __init__(self) -> None:
        super().__init__()
        self.launches: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()

    def add(self, name: str, tensors: Iterable[Any]) -> None:
        self.launches[name] += 1
        self.bytes[name] += num_bytes(tensors)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.removeprefix("aten::")
        out = _product(name, args, kwargs) if name in ("mm", "bmm", "addmm", "baddbmm") else None
        out = func(*args, **kwargs) if out is None else out
        is_view = any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns)
        if not is_view and name not in ALLOCATIONS:
            self.add(name, (*tree_leaves((args, kwargs)), *tree_leaves(out)))
        return out


def _product(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """The result's memory, with any numbers in it."""
    if "out" in kwargs:
        return kwargs["out"]
    first, second = args[-2:]
    return first.new_empty(*first.shape[:-1], second.shape[-1])


class Attention(torch.autograd.Function):
    """Stands for torch's attention: one launch each way, whose gradients are any numbers."""

    @staticmethod
    def forward(ctx: Any, ledger: Ledger, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        ctx.ledger = ledger
        ctx.save_for_backward(q, k, v, bias)
        texts, heads, num_tokens, size = q.shape
        out = q.new_empty(texts, num_tokens, heads, size).transpose(1, 2)
        ledger.add("attention", (q, k, v, bias, out))
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        given = ctx.saved_tensors
        of_bias = given[3] is not None and ctx.needs_input_grad[4]
        grads = [torch.empty_like(tensor) for tensor in given[: 4 if of_bias else 3]]
        ctx.ledger.add("attention", (grad, grad, *given, *grads))
        return None, *grads, *([] if of_bias else [None])


class OneAttention(TorchFunctionMode):
    """In this context torch's attention is `Attention`."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self.ledger = ledger

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is not functional.scaled_dot_product_attention:
            return func(*args, **kwargs)
        mask = args[3] if len(args) > 3 else kwargs.get("attn_mask")
        return Attention.apply(self.ledger, *args[:3], mask)


@contextmanager
def counted_kernels(ledger: Ledger) -> Iterator[None]:
    """Inside, kernels of ours are counted and not run."""

    def launcher(kernel: Any, _: Any) -> Any:
        return lambda *args, **options: ledger.add(kernel.__name__, _distinct(args))

    given = KernelInterface.__getitem__
    KernelInterface.__getitem__ = launcher  # type: ignore[assignment]
    try:
        yield
    finally:
        KernelInterface.__getitem__ = given  # type: ignore[method-assign]


def _distinct(args: tuple[Any, ...]) -> list[Tensor]:
    """The tensors among a kernel's arguments, each place in memory once: what is not read is given any."""
    tensors = [arg for arg in args if isinstance(arg, Tensor)]
    return list({tensor.data_ptr(): tensor for tensor in reversed(tensors)}.values())


def count(family: str, shape: Shape, batch: int, length: int, fused: Fused) -> Ledger:
    """Count a forward and backward pass of a model of this shape."""
    torch.manual_seed(0)
    config = BermoConfig(SHAPED[family](shape), mix={"kind": "none"}, num_labels=2, head_dropout=0.1)
    model: nn.Module = BermoForSequenceClassification(config).train()
    shadow = Shadow((), linear_parameters(model), torch.bfloat16)
    shadow.keep_grads_([copy for name, copy in shadow.plain.items() if name.endswith("weight")])
    shadow.refresh()
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[::2, 0 if family == "xlnet" else length - 1] = 0
    inputs = {"input_ids": torch.randint(5, shape.words, (batch, length)), "attention_mask": mask}
    inputs["labels"] = torch.zeros(batch, dtype=torch.int64)
    ledger, fusion = Ledger(), Fusion(model, shadow, fused)
    with counted_kernels(ledger), ledger:
        with OneAttention(ledger), torch.autocast("cpu", torch.bfloat16), fusion.active(CPU):
            loss = call_with_copies(model, shadow.plain, inputs).loss
        loss.backward()
    return ledger


def of_a_layer(family: str, options: argparse.Namespace) -> Ledger:
    """Return what the second layer adds to the first."""
    shape = TINY if options.tiny else BASE
    fused = NOTHING if options.unfused else Fused()
    one, two = (
        count(
            family, Shape(shape.width, layers, shape.heads, shape.words), options.batch, options.length, fused
        )
        for layers in (1, 2)
    )
    two.launches.subtract(one.launches)
    two.bytes.subtract(one.bytes)
    return two


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--families", nargs="*", default=["bert", "deberta", "deberta-v2", "xlnet"])
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--unfused", action="store_true", help="by torch's operations alone")
    parser.add_argument("--top", type=int, default=0, help="also print so many operations, by bytes")
    parser.add_argument("--tiny", action="store_true", help="a tiny shape, to see that it runs")
    options = parser.parse_args(words)
    print(f"{'':12}{'launches':>10}{'MB':>10}")
    for family in options.families:
        ledger = of_a_layer(family, options)
        print(f"{family:12}{ledger.launches.total():10}{ledger.bytes.total() / 1e6:10.1f}")
        for name, size in ledger.bytes.most_common(options.top):
            print(f"{'':12}{ledger.launches[name]:10}{size / 1e6:10.1f}  {name}")


if __name__ == "__main__":
    main()
