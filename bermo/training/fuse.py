"""A model's pass with fewer kernels, in a step on a graphics card under bfloat16: what is fused, and where it is put.

    residual  LayerNorm(x + dropout(dense(h))) of post-norm layers, one kernel each way          bermo.nn.residual
    linear    query, key and value as one product, gelu and biases' gradients in one pass        bermo.nn.dense
    attention softmax(q kᵀ) v of short texts, with dropout, one kernel each way                  bermo.nn.attend
    mix       all layers mixed by one kernel each way                                            bermo.nn.mixing
    adam      matrices, masked or not, and scores updated straight from the copies' gradients    bermo.nn.adam

While a `Fusion` holds a model, some of its modules have another `forward` of their own; afterwards they have none, and nothing of
it is ever saved. Modules are known by what they are made of, not by their names' family: a module that has hooks, or parts that are not
what we know, keeps its own forward. Random numbers come from seeds that torch's generator draws on the device in each pass.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from bermo.models.encoder import BermoModel
from bermo.nn.fast.available import has_kernels
from bermo.nn.fast.serving import is_checkpointing
from bermo.nn.fast.shadow import Shadow, are_side_by_side
from bermo.nn.mix import LayerMix
from bermo.nn.stacked import StackedLinear, StackedNorm

THREES = (("query", "key", "value"), ("q", "k", "v"), ("q_lin", "k_lin", "v_lin"))
"""How families name the three layers that read one input in attention."""


@dataclass(frozen=True, kw_only=True)
class Fused:
    """Which parts are fused."""

    residual: bool = True
    linear: bool = True
    attention: bool = True
    mix: bool = True
    adam: bool = True


BARELY = 1e-7  # a chance that drops next to nothing, by the very kernels that drop a tenth
NOTHING = Fused(residual=False, linear=False, attention=False, mix=False, adam=False)


class Fusion:
    """The fused forwards of one model; `holding` puts them in place for one pass, whose backward may come after it."""

    def __init__(self, model: nn.Module, shadow: Shadow | None, fused: Fused) -> None:
        self.model, self.shadow, self.fused = model, shadow, fused
        self.dtype = torch.bfloat16 if shadow is None else shadow.dtype
        self.halves: dict[int, tuple[Tensor, Tensor]] = {}
        self.waiting: dict[int, tuple[Tensor, Tensor]] = {}
        self.seeds = torch.empty(0)
        self.used: set[int] = set()
        self.places: list[tuple[nn.Module, str, Callable[..., Any]]] = []
        self.num_seeds = 0
        # Checkpointing would compute the pass again when the forwards are gone.
        self.has_attention = fused.attention and not is_checkpointing(model)
        if is_checkpointing(model):
            return
        for module in model.modules():
            self._find(module)

    def _find(self, module: nn.Module) -> None:
        """Note what to put in a module's place, if it is one that we know."""
        if self.fused.residual and is_residual(module):
            self._add(module, "forward", self._residual(module, self._next_seed()))
        if self.fused.linear and is_gelu(module):
            self._add(module, "forward", self._gelu(module))
        if self.fused.linear and isinstance(module, StackedLinear) and module.bias is not None:
            self._add(module, "forward", self._stacked(module))
        if self.fused.linear:
            for three in three_of(module):
                for place, linear in enumerate(three):
                    self._add(linear, "forward", self._one_of_three(three, place))
        if self.fused.mix and isinstance(module, BermoModel) and can_fuse_mix(module.layer_mix):
            self._add(module, "_mix_stacked", self._mix(module, self._next_seed()))

    def _add(self, module: nn.Module, name: str, forward: Callable[..., Any]) -> None:
        if all(known is not module for known, _, _ in self.places):  # one of three stays that
            self.places.append((module, name, forward))

    def _next_seed(self) -> int:
        self.num_seeds += 1
        return self.num_seeds - 1

    @contextmanager
    def holding(self, device: torch.device) -> Iterator[None]:
        """Let the model compute by fused kernels while this holds."""
        self._draw(device)
        try:
            for module, name, forward in self.places:
                if not _has_hooks(module):
                    module.__dict__[name] = forward
            with self._attending():
                yield
        finally:
            for module, name, _ in self.places:
                module.__dict__.pop(name, None)
            self.halves.clear()
            self.waiting.clear()

    def _attending(self) -> AbstractContextManager[Any]:
        if not self.has_attention:
            return nullcontext()
        from bermo.nn.fast.attend import Attending

        return Attending()

    def _draw(self, device: torch.device) -> None:
        """Draw new seeds by torch's generator on the device, so that a replayed graph draws anew."""
        self.seeds = torch.randint(0, 2**62, (self.num_seeds,), device=device)
        self.used.clear()

    def _seed(self, number: int) -> Tensor:
        """A module's seed in this pass; one that is called again (shared layers, two passes) gets another."""
        if number in self.used:
            self._draw(self.seeds.device)
        self.used.add(number)
        return self.seeds[number : number + 1]

    def _residual(self, module: nn.Module, number: int) -> Callable[..., Tensor]:
        from bermo.nn.fast.residual import can_serve, residual

        dense, norm = cast(nn.Linear, module.dense), cast(nn.LayerNorm, module.LayerNorm)
        dropout = cast(nn.Dropout, module.dropout)

        def forward(hidden_states: Tensor, input_tensor: Tensor) -> Tensor:
            if not can_serve(input_tensor):
                return type(module).forward(module, hidden_states, input_tensor)
            # Without the linear part the layer is called as it is, and its bias gets its gradient there.
            bias = dense.bias if self.fused.linear and self._is_copied(dense) else None
            h = self._linear(dense, hidden_states) if bias is not None else dense(hidden_states)
            p = dropout.p if dropout.training else 0.0
            adds = bias is not None and bias.dim() == 2
            y, half = residual(
                h,
                input_tensor,
                norm.weight,
                norm.bias,
                self._seed(number),
                p,
                norm.eps,
                bias,
                self.dtype if self.fused.linear else None,
                adds,
            )
            if half is not None:
                self.halves[id(y)] = (y, half)
            return y

        return forward

    def _gelu(self, module: nn.Module) -> Callable[..., Tensor]:
        from bermo.nn.fast.dense import Gelu

        dense = cast(nn.Linear, module.dense)

        def forward(hidden_states: Tensor) -> Tensor:
            if not self._is_copied(dense):
                return type(module).forward(module, hidden_states)
            h, adds = self._linear(dense, hidden_states), dense.bias.dim() == 2
            return cast(Tensor, Gelu.apply(h, dense.bias, adds))

        return forward

    def _stacked(self, linear: StackedLinear) -> Callable[[Tensor], Tensor]:
        from bermo.nn.fast.dense import Stacked

        def forward(x: Tensor) -> Tensor:
            if not self._is_copied(linear):
                return type(linear).forward(linear, x)
            weight = linear.weight
            place = None if self.shadow is None else self.shadow.take((weight,))
            return cast(Tensor, Stacked.apply(self._half(x), weight, linear.bias, place))

        return forward

    def _linear(self, linear: nn.Linear, x: Tensor) -> Tensor:
        """x Wᵀ + b from the copies; b's gradient is left to what follows, and of stacked layers b itself."""
        from bermo.nn.fast.dense import Linear, Stacked

        weight = linear.weight
        place = None if self.shadow is None else self.shadow.take((weight,))
        if weight.dim() == 3:
            return cast(Tensor, Stacked.apply(self._half(x), weight, None, place))
        found: Tensor = Linear.apply(self._half(x), weight, linear.bias.detach(), place)
        return found

    def _one_of_three(self, three: Sequence[nn.Linear], place: int) -> Callable[[Tensor], Tensor]:
        from bermo.nn.fast.dense import Joined, StackedThree

        own = three[place]
        joined = StackedThree if isinstance(own, StackedLinear) else Joined

        def forward(x: Tensor) -> Tensor:
            known = self.waiting.pop(id(own), None)
            if known is not None and known[0] is x:
                return known[1]
            # Only the first of the three looks ahead: what the others find themselves in need of, they compute.
            if place == 0 and all(self._is_copied(linear) for linear in three):
                weights = [linear.weight for linear in three]
                biases = [linear.bias for linear in three]
                if are_side_by_side(weights) and are_side_by_side(biases):
                    taken = None if self.shadow is None else self.shadow.take(weights)
                    found = joined.apply(self._half(x), taken, *weights, *biases)
                    for linear, out in zip(three[1:], found[1:], strict=True):
                        self.waiting[id(linear)] = (x, out)
                    return cast(Tensor, found[0])
            if isinstance(own, StackedLinear):
                return type(own).forward(own, self._half(x))
            return nn.functional.linear(self._half(x), own.weight, own.bias)

        return forward

    def _half(self, x: Tensor) -> Tensor:
        """An input in the working dtype: as the kernel that made it left it, or cast here, once for all who read it."""
        if id(x) not in self.halves:
            self.halves[id(x)] = (x, x.to(self.dtype))
        return self.halves[id(x)][1]

    def _is_copied(self, linear: nn.Linear) -> bool:
        """Tell whether a layer reads copies in the working dtype that take gradients."""
        parts = (linear.weight, linear.bias)
        return all(part.dtype == self.dtype and part.requires_grad for part in parts)

    def _mix(self, core: BermoModel, number: int) -> Callable[..., Tensor]:
        from bermo.nn.fast.mixing import can_mix, mixing
        from bermo.nn.layers import choose

        mix = cast(LayerMix, core.layer_mix)

        def mix_stacked(
            layers: tuple[Tensor, ...], attention_mask: Tensor | None, rows: Tensor | None
        ) -> Tensor:
            chosen = choose(layers, mix.layers, mix.num_layers, "LayerMix")
            if not can_mix(chosen, mix.norm, rows):
                return BermoModel._mix_stacked(core, layers, attention_mask, rows)
            with torch.autocast(chosen[0].device.type, enabled=False):
                shares = mix._shares(drop=mix.training) * mix.scale
            p = mix.dropout if mix.training else 0.0
            return mixing(chosen, shares, self._seed(number), rows, mix.norm, p, mix.eps)

        return mix_stacked


def is_residual(module: nn.Module) -> bool:
    """Tell whether a module is LayerNorm(input_tensor + dropout(dense(hidden_states))) and no more."""
    parts = dict(module.named_children())
    if parts.keys() != {"dense", "dropout", "LayerNorm"}:
        return False
    dense, norm = parts["dense"], parts["LayerNorm"]
    return (
        isinstance(dense, nn.Linear)
        and dense.bias is not None
        and type(parts["dropout"]) is nn.Dropout
        and type(norm) in (nn.LayerNorm, StackedNorm)
        and norm.bias is not None
        and len(getattr(norm, "normalized_shape", (0,))) == 1
        and _arguments(module) == ["hidden_states", "input_tensor"]
        and not any(_has_hooks(part) for part in parts.values())
    )


def is_gelu(module: nn.Module) -> bool:
    """Tell whether a module is gelu(dense(hidden_states)), with the exact gelu, and no more."""
    parts = dict(module.named_children())
    if parts.keys() != {"dense", "intermediate_act_fn"}:
        return False
    dense, act = parts["dense"], parts["intermediate_act_fn"]
    return (
        isinstance(dense, nn.Linear)
        and dense.bias is not None
        and getattr(act, "act", None) is nn.functional.gelu
        and _arguments(module) == ["hidden_states"]
        and not any(_has_hooks(part) for part in parts.values())
    )


def three_of(module: nn.Module) -> list[tuple[nn.Linear, nn.Linear, nn.Linear]]:
    """The three layers of one shape that read one input in this attention module, if it has them."""
    for names in THREES:
        found = [getattr(module, name, None) for name in names]
        linears = [part for part in found if isinstance(part, nn.Linear) and part.bias is not None]
        if len(linears) == 3 and len({(p.in_features, p.out_features) for p in linears}) == 1:
            return [(linears[0], linears[1], linears[2])]
    return []


def can_fuse_mix(mix: nn.Module) -> bool:
    """Tell whether a mix is one that the kernels know."""
    return type(mix) is LayerMix and mix.norm in ("across", "within", None) and not _has_hooks(mix)


@contextmanager
def barely_dropping(model: nn.Module) -> Iterator[None]:
    """Let a model in training drop next to nothing while this holds, so that two passes can be compared."""
    places = [
        (module, name, value)
        for module in model.modules()
        for name in ("p", "dropout", "layer_dropout")
        if isinstance(module, nn.Dropout | LayerMix)
        and isinstance(value := getattr(module, name, None), float)
        and value > 0
    ]
    try:
        for module, name, _ in places:
            setattr(module, name, BARELY)
        yield
    finally:
        for module, name, value in places:
            setattr(module, name, value)


def make_fusion(
    model: nn.Module, shadow: Shadow | None, fused: Fused, device: torch.device, is_half: bool
) -> Fusion | None:
    """The fusion of a step, or None where kernels cannot run: not on a graphics card, not in bfloat16, no Triton."""
    if device.type != "cuda" or not is_half or not has_kernels() or fused == NOTHING:
        return None
    return Fusion(model, shadow, fused)


def _arguments(module: nn.Module) -> list[str]:
    return list(inspect.signature(type(module).forward).parameters)[1:]


def _has_hooks(module: nn.Module) -> bool:
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
    )
