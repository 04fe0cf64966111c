"""What decides which weights stay, in four kinds, and the numbers that a step of pruning needs: strengths, thresholds, seeds.

λ = μ + (PULL + |μ|) · (e, or BACK · e below the target), then μ ← μ + (PULL + |μ|) · e / MEMORY      e: the relative excess over the density aimed at
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from bermo.pruning.schedule import CubicSchedule

Scope = Literal["matrix", "global"]


@dataclass(frozen=True, kw_only=True)
class Magnitude:
    """Keep the largest weights."""

    density: float
    scope: Scope = "matrix"
    block: tuple[int, int] = (1, 1)


@dataclass(frozen=True, kw_only=True)
class Movement:
    """Keep the weights whose learned scores are highest; scores start at zero, or at |W|.

    rank="size" keeps the largest |W| · σ(S) instead: the scores then correct the sizes, and a large weight is not among the
    first to go because its score was the first to move.
    """

    density: float
    scope: Scope = "matrix"
    block: tuple[int, int] = (1, 1)
    start: Literal["zeros", "magnitude"] = "zeros"
    rank: Literal["score", "size"] = "score"


@dataclass(frozen=True, kw_only=True)
class SoftMovement:
    """Keep σ(S) > τ, with a penalty λ·mean σ(S); or, without λ, the penalty that leads to a density."""

    penalty: float | None = None
    density: float | None = None
    threshold: float = 0.1
    block: tuple[int, int] = (1, 1)


@dataclass(frozen=True, kw_only=True)
class L0:
    """Hard-concrete gates with a penalty λ·mean P(open); or, without λ, the penalty that leads to a density."""

    penalty: float | None = None
    density: float | None = None
    block: tuple[int, int] = (1, 1)


Method = Magnitude | Movement | SoftMovement | L0


PULL = 1000.0  # λ at an excess of 100 %; the paper's λ lie between 45 and 500
BACK = 10.0  # how much harder the pull turns where the density is below its target
MEMORY = 100  # steps at a constant excess after which the multiplier has grown to what the excess alone gives

# The places of the state of the pull: μ, the excess at the last step, and which step it was.
MULTIPLIER, EXCESS, STEP = 0, 1, 2


class Numbers:
    """The numbers of a step, where the model is. Their tensors stay the same, for a captured step reads them."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self.found: dict[str, Tensor] = {}
        self.holder: nn.Module = model
        self.generator = torch.Generator(model.device)

    def plan(self, method: SoftMovement | L0, schedule: CubicSchedule, step: int, seed: int) -> None:
        """Write what a penalised method needs at a step: threshold, strength, the density aimed at, the seed of its draws."""
        if isinstance(method, SoftMovement):
            threshold = schedule.value(step, 0.0, method.threshold)
            self.put("threshold", threshold)
            self.put("ramp", threshold / method.threshold)
        elif self.generator.device != self.model.device:
            self.generator = torch.Generator(self.model.device)
        self.generator.manual_seed((seed << 32) + step)
        if method.density is not None:
            self.put("wanted", schedule.value(step, 1.0, method.density))
            self._add_up(step)

    def strength(self, method: SoftMovement | L0, density: Callable[[], Tensor]) -> Tensor | float:
        """λ at this step: the one given, or the augmented Lagrangian's, which leads the density to a target.

        λ = μ + (PULL + |μ|) · e and, after each step, μ ← μ + (PULL + |μ|) · e / MEMORY, where e is the relative excess, negative below the
        target. What e gives answers at once; the multiplier μ stands where the density stays on its target. It grows like an exponential,
        for so does what holds a high score up: the penalty's gradient λ·σ'(S). In a short training it has grown far too large by the time the
        scores arrive, since they move by at most a rate a step; so below the target e counts BACK times, and λ has turned round at e = −1/BACK, however large μ is.
        """
        if method.penalty is not None:
            return method.penalty * (self["ramp"] if isinstance(method, SoftMovement) else 1.0)
        wanted, pull = self["wanted"], self._pull()
        excess = ((density() - wanted) / wanted).clamp(-1, 1)
        pull[..., EXCESS] = excess
        multiplier = pull[..., MULTIPLIER].clone()
        answer = torch.where(excess < 0, BACK * excess, excess)
        return multiplier + (PULL + multiplier.abs()) * answer

    def lead(self, method: Method, mask: nn.Module) -> None:
        """Let a mask carry the state of the pull, so that it is saved with the model, where a density is aimed at."""
        self.holder = mask
        if isinstance(method, SoftMovement | L0) and method.density is not None:
            mask.register_buffer("pull", torch.zeros(3, device=self.model.device))

    def _pull(self) -> Tensor:
        return cast(Tensor, self.holder.pull)

    def _add_up(self, step: int) -> None:
        """Add the last step's excess to the multipliers, once, whether the run was stopped in between or not."""
        pull = self._pull()
        is_new = pull[..., STEP] < step
        growth = (PULL + pull[..., MULTIPLIER].abs()) / MEMORY
        pull[..., MULTIPLIER] += growth * pull[..., EXCESS] * is_new
        pull[..., STEP] = step

    def put(self, name: str, value: float) -> None:
        """Write a number; an int stays one."""
        device = self.model.device
        if name not in self.found or self.found[name].device != device:
            dtype = torch.int64 if isinstance(value, int) else torch.float32
            self.found[name] = torch.zeros((), dtype=dtype, device=device)
        self.found[name].fill_(value)

    def __getitem__(self, name: str) -> Tensor:
        return self.found[name]
