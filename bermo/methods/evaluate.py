"""A model and features -> the logits of each feature, computed by all processes, with little padding."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import nn
from torch.nn.attention import sdpa_kernel

from bermo.data.batches import LABEL_NAMES, in_order, trim
from bermo.data.features import Features
from bermo.data.tensors import collate
from bermo.nn.fast.overrides import ATTENTION
from bermo.spec import RunSpec, chosen

# No activations are kept for gradients, so twice the rows fit into memory.
EVAL_BATCH_FACTOR = 2
# A GPU computes a batch of fewer tokens in less time than the processor takes to launch it.
GPU_TOKENS = 16_384


def eval_rows(spec: RunSpec) -> int:
    """Rows a batch where no gradients are taken."""
    return EVAL_BATCH_FACTOR * chosen(spec.train.batch_size)


def predict(
    model: Callable[..., Any],
    features: Features,
    batch_size: int,
    accelerator: Accelerator,
    advance: Callable[[int], None] = lambda num_rows: None,
    rows: np.ndarray | None = None,
    is_full: bool = False,
) -> list[np.ndarray]:
    """Return the model's logits in feature order, without padding; `advance` gets the rows of each batch.

    With `rows` only these features are asked for; full batches, and all on a GPU, have more rows where texts
    are short.
    """
    is_gpu = accelerator.device.type == "cuda"
    batches = in_order(features, batch_size, rows, is_full or is_gpu, GPU_TOKENS if is_gpu else 0)
    mine = batches[accelerator.process_index :: accelerator.num_processes]
    numbered: list[tuple[int, np.ndarray]] = []
    if isinstance(model, nn.Module):
        model.eval()
    with torch.inference_mode(), sdpa_kernel(ATTENTION) if is_gpu else nullcontext():
        for some in mine:
            batch = collate(features, some)
            inputs = {k: v.to(accelerator.device) for k, v in batch.items() if k not in LABEL_NAMES}
            with accelerator.autocast():
                outputs = model(**inputs)
            logits = [part.float().cpu().numpy() for part in _logits(features, outputs)]
            numbered += zip(some.tolist(), trim(features, some, logits), strict=True)
            advance(len(some))
    if accelerator.num_processes > 1:
        numbered = gather_object(numbered)
    return [array for _, array in sorted(numbered, key=lambda pair: pair[0])]


def _logits(features: Features, outputs: Any) -> tuple[torch.Tensor, ...]:
    if features.task.kind == "span":
        return outputs.start_logits, outputs.end_logits
    return (outputs.logits,)
