"""Mixes that come or go gradually: layers enter from the top downwards, or leave until the last is left.

    share_j ∝ exp(α_j) · o_j(p)        p the share of the steps that are done, d_j of J layers are above j
    opens    o_j = clamp((J − 1) · p / 0.5 − d_j + 1, 0, 1): only the top at the start, all from half way on
    closes   the same backwards from p = 0.5 to p = 0.9; then the mix is h_L to the bit, with γ = 1 throughout

A closed mix is no mix: what is saved is the plain encoder with its head.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor
from torch.optim import Optimizer

from bermo.errors import BermoError
from bermo.method_spec import MixPath
from bermo.models.config import mix_options
from bermo.models.encoder import BermoPreTrainedModel
from bermo.nn.mix import LayerMix, OneLayer
from bermo.training.job import Hook

HALF, END = 0.5, 0.9
"""Shares of the steps: an opening mix is open, or a closing one begins to close; it is closed."""


def openness(path: MixPath, num_layers: int, done: float) -> Tensor:
    """Return how far each mixed layer is open, from the lowest to the top one, which always is."""
    above = torch.arange(num_layers - 1, -1, -1, dtype=torch.double)
    if path == "closes":
        done = HALF * (1 - min(1.0, max(0.0, (done - HALF) / (END - HALF))))
    return torch.where(above == 0, 1.0, ((num_layers - 1) * done / HALF - above + 1).clamp(0, 1))


class MixHook:
    """Moves the mix before each step; it remembers nothing, so that a training can go on from any step."""

    def __init__(self, model: BermoPreTrainedModel, path: MixPath, num_steps: int) -> None:
        if not isinstance(model.mix, LayerMix):
            raise BermoError(f"--mix-path {path} moves the shares of a learned mix. Choose one with --mix.")
        self.mix, self.path, self.num_steps = model.mix, path, num_steps
        if path == "closes" and self.mix.layers[-1] != self.mix.num_layers - 1:
            raise BermoError("--mix-path closes ends in the last layer, which --layers leaves out. Add -1.")
        if path == "closes":
            torch.nn.init.ones_(self.mix.scale)
            self.mix.scale.requires_grad_(False)
        self.mix.openness = torch.ones(len(self.mix.layers), device=self.mix.logits.device)
        self.move_(0.0)

    @property
    def last_step(self) -> int:
        """The first step after which the mix stays as it is saved."""
        return math.ceil((END if self.path == "closes" else HALF) * self.num_steps)

    def move_(self, done: float) -> None:
        """Open or close layers for this share of the steps."""
        factors = self.mix.openness
        assert factors is not None
        factors.copy_(openness(self.path, len(self.mix.layers), done).to(factors))

    def begin(self, optimizer: Optimizer) -> None: ...

    def plan(self, step: int) -> None:
        self.move_((step + 1) / self.num_steps)

    def apply(self) -> None: ...

    def generators(self) -> Sequence[torch.Generator]:
        return ()

    def metrics(self) -> Mapping[str, float]:
        return {}


def end_mix_(hooks: Sequence[Hook]) -> None:
    """Bring a mix to where its training ends, where all steps were done by an earlier call."""
    for hook in hooks:
        if isinstance(hook, MixHook):
            hook.move_(1.0)


@contextmanager
def _as_plain(model: BermoPreTrainedModel) -> Iterator[None]:
    mix, options = model.mix, model.config.mix
    model.core.layer_mix = OneLayer(mix.num_layers, mix.layers[-1])
    model.config.mix = mix_options("none")
    try:
        yield
    finally:
        model.core.layer_mix, model.config.mix = mix, options


def shipped_form(model: BermoPreTrainedModel, path: MixPath | None) -> AbstractContextManager[None]:
    """Let a model whose mix has closed be saved as the plain encoder that it is."""
    return _as_plain(model) if path == "closes" else nullcontext()
