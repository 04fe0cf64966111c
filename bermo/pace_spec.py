"""How long a pretraining is, at which rates, and how often its held-out text is scored."""

import math
from dataclasses import dataclass
from typing import Literal

from bermo.choices import DEVICE_HELP, Device, Tracker, device_rules, tracker_rule
from bermo.fields import Rules, option
from bermo.spec import Precision

Optimiser = Literal["adamw", "lamb"]

DEFAULT_STEPS = 10_000  # those of the encoder in the box


@dataclass(frozen=True, kw_only=True)
class PaceSpec:
    """How long, at which rates, and how often the held-out text is scored."""

    steps: int | None = option(
        None, "steps of the optimiser", shown=f"{DEFAULT_STEPS}, without --minutes", least=1
    )
    minutes: float | None = option(
        None, "instead of steps: as many as fit into so many minutes, by a short trial", over=0
    )
    batch_size: int = option(256, "rows a step, over all processes and accumulation together", least=1)
    accumulation: int = option(1, "split each batch into so many forward passes", least=1, most=10_000)
    recompute: bool = option(
        False, "keep no layer's insides for the backward pass and compute them again: less memory, more time"
    )
    only_head: bool = option(
        False, "train only a masked-LM head for the encoder of --model, which stays as it is"
    )
    optimizer: Optimiser = option("adamw", "how weights are updated; lamb is for large batches")
    lr: float = option(1e-3, "peak learning rate", least=0)
    lr_batch: int | None = option(
        None, "rows a step that --lr is meant for: it grows with the square root of the batch", least=1
    )
    mix_lr: float = option(1e-2, "learning rate of the inner mix", least=0)
    weight_decay: float = option(0.01, "decay of all weights but biases, norms and the mix", least=0)
    warmup: float = option(0.06, "share of the steps in which the rate rises from zero", least=0, most=1)
    clip: float = option(1.0, "largest gradient norm; 0 = no clipping", least=0)
    layer_drop: float = option(
        0.0, "probability with which a layer is left out in a step of training", least=0, under=1
    )
    average: float = option(
        0.0,
        "decay of a running mean of the weights, which is scored and saved; 0 = the weights themselves",
        least=0,
        under=1,
    )
    precision: Precision = option("fp32", "arithmetic of the forward pass")
    device: Device = option("auto", DEVICE_HELP)
    evaluations: int = option(
        10,
        "how often the held-out text is scored; at least once in each pass over the text",
        "looks",
        least=1,
    )
    checkpoint_minutes: float = option(5.0, "save the state of the run every so many minutes", least=0)
    tracker: Tracker = option("none", "also log to this tracker")

    @property
    def peak_lr(self) -> float:
        """The rate for the batch size: lr · √(batch-size / lr-batch)."""
        return self.lr * math.sqrt(self.batch_size / (self.lr_batch or self.batch_size))

    def rules(self) -> Rules:
        return [*device_rules(self.device), tracker_rule(self.tracker)]
