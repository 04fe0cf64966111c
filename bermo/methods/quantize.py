"""Quantisation-aware training: the last steps compute with int8's numbers (Q8BERT, Zafrir et al. 2019), or
with weights of three or two values and inputs in int8 (TernaryBERT, BinaryBERT).

A binary model that starts from a ternary one is BinaryBERT's split of it: every matrix of three values is the
sum of two of two values, and computes the same until training goes on.

The quantisers are those of the graph that `bermo export --to onnx-int8` writes (bermo.models.quantized), so
evaluations from then on say what the exported model will answer.
"""

import math
from collections.abc import Mapping
from pathlib import Path

import torch
from torch.optim import Optimizer

from bermo.encoders.trust import config_of
from bermo.method_spec import MethodSpec
from bermo.methods.distill import set_aside
from bermo.models.encoder import BermoPreTrainedModel
from bermo.models.quantized import MARK, attach_quantizers_
from bermo.nn.quantizers import Switch
from bermo.spec import RunSpec

USUAL_FROM = 2 / 3
SPLIT_NOTE = (
    "Every matrix of three values starts as the sum of two matrices of two values each. This is a simulation:"
    " what is saved is their sum, and no kernel computes with either."
)


class QuantizeHook:
    """Turns a model's quantisers on at a step, for good."""

    def __init__(self, switch: Switch, first_step: int) -> None:
        self.switch, self.first_step = switch, first_step

    def begin(self, optimizer: Optimizer) -> None: ...

    def plan(self, step: int) -> None:
        self.switch.set_(step >= self.first_step)

    def apply(self) -> None: ...

    def generators(self) -> list[torch.Generator]:
        return []

    def metrics(self) -> Mapping[str, float]:
        return {"quantized": float(self.switch.is_on)}


def is_split(spec: RunSpec) -> bool:
    """Tell whether a run splits a ternary model into a binary one: its encoder is one that was trained so."""
    source = spec.model.backbone
    if spec.method.quantize != "binary" or spec.has_teachers_layers or not Path(source).is_dir():
        return False
    return getattr(config_of(source), MARK, None) == "ternary"


def start_quantizing_(
    model: BermoPreTrainedModel, spec: MethodSpec, num_steps: int, is_split: bool = False
) -> QuantizeHook:
    """Put quantisers on a model, and return what turns them on after a share of the steps; split ones are on
    from the first.
    """
    setattr(model.config, MARK, spec.quantize)
    with set_aside(model):
        switch = attach_quantizers_(model, spec.quantize or "int8", is_split)
    usual = 0.0 if is_split else USUAL_FROM
    share = usual if spec.quantize_from is None else spec.quantize_from
    return QuantizeHook(switch, min(math.floor(share * num_steps), num_steps - 1))
