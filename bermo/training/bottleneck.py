"""The fused forward of a layer between two bottlenecks, as MobileBERT's, for a `Fusion` (fuse.py).

What is before the attention is one function of autograd, what is behind it another (bottleneck_open and
bottleneck_close of bermo.nn.fast). The attention itself stays the module's: its query, key and value layers
find their outputs computed.
"""

from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from bermo.training.fusible import argument_names, has_hooks, is_product
from bermo.training.parts import Parts

Forward = Callable[..., Any]
Item = TypeVar("Item")


def is_scale(module: nn.Module) -> bool:
    """Tell whether a module is input ⊙ weight + bias, which MobileBERT has in place of a norm."""
    parameters = dict(module.named_parameters())
    return (
        parameters.keys() == {"weight", "bias"}
        and all(parameter.dim() == 1 for parameter in parameters.values())
        and argument_names(module) == ["input_tensor"]
        and not any(hasattr(module, name) for name in ("eps", "variance_epsilon", "normalized_shape"))
    )


_LINEARS = (
    *(f"attention.self.{name}" for name in ("query", "key", "value")),
    *(f"{name}.dense" for name in ("bottleneck.input", "bottleneck.attention", "attention.output")),
    "output.bottleneck.dense",
)
_SCALES = ("bottleneck.input", "bottleneck.attention", "attention.output", "output.bottleneck")


def is_bottlenecked(module: nn.Module) -> bool:
    """Tell whether a module is such a layer: scales in place of norms, ReLU, one bottleneck for q and k."""
    if argument_names(module)[:2] != ["hidden_states", "attention_mask"]:
        return False
    inner: dict[str, Any] = dict(module.named_modules())
    # Each feed-forward part but the last has modules of its own.
    parts = ["", *(name + "." for name in inner if name.rpartition(".")[0] == "ffn")]
    linears = [inner.get(name) for name in _LINEARS]
    linears += [inner.get(f"{part}{half}.dense") for part in parts for half in ("intermediate", "output")]
    scales = [inner.get(f"{name}.LayerNorm") for name in _SCALES]
    scales += [inner.get(f"{part}output.LayerNorm") for part in parts]
    activations = [inner.get(f"{part}intermediate.intermediate_act_fn") for part in parts]
    return (
        {name for name, _ in module.named_children()} <= {*_CHILDREN}
        and not getattr(inner.get("bottleneck"), "use_bottleneck_attention", True)
        and all(isinstance(one, nn.Linear) and is_product(one) and one.bias is not None for one in linears)
        and all(one is not None and is_scale(one) for one in scales)
        and all(type(one) is nn.ReLU for one in activations)
        and type(inner.get("output.bottleneck.dropout")) is nn.Dropout
        and _has_one_width(module)
        # The attention's own module is called as it is.
        and not any(has_hooks(one) for name, one in inner.items() if name not in ("", "attention.self"))
    )


_CHILDREN = ("attention", "bottleneck", "ffn", "intermediate", "output")


def _feed_forwards(layer: Any) -> list[tuple[Any, Any]]:
    """The two halves of each feed-forward part, in the order of their computation."""
    inner = [(one.intermediate, one.output) for one in getattr(layer, "ffn", ())]
    return [*inner, (layer.intermediate, layer.output)]


def _has_one_width(layer: Any) -> bool:
    own = layer.attention.self
    narrow = [own.query, own.key, own.value, layer.bottleneck.input.dense, layer.bottleneck.attention.dense]
    ups = {(up.dense.in_features, up.dense.out_features) for up, _ in _feed_forwards(layer)}
    return len({linear.out_features for linear in narrow}) == 1 == len(ups)


def products(layer: Any) -> tuple[list[nn.Linear], ...]:
    """The linear layers that one product reads or writes together: their copies should be neighbours."""
    own, narrow = layer.attention.self, layer.bottleneck
    halves = _feed_forwards(layer)
    return (
        [own.value, narrow.input.dense, narrow.attention.dense],
        [own.query, own.key],
        [up.dense for up, _ in halves],
        [down.dense for _, down in halves],
    )


def in_order_of_products(
    model: nn.Module, items: Iterable[Item], parameter_of: Callable[[Item], nn.Parameter]
) -> list[Item]:
    """Return items of a model's parameters with those beside each other that one product reads."""
    items = list(items)
    places = {id(parameter_of(item)): (index, 0) for index, item in enumerate(items)}
    for layer in filter(is_bottlenecked, model.modules()):
        for linears in products(layer):
            for alike in zip(*(linear.parameters() for linear in linears), strict=False):
                first = places.get(id(alike[0]))
                if first is not None:
                    places.update(
                        {id(one): (first[0], k) for k, one in enumerate(alike) if id(one) in places}
                    )
    ranked = [(places[id(parameter_of(item))], item) for item in items]
    return [item for _, item in sorted(ranked, key=itemgetter(0))]


class BottleneckLayers:
    """The fused forwards of layers between bottlenecks, and of the query, key and value layers in them."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        # By the id of a query, key or value layer: its input, and its output.
        self.computed: dict[int, tuple[Tensor, Tensor]] = {}

    def clear(self) -> None:
        """Forget what was computed in a pass."""
        self.computed.clear()

    def overrides(self, layer: nn.Module) -> Iterator[tuple[nn.Module, Forward]]:
        """Yield the modules of a layer that are computed here, each with its forward; of others nothing."""
        if is_bottlenecked(layer):
            own = cast(Any, layer).attention.self
            yield layer, self._layer(layer)
            yield from ((linear, self._linear(linear)) for linear in (own.query, own.key, own.value))

    def _linear(self, linear: nn.Linear) -> Forward:
        def forward(x: Tensor) -> Tensor:
            known = self.computed.pop(id(linear), None)
            if known is not None and known[0] is x:
                return known[1]
            return type(linear).forward(linear, x)

        return forward

    def _layer(self, layer: Any) -> Forward:
        from bermo.nn.fast.bottleneck_close import closed
        from bermo.nn.fast.bottleneck_open import opened

        number, own, dropout = self.parts.next_seed(), layer.attention.self, layer.output.bottleneck.dropout
        widest = max(layer.intermediate.dense.out_features, layer.output.bottleneck.dense.out_features)

        def forward(hidden_states: Tensor, attention_mask: Tensor | None = None, **kwargs: Any) -> Tensor:
            if not self._fits(layer, hidden_states, widest):
                given = (hidden_states, attention_mask)
                return cast(Tensor, type(layer).forward(layer, *given, **kwargs))
            x, half = hidden_states, self.parts.cast(hidden_states)
            one = opened(half, x, *self._before(layer))
            computed = (
                (own.query, one.shared, one.q),
                (own.key, one.shared, one.k),
                (own.value, half, one.v),
            )
            self.computed |= {id(linear): (of, output) for linear, of, output in computed}
            seen = own(one.shared, one.shared, half, attention_mask, **kwargs)[0]
            p = dropout.p if dropout.training else 0.0
            y, copy = closed(
                self.parts.cast(seen), one, half, self._behind(layer), self.parts.seed(number), p
            )
            return self._known(y, copy)

        return forward

    def _known(self, y: Tensor, copy: Tensor) -> Tensor:
        self.parts.keep(y, lambda: copy)
        return y

    def _fits(self, layer: Any, x: Tensor, widest: int) -> bool:
        """Tell whether all linear layers read copies, and the kernels can count their largest output."""
        from bermo.nn.fast.kernels import LARGEST
        from bermo.nn.fast.residual import fits_kernels

        linears = [one for group in products(layer) for one in group]
        linears += [layer.attention.output.dense, layer.output.bottleneck.dense]
        is_counted = x.numel() // x.shape[-1] * widest < LARGEST
        is_known = x.dtype == torch.float32 and is_counted and fits_kernels(x)
        return (
            is_known and layer.output.bottleneck.dropout.p < 1 and all(map(self.parts.reads_copies, linears))
        )

    def _linears(self, linears: list[nn.Linear]) -> Any:
        from bermo.nn.fast.bottleneck import Linears

        weights = [linear.weight for linear in linears]
        return Linears(weights, [linear.bias for linear in linears], self.parts.grad_buffer(weights))

    def _before(self, layer: Any) -> tuple[Any, ...]:
        wide, pair, *_ = products(layer)
        scales = layer.bottleneck.input.LayerNorm, layer.bottleneck.attention.LayerNorm
        return (self._linears(wide), self._linears(pair), *map(_scaled, scales))

    def _behind(self, layer: Any) -> Any:
        from bermo.nn.fast.bottleneck_close import Closing

        _, _, ups, downs = products(layer)
        ends = [layer.attention.output, *(down for _, down in _feed_forwards(layer)), layer.output.bottleneck]
        return Closing(
            first=self._linears([layer.attention.output.dense]),
            last=self._linears([layer.output.bottleneck.dense]),
            ups=self._linears(ups),
            downs=self._linears(downs),
            scaled=[_scaled(end.LayerNorm) for end in ends],
        )


def _scaled(module: Any) -> Any:
    from bermo.nn.fast.bottleneck import Scaled

    return Scaled(module.weight, module.bias)
