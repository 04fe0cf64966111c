"""What encoders begin with by kernels (nn.fast.embed), for a `Fusion`, and gradients of tables as rows.

A module that adds up rows of tables finds the ids by its own forward, which runs on vectors of no elements:
its tables only note what they are asked for, and its norm computes all.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from bermo.nn.stacked import StackedEmbedding
from bermo.training.fusible import TABLES, has_hooks, is_embeddings, is_table, norm_of
from bermo.training.parts import Parts

if TYPE_CHECKING:
    from bermo.nn.fast.rows import Tables

LEAST_ROWS = 4096
"""Of a table that is looked up by itself; the gradient of a smaller one is no work."""


def plan_tables(
    model: nn.Module,
    parts: Parts,
    add: Callable[[nn.Module, str, Callable[..., Tensor]], None],
) -> list["Tables"]:
    """Add the overrides of modules that add up rows of tables, and of other large tables that are trained;
    return the tables of each.
    """
    found: list[Tables] = []
    readers = Counter(id(p) for module in model.modules() for p in module.parameters(recurse=False))
    inside: set[int] = set()
    for module in model.modules():
        if is_embeddings(module):
            children = list(_tables_in(module).values())
            inside |= {id(child) for child in children}
            found.append(_tables(children))
            add(module, "forward", _embedded(module, parts, found[-1]))
        elif id(module) not in inside and is_table(module) and _is_large(module):
            found.append(_tables([module]))
            add(module, "forward", _looked_up(module, found[-1]))
    for tables in found:
        tables.is_shared = any(readers[id(weight)] > 1 for weight in tables.weights)
    return found


def _tables_in(module: nn.Module) -> dict[str, Any]:
    children = dict(module.named_children())
    return {name: children[name] for name in TABLES if name in children}


def _is_large(table: Any) -> bool:
    weight: Tensor = table.weight
    return weight.requires_grad and weight.dtype == torch.float32 and weight.shape[-2] >= LEAST_ROWS


def _tables(modules: Sequence[Any]) -> "Tables":
    """The tables of modules, with the rows that get no gradient."""
    from bermo.nn.fast.rows import Tables

    return Tables([one.weight for one in modules], [getattr(one, "padding_idx", None) for one in modules])


def _embedded(module: Any, parts: Parts, tables: "Tables") -> Callable[..., Tensor]:
    """Return the forward of a module that is dropout(LayerNorm(sum of rows)); see `is_embeddings`."""
    number = parts.next_seed()

    def forward(*args: Any, **kwargs: Any) -> Tensor:
        children = dict(module.named_children())
        given = (*args, *kwargs.values())
        has_vectors = any(isinstance(one, Tensor) and one.is_floating_point() for one in given)
        if not has_vectors and not any(has_hooks(child) for child in children.values()):
            read: dict[str, Tensor] = {}

            def norm(z: Tensor) -> Tensor:
                return _embed(module, parts, tables, number, read, z)

            forwards = {name: _noting(child, name, read) for name, child in _tables_in(module).items()}
            with _replaced(children, {**forwards, "LayerNorm": norm, "dropout": lambda x: x}):
                y: Tensor = type(module).forward(module, *args, **kwargs)
            if y.shape[-1] > 0:
                return y
        return type(module).forward(module, *args, **kwargs)

    return forward


def _looked_up(module: Any, tables: "Tables") -> Callable[[Tensor], Tensor]:
    """Return the forward of a table that is looked up by itself."""
    from bermo.nn.fast.embed import Lookup, can_embed

    def forward(ids: Tensor) -> Tensor:
        weight = module.weight
        whole = module.in_whole(ids) if isinstance(module, StackedEmbedding) else ids
        num_models = 1 if weight.dim() == 2 else len(weight)
        if not can_embed(whole.numel(), num_models, weight.shape[-1], tables.weights):
            return type(module).forward(module, ids)
        return Lookup.apply(whole, weight, tables)

    return forward


def _noting(child: Any, name: str, read: dict[str, Tensor]) -> Callable[[Tensor], Tensor]:
    """A lookup that notes its ids and returns vectors of no elements."""

    def forward(ids: Tensor) -> Tensor:
        read[name] = ids
        if isinstance(child, StackedEmbedding) and len(ids) > 1:
            child.rows[0] = len(ids)
        return child.weight.new_empty(*ids.shape, 0)

    return forward


@contextmanager
def _replaced(
    children: Mapping[str, nn.Module], forwards: Mapping[str, Callable[..., Tensor]]
) -> Iterator[None]:
    """Let children compute by these functions; some may be overridden already."""
    before: dict[str, Any] = {name: vars(children[name]).get("forward") for name in forwards}
    try:
        for name, forward in forwards.items():
            vars(children[name])["forward"] = forward
        yield
    finally:
        for name, own in before.items():
            vars(children[name]).pop("forward")
            if own is not None:
                vars(children[name])["forward"] = own


def _embed(
    module: Any, parts: Parts, tables: "Tables", number: int, read: Mapping[str, Tensor], z: Tensor
) -> Tensor:
    """Return dropout(LayerNorm(z)) of what was read; z, which has no elements, where kernels cannot do it."""
    from bermo.nn.fast.embed import Embed, Plan, can_embed

    norm, weights = norm_of(module), tables.weights
    ids = [read[name] for name in TABLES if name in read]
    num_models = norm.weight.numel() // norm.weight.shape[-1]
    is_known = (
        z.dim() == 3
        and len(ids) == len(weights)
        and ids[0].shape == z.shape[:2]
        and all(one.shape[1:] == z.shape[1:2] and len(one) in (1, len(z)) for one in ids)
        and all(w.dtype == torch.float32 and w.numel() == num_models * w.shape[-2:].numel() for w in weights)
        and norm.weight.dtype == torch.float32
        and norm.weight.shape[-1] == weights[0].shape[-1]
        and can_embed(ids[0].numel(), num_models, weights[0].shape[-1], weights)
    )
    if not is_known:
        return z
    dropout = module.dropout
    p = dropout.p if dropout.training else 0.0
    own = [one[:1] if one.stride(0) == 0 else one for one in ids]
    plan = Plan(tables, own, ids[0].shape, p, norm.eps, parts.dtype, parts.late())
    y, half = Embed.apply(plan, parts.seed(number), norm.weight, norm.bias, *weights)
    parts.keep(y, lambda: half)
    return y
