"""Fused Triton kernels for a model's forward and backward pass, in a step on a GPU in bfloat16.

    residual  LayerNorm(x + dropout(dense(h))) of post-norm layers, one kernel forward and one backward
    linear    query, key and value as one product; gelu and the gradients of biases in one pass; the gelu by
              tanh (ALBERT, GPT-2) as torch's one kernel
    attention softmax(q kᵀ) v of short texts, with dropout, one kernel each way; with scores of distances
              (disentangled.py, shifted.py) by kernels of its own; with a trained bias (MPNet) by torch's
    mix       the mix of all layers, one kernel forward and one backward
    prenorm   x + dropout(h) with the LayerNorm that reads it, of pre-norm layers, one kernel each way
    gated     gelu(a) ⊙ b of a joined projection, one kernel each way
    rotary    query, key and value as one product, rotated in place, one kernel each way
    bottleneck  layers between two bottlenecks (MobileBERT): sums with their scales, ReLU with its bias, and
              matrices of one shape together, in few kernels and products each way
    adam      AdamW on matrices, masked or not, and on scores, from the gradients of their bfloat16 copies
    embeddings  dropout(LayerNorm(sum of tables' rows)), one kernel each way; gradients and AdamW by rows

The kernels are in bermo.nn.fast, each in a file of that name (linear: dense, joined, product; attention:
attend, relative; mix: mixing; embeddings: embed, rows). Those of pre-norm layers are installed by
fuse_prenorm.py, those between bottlenecks by bottleneck.py. While a `Fusion` is active, some modules have
another `forward` as an instance attribute, removed at the end of the pass and never saved. Modules are chosen
by their structure (fusible.py). Dropout's seeds are drawn by torch's generator in each pass.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from bermo.models.encoder import BermoModel
from bermo.nn.fast.available import has_kernels
from bermo.nn.fast.overrides import is_checkpointing
from bermo.nn.fast.replay import fused_attention
from bermo.nn.fast.shadow import Shadow, are_side_by_side
from bermo.nn.stacked import StackedLinear
from bermo.training.biased import biased_attention
from bermo.training.bottleneck import BottleneckLayers
from bermo.training.disentangled import DisentangledLayers
from bermo.training.embedded import plan_tables
from bermo.training.fuse_mix import ReadRows, mixed
from bermo.training.fuse_prenorm import PreNormLayers
from bermo.training.fusible import (
    attention_projections,
    can_fuse_mix,
    has_hooks,
    is_gelu,
    is_gelu_by_tanh,
    is_norm_in_steps,
    is_residual,
    norm_of,
)
from bermo.training.parts import Override, Parts
from bermo.training.shifted import feed_forward, shifted


@dataclass(frozen=True, kw_only=True)
class Fused:
    """Which parts of a step are computed by fused kernels."""

    residual: bool = True
    linear: bool = True
    attention: bool = True
    mix: bool = True
    adam: bool = True
    prenorm: bool = True
    gated: bool = True
    rotary: bool = True
    bottleneck: bool = True
    embeddings: bool = True


NOTHING = Fused(**{part.name: False for part in fields(Fused)})


class Fusion:
    """The fused forwards of one model, in use inside `active`; the backward pass may follow later."""

    def __init__(self, model: nn.Module, shadow: Shadow | None, fused: Fused) -> None:
        self.model, self.shadow, self.fused = model, shadow, fused
        self.dtype = torch.bfloat16 if shadow is None else shadow.dtype
        # By the id of a tensor: itself, so that the id stays its own, and its copy in the working dtype, or
        # what else was made of it.
        self.casts: dict[int, tuple[Tensor, Any]] = {}
        # By the id of a key or value layer: the input, and the output that the query's layer computed for it.
        self.precomputed: dict[int, tuple[Tensor, Tensor]] = {}
        self.seeds = torch.empty(0)
        self.used_seeds: set[int] = set()
        self.num_seeds = 0
        self.overrides: list[Override] = []
        self.tables: list[Any] = []
        # Of the pass that is running; its backward pass keeps it.
        self.late: Any = None
        self.read = ReadRows()
        self.parts = Parts(
            dtype=self.dtype,
            cast=self._cast,
            keep=self._keep,
            project=self._project,
            reads_copies=self._reads_copies,
            linear=self._linear,
            add_and_norm=self._add_and_norm,
            end=self._end,
            grad_buffer=self._grad_buffer,
            next_seed=self._next_seed,
            seed=self._seed,
            late=lambda: self.late,
        )
        self.layers = PreNormLayers(
            self.parts, fused.linear, has_sums=fused.prenorm, has_gates=fused.gated, has_angles=fused.rotary
        )
        self.bottlenecks = BottleneckLayers(self.parts)
        self.disentangled = DisentangledLayers()
        # Checkpointing would compute the pass again when the overrides are gone.
        self.has_attention = fused.attention and not is_checkpointing(model)
        if is_checkpointing(model):
            return
        self.tables += plan_tables(model, self.parts, self._add) if fused.embeddings else []
        for module in model.modules():
            self._plan(module)
        self._plan_layers()

    def _plan(self, module: nn.Module) -> None:
        """Add the overrides of a module and of its projections, if kernels can compute them."""
        if self.fused.residual and is_residual(module):
            self._add(module, "forward", self._residual(module, self._next_seed()))
        if self.fused.linear and is_gelu(module):
            self._add(module, "forward", self._gelu(module))
        if self.fused.linear and is_gelu_by_tanh(module):
            self._add(module, "forward", partial(functional.gelu, approximate="tanh"))
        if self.fused.linear and isinstance(module, StackedLinear) and module.bias is not None:
            self._add(module, "forward", self._stacked(module))
        if self.fused.residual and is_norm_in_steps(module):
            self._add(module, "forward", partial(self._norm, module))
        self._plan_attention(module)
        projections = attention_projections(module) if self.fused.linear else None
        for index, linear in enumerate(projections or ()):
            self._add(linear, "forward", self._projection(cast(Any, projections), index))
        if self.fused.mix and isinstance(module, BermoModel) and can_fuse_mix(module.layer_mix):
            self._add(module, "_mix_stacked", mixed(module, self.parts, self.read))
            self._add(module, "forward", self.read.noting(module))

    def _plan_layers(self) -> None:
        """Add the overrides of pre-norm layers, of layers between bottlenecks, and of what is in them."""
        for module in self.model.modules():
            found = self.layers.overrides(module) if isinstance(module, nn.ModuleList) else ()
            between = self.bottlenecks.overrides(module) if self.fused.bottleneck else ()
            for part, forward in (*found, *between):
                self.overrides.append(Override(part, "forward", forward, is_hookable=True))

    def _plan_attention(self, module: nn.Module) -> None:
        """Add the overrides of modules whose attention adds a bias that is trained."""
        if not (self.fused.residual and self.fused.attention):
            return
        alone = (self.disentangled.forward_of, shifted, feed_forward) if self.fused.linear else ()
        for forward_of in (biased_attention, *alone):
            if function := forward_of(module, self.parts):
                self._add(module, "forward", function)

    def _add(self, module: nn.Module, attribute: str, function: Callable[..., Any]) -> None:
        # The first override of a module wins: a stacked query layer is a projection of its parent first.
        if all(one.module is not module or one.attribute != attribute for one in self.overrides):
            self.overrides.append(Override(module, attribute, function))

    def _next_seed(self) -> int:
        self.num_seeds += 1
        return self.num_seeds - 1

    @contextmanager
    def active(self, device: torch.device) -> Iterator[None]:
        """Let the model compute by fused kernels inside the block."""
        from bermo.nn.fast.late import Late

        self._draw_seeds(device)
        self.late = Late()
        try:
            for override in self.overrides:
                if override.is_hookable or not has_hooks(override.module):
                    override.module.__dict__[override.attribute] = override.function
            with fused_attention(self.late) if self.has_attention else nullcontext():
                yield
        finally:
            for override in self.overrides:
                override.module.__dict__.pop(override.attribute, None)
            self.casts.clear()
            self.precomputed.clear()
            self.layers.clear()
            self.read.clear()
            self.bottlenecks.clear()
            self.late = None

    def _draw_seeds(self, device: torch.device) -> None:
        """Draw new seeds by the device's generator, so that each replay of a CUDA graph draws others."""
        self.seeds = torch.randint(0, 2**62, (self.num_seeds,), device=device)
        self.used_seeds.clear()

    def _seed(self, number: int) -> Tensor:
        """Return a module's seed in this pass; one that is called again (shared layers) gets another."""
        if number in self.used_seeds:
            self._draw_seeds(self.seeds.device)
        self.used_seeds.add(number)
        return self.seeds[number : number + 1]

    def _residual(self, module: nn.Module, number: int) -> Callable[..., Tensor]:
        from bermo.nn.fast.residual import fits_kernels

        dense = cast(nn.Linear, module.dense)

        def forward(hidden_states: Tensor, input_tensor: Tensor) -> Tensor:
            if not fits_kernels(input_tensor):
                return type(module).forward(module, hidden_states, input_tensor)
            return self._add_and_norm(module, dense, hidden_states, input_tensor, number)

        return forward

    def _add_and_norm(self, module: Any, dense: nn.Linear, h: Tensor, x: Tensor, number: int) -> Tensor:
        """Return LayerNorm(x + dropout(dense(h))) with the norm and dropout of a module."""
        # Without the linear part the layer is called as it is, and its bias gets its gradient there.
        has_bias = self.fused.linear and self._reads_copies(dense)
        h = self._linear(dense, h) if has_bias else dense(h)
        return self._end(module, h, x, number, dense.bias if has_bias else None)

    def _end(
        self, module: nn.Module, h: Tensor, x: Tensor, number: int, bias: Tensor | None = None
    ) -> Tensor:
        """Return LayerNorm(x + dropout(h)); a bias of two axes is added to h, any other is in it."""
        from bermo.nn.fast.residual import residual

        norm, dropout = norm_of(module), cast(nn.Dropout, module.dropout)
        p = dropout.p if dropout.training else 0.0
        adds_bias = bias is not None and bias.dim() == 2
        dtype = self.dtype if self.fused.linear else None
        seed = self._seed(number)
        last = (bias, dtype, adds_bias, self.read.tokens_of(x), self.late)
        y, cast_y, rows = residual(h, x, norm.weight, norm.bias, seed, p, norm.eps, *last)
        if cast_y is not None:
            self.casts[id(y)] = (y, cast_y)
        self.read.keep(y, rows)
        return y

    def _norm(self, module: Any, hidden_states: Tensor) -> Tensor:
        """Return torch's LayerNorm with the weights of a module that computes it in single operations."""
        size = (hidden_states.shape[-1],)
        return functional.layer_norm(hidden_states, size, module.weight, module.bias, module.variance_epsilon)

    def _keep(self, source: Tensor, make: Callable[[], Any]) -> Any:
        """Return what is made of a tensor, made once in a pass."""
        if id(source) not in self.casts:
            self.casts[id(source)] = (source, make())
        return self.casts[id(source)][1]

    def _gelu(self, module: nn.Module) -> Callable[..., Tensor]:
        from bermo.nn.fast.dense import Gelu

        dense = cast(nn.Linear, module.dense)

        def forward(hidden_states: Tensor) -> Tensor:
            if not self._reads_copies(dense):
                return type(module).forward(module, hidden_states)
            h, adds_bias = self._linear(dense, hidden_states), dense.bias.dim() == 2
            return cast(Tensor, Gelu.apply(h, dense.bias, adds_bias, None, 0.0, self.late))

        return forward

    def _stacked(self, linear: StackedLinear) -> Callable[[Tensor], Tensor]:
        from bermo.nn.fast.dense import Stacked

        def forward(x: Tensor) -> Tensor:
            if not self._reads_copies(linear):
                return type(linear).forward(linear, x)
            weight = linear.weight
            return cast(
                Tensor, Stacked.apply(self._cast(x), weight, linear.bias, self._grad_buffer((weight,)))
            )

        return forward

    def _linear(self, linear: nn.Linear, x: Tensor) -> Tensor:
        """Return x Wᵀ + b from the copies, without a gradient for b; of stacked layers x Wᵀ alone."""
        from bermo.nn.fast.dense import Stacked
        from bermo.nn.fast.product import product

        weight = linear.weight
        buffer = self._grad_buffer((weight,))
        if weight.dim() == 3:
            return cast(Tensor, Stacked.apply(self._cast(x), weight, None, buffer))
        return product(self._cast(x), weight, linear.bias.detach(), buffer)

    def _projection(self, projections: Sequence[nn.Linear], index: int) -> Callable[[Tensor], Tensor]:
        own = projections[index]

        def forward(x: Tensor) -> Tensor:
            known = self.precomputed.pop(id(own), None)
            if known is not None and known[0] is x:
                return known[1]
            # The query's layer computes all three. A key or value layer with another input computes its own.
            if index > 0:
                return self._plain_linear(own, x)
            outputs = self._project(x, projections)
            for linear, output in zip(projections[1:], outputs[1:], strict=True):
                self.precomputed[id(linear)] = (x, output)
            return outputs[0]

        return forward

    def _project(self, x: Tensor, projections: Sequence[nn.Linear]) -> Sequence[Tensor]:
        """Return three layers of one tensor, as one product where their copies are neighbours in memory."""
        from bermo.nn.fast.dense import Joined, StackedThree

        weights, biases = [p.weight for p in projections], [p.bias for p in projections]
        can_read = all(self._reads_copies(linear) for linear in projections)
        if can_read and are_side_by_side(weights) and are_side_by_side(biases):
            given = (self._cast(x), self._grad_buffer(weights))
            if isinstance(projections[0], StackedLinear):
                return cast(Sequence[Tensor], StackedThree.apply(*given, *weights, *biases))
            return cast(Sequence[Tensor], Joined.apply(*given, self.late, *weights, *biases))
        return [self._plain_linear(linear, x) for linear in projections]

    def _plain_linear(self, linear: nn.Linear, x: Tensor) -> Tensor:
        if isinstance(linear, StackedLinear):
            return type(linear).forward(linear, self._cast(x))
        return functional.linear(self._cast(x), linear.weight, linear.bias)

    def _grad_buffer(self, weights: Sequence[Tensor]) -> Tensor | None:
        """Return the buffer for the gradients of these copies, if nothing has written to it in this step."""
        return None if self.shadow is None else self.shadow.take(weights)

    def _cast(self, x: Tensor) -> Tensor:
        """Return an input in the working dtype, as its kernel wrote it or cast once for all readers."""
        return cast(Tensor, self._keep(x, lambda: x.to(self.dtype)))

    def _reads_copies(self, linear: nn.Linear) -> bool:
        """Tell whether a layer reads copies in the working dtype that take gradients."""
        return all(t.dtype == self.dtype and t.requires_grad for t in (linear.weight, linear.bias))


def make_fusion(
    model: nn.Module, shadow: Shadow | None, fused: Fused, device: torch.device, is_half: bool
) -> Fusion | None:
    """Return the fusion of a step, or None where kernels cannot run: no GPU, no bfloat16 or no Triton."""
    if device.type != "cuda" or not is_half or not has_kernels() or fused == NOTHING:
        return None
    return Fusion(model, shadow, fused)
