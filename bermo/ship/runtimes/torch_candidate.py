"""A torch model that answers: plain on a CPU; on a GPU as CUDA graphs, one for each shape that comes again.

candidate(batch) -> logits        candidate.start(batch)() -> the same, other work done in between
"""

import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import sdpa_kernel
from transformers import PreTrainedModel

from bermo.encoders.families import longest_input
from bermo.encoders.position_bias import set_position_bias_
from bermo.models.config import encoder_config
from bermo.nn.fast.overrides import ATTENTION
from bermo.nn.fast.replay import Replays, fused_attention
from bermo.spec import Precision

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
ENDLESS = 1 << 30
SMALL = 1 << 16
"""Bytes that the driver copies at once, so that pinned memory gains nothing."""

Answers = Callable[[], list[np.ndarray]]


class TorchCandidate:
    """A torch model on a device, in the precision asked for."""

    def __init__(self, model: PreTrainedModel, device: str = "cpu", precision: Precision = "fp32") -> None:
        self.device, self.precision = torch.device(device), precision
        self.model = model.eval().to(self.device, DTYPES[precision])
        self.longest: int | None = None
        """Where shapes should be few: what the model can read, to which batches may be padded on."""
        self.replays: Replays | None = None
        if self.device.type == "cuda":
            set_position_bias_(self.model)
            self.longest = longest_input(encoder_config(model.config)) or ENDLESS
            self.replays = Replays(self._logits, self.device, DTYPES[precision], fused_attention)

    def __call__(self, batch: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        return self.start(batch)()

    def start(self, batch: Mapping[str, np.ndarray]) -> Answers:
        """Begin to compute a batch, and return a function that waits for its logits."""
        with torch.inference_mode(), warnings.catch_warnings():
            # torch warns that a CPU without instructions for bf16 computes it in another way.
            warnings.filterwarnings("ignore", message="mkldnn", category=UserWarning)
            if self.replays is None:
                sent = {name: torch.from_numpy(v).to(self.device) for name, v in batch.items()}
                parts = [part.cpu().numpy() for part in self._logits(sent)]
                return lambda: parts
        kept = self.replays({name: _pinned(v) for name, v in batch.items()}, _to_host)
        done = torch.cuda.Event()
        done.record()
        return lambda: _after(done, kept)

    def _logits(self, inputs: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        with sdpa_kernel(ATTENTION) if self.device.type == "cuda" else nullcontext():
            outputs = self.model(**inputs)
        return tuple(part.float() for part in logits_of(outputs))


def logits_of(outputs: Any) -> tuple[Tensor, ...]:
    """Return the answers among a model's outputs."""
    if getattr(outputs, "start_logits", None) is not None:
        return outputs.start_logits, outputs.end_logits
    return (outputs.logits,)


def _pinned(values: np.ndarray) -> Tensor:
    tensor = torch.from_numpy(values)
    return tensor if values.nbytes <= SMALL else tensor.pin_memory()


def _to_host(part: Tensor) -> Tensor:
    """Copy a tensor to the CPU's memory; it is there once the GPU has come so far."""
    return torch.empty(part.shape, dtype=part.dtype, pin_memory=True).copy_(part, non_blocking=True)


def _after(done: torch.cuda.Event, kept: tuple[Tensor, ...]) -> list[np.ndarray]:
    done.synchronize()
    return [part.numpy() for part in kept]
