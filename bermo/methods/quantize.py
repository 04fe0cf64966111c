"""Quantisation-aware training: the last steps compute with int8's numbers (Q8BERT, Zafrir et al. 2019), or
with weights of three or two values and inputs in int8 (TernaryBERT, BinaryBERT without its splitting).

The quantisers are those of the graph that `bermo export --to onnx-int8` writes (bermo.models.quantized), so
evaluations from then on say what the exported model will answer.
"""

import math
from collections.abc import Mapping

import torch
from torch.optim import Optimizer

from bermo.method_spec import MethodSpec
from bermo.methods.distill import set_aside
from bermo.models.encoder import BermoPreTrainedModel
from bermo.models.quantized import MARK, attach_quantizers_
from bermo.nn.quantizers import Switch

USUAL_FROM = 2 / 3


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


def start_quantizing_(model: BermoPreTrainedModel, spec: MethodSpec, num_steps: int) -> QuantizeHook:
    """Put quantisers on a model, and return what turns them on after a share of the steps."""
    setattr(model.config, MARK, spec.quantize)
    with set_aside(model):
        switch = attach_quantizers_(model, spec.quantize or "int8")
    share = USUAL_FROM if spec.quantize_from is None else spec.quantize_from
    return QuantizeHook(switch, min(math.floor(share * num_steps), num_steps - 1))
