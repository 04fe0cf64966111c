"""Mixout as a method: a parametrization on every matrix of the encoder's layers, drawn anew in each step."""

from collections.abc import Mapping

import torch
from torch.optim import Optimizer

from bermo.encoders.sites import prunable_sites
from bermo.models.encoder import BermoPreTrainedModel
from bermo.nn.masked import attach_mask_
from bermo.nn.mixout import Mixout


class MixoutHook:
    """Draws the masks of a step from the seed and the step: the same ones in every process."""

    def __init__(self, model: BermoPreTrainedModel, chance: float, seed: int) -> None:
        self.model, self.seed, self.mixouts = model, seed, list[Mixout]()
        self.generator = torch.Generator(model.device)
        for site in prunable_sites(model):
            self.mixouts.append(Mixout(site.original, chance))
            attach_mask_(site.module, self.mixouts[-1], site.parameter)

    def begin(self, optimizer: Optimizer) -> None: ...

    def plan(self, step: int) -> None:
        if self.generator.device != self.model.device:
            self.generator = torch.Generator(self.model.device)
        self.generator.manual_seed((self.seed << 32) + step)

    def apply(self) -> None:
        for mixout in self.mixouts:
            mixout.draw_(self.generator)

    def generators(self) -> list[torch.Generator]:
        return [self.generator]

    def metrics(self) -> Mapping[str, float]:
        return {}
