"""The numbers that a step of pruning needs, by criterion and schedule: for weights and units alike."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from bermo.pruning.controller import DensityController
from bermo.pruning.criteria import L0, Method, Penalised, Ranked, SoftMovement
from bermo.pruning.schedule import Schedule


class StepNumbers:
    """Kept numbers, thresholds, targets, strengths and seeds of the current step.

    What a step on the device reads are tensors on that device. They stay the same ones from step to step,
    because a captured step reads them again and again.
    """

    def __init__(
        self, model: PreTrainedModel, method: Method, schedule: Schedule, seed: int, holder: nn.Module
    ) -> None:
        """Where a penalty aims at a density, `holder` carries the state of its controller."""
        self.model, self.method, self.schedule, self.seed = model, method, schedule, seed
        self.step = 0
        self.generator = torch.Generator(model.device)
        self.controller: DensityController | None = None
        if isinstance(method, Penalised) and method.density is not None:
            self.controller = DensityController(holder, model.device)
        self._tensors: dict[str, Tensor] = {}

    def move_to(self, step: int) -> None:
        """Set the numbers to those of a step, except how many are kept, which depends on what is masked."""
        self.step = step
        method = self.method
        if isinstance(method, Ranked):
            return
        if isinstance(method, SoftMovement):
            threshold = self.schedule.value(step, 0.0, method.threshold)
            self.put("threshold", threshold)
            self.put("ramp", threshold / method.threshold)
        elif self.generator.device != self.model.device:
            self.generator = torch.Generator(self.model.device)
        self.generator.manual_seed((self.seed << 32) + step)
        if self.controller is not None and method.density is not None:
            self.put("target", self.schedule.value(step, 1.0, method.density))
            self.controller.advance_(step)

    def density(self) -> float:
        """The share that the schedule keeps at this step, of criteria that rank."""
        assert isinstance(self.method, Ranked)
        return self.schedule.value(self.step, 1.0, self.method.density)

    def penalty(self, mean_size: Callable[[], Tensor], density: Callable[[], Tensor]) -> Tensor:
        """λ times the mean size of the masks; 0 without a penalty. The size is computed first."""
        if not isinstance(self.method, Penalised):
            return torch.zeros((), device=self.model.device)
        size = mean_size()
        return self._strength(self.method, density) * size

    def _strength(self, method: Penalised, density: Callable[[], Tensor]) -> Tensor | float:
        if self.controller is not None:
            return self.controller.strength(density(), self["target"])
        assert method.penalty is not None
        return method.penalty * (self["ramp"] if isinstance(method, SoftMovement) else 1.0)

    def generators(self) -> list[torch.Generator]:
        """What draws random numbers in a step: the noise of L0."""
        return [self.generator] if isinstance(self.method, L0) else []

    def put(self, name: str, value: float) -> None:
        """Write a number; an int stays one."""
        device = self.model.device
        if name not in self._tensors or self._tensors[name].device != device:
            dtype = torch.int64 if isinstance(value, int) else torch.float32
            self._tensors[name] = torch.zeros((), dtype=dtype, device=device)
        self._tensors[name].fill_(value)

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name]
