"""BERT-of-Theseus (Xu et al. 2020): a trained model's layers are replaced by fewer, more and more often.

    successor layer i starts as the predecessor's layer i and learns to stand for its i-th group of layers
    p(step) = 0.3 rising to 1 over the first two thirds; then the successor is fine-tuned alone

Only the labels are learned: there is no loss of a teacher to weigh. The successor's layers and its mix are
trained; embeddings and head stay the predecessor's, whose layers run without dropout and are never changed.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import cast

import torch
from torch import nn
from torch.optim import Optimizer

from bermo.encoders.families import num_layers
from bermo.encoders.sites import encoder_of, layers_of
from bermo.errors import BermoError
from bermo.methods.student import copy_mix_, student_from_teacher
from bermo.models.config import BermoConfig
from bermo.models.encoder import BermoPreTrainedModel
from bermo.nn.losses import even_map
from bermo.nn.replacing import Replacement
from bermo.spec import USUAL_MIX, MixKind

FIRST_CHANCE = 0.3
RISING_SHARE = 2 / 3


def chance(step: int, num_steps: int) -> float:
    """Return the probability with which each layer is the successor's."""
    rising = max(1.0, RISING_SHARE * num_steps)
    return min(1.0, FIRST_CHANCE + (1 - FIRST_CHANCE) * step / rising)


class TheseusHook:
    """Draws in each step, from the seed and the step, which layers are the successor's."""

    def __init__(
        self, model: BermoPreTrainedModel, replacements: list[Replacement], num_steps: int, seed: int
    ) -> None:
        self.model, self.replacements, self.num_steps, self.seed = model, replacements, num_steps, seed
        self.generator = torch.Generator()
        self.now = 0.0

    def begin(self, optimizer: Optimizer) -> None: ...

    def plan(self, step: int) -> None:
        self.now = chance(step, self.num_steps)
        self.generator.manual_seed((self.seed << 32) + step)
        draws = torch.rand(len(self.replacements), generator=self.generator).tolist()
        for replacement, draw in zip(self.replacements, draws, strict=True):
            replacement.set_(draw < self.now, self.model.device)

    def apply(self) -> None: ...

    def generators(self) -> list[torch.Generator]:
        return []

    def metrics(self) -> Mapping[str, float]:
        return {"replaced": self.now}


def make_successor(
    predecessor: BermoPreTrainedModel, count: int, mix_kind: MixKind = USUAL_MIX
) -> BermoPreTrainedModel:
    """Build a model of the predecessor's first layers, of which its own layers and mix are trained."""
    _check(predecessor, count)
    known = cast(BermoConfig, predecessor.config).mix["kind"]
    if mix_kind not in (USUAL_MIX, known):
        raise BermoError(f'--theseus keeps its teacher\'s mix, "{known}", not "{mix_kind}". Leave --mix out.')
    successor = student_from_teacher(predecessor, range(1, count + 1))
    ends = even_map(count, len(layers_of(predecessor)))
    copy_mix_(successor.mix, predecessor.mix, (0, *ends))
    successor.requires_grad_(False)
    for module in (*layers_of(successor), successor.mix):
        module.requires_grad_(True)
    return successor


def start_replacing_(
    successor: BermoPreTrainedModel, predecessor: BermoPreTrainedModel, num_steps: int, seed: int
) -> TheseusHook:
    """Let the successor's layers stand in for the predecessor's, and return what draws them."""
    replacements = []
    groups = groups_of_layers(layers_of(predecessor), len(layers_of(successor)))
    for layer, group in zip(layers_of(successor), groups, strict=True):
        replacements.append(Replacement(group))
        # First of all hooks, so that others see what the next layer reads.
        layer.register_forward_hook(replacements[-1], with_kwargs=True, prepend=True)
    return TheseusHook(successor, replacements, num_steps, seed)


def groups_of_layers(layers: list[nn.Module], count: int) -> list[list[nn.Module]]:
    """Divide layers into so many groups of neighbours, as even as can be."""
    ends = (0, *even_map(count, len(layers)))
    return [layers[start:end] for start, end in pairwise(ends)]


def _check(predecessor: BermoPreTrainedModel, count: int) -> None:
    config, known = encoder_of(predecessor).config, len(layers_of(predecessor))
    are_alike = len(set(getattr(config, "layer_types", None) or [0])) == 1
    has_between = bool(getattr(config, "conv_kernel_size", 0))
    if known != num_layers(config) - 1 or not are_alike or has_between:
        raise BermoError(
            "--theseus needs layers of one kind, each with its own weights and nothing between them, which"
            f" this {config.model_type} does not have. Use --student-layers."
        )
    if count >= known:
        raise BermoError(f"theseus must be fewer layers than the teacher's {known}, but got {count}.")
