"""A model and features -> one prediction a feature, over all processes, in bounded padding."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import nn

from bermo.data.batches import collate, in_order, trim
from bermo.data.features import Features
from bermo.models.tasks import TARGETS


def predict(
    model: Callable[..., Any],
    features: Features,
    batch_size: int,
    accelerator: Accelerator,
    advance: Callable[[int], None] = lambda num_rows: None,
) -> list[np.ndarray]:
    """Return the model's outputs in feature order, padding cut off; `advance` hears of each batch."""
    batches = in_order(features, batch_size)
    mine = batches[accelerator.process_index :: accelerator.num_processes]
    found: list[tuple[int, np.ndarray]] = []
    if isinstance(model, nn.Module):
        model.eval()
    with torch.inference_mode():
        for rows in mine:
            batch = collate(features, rows)
            inputs = {k: v.to(accelerator.device) for k, v in batch.items() if k not in TARGETS}
            with accelerator.autocast():
                outputs = model(**inputs)
            logits = [part.float().cpu().numpy() for part in _logits(features, outputs)]
            found += zip(rows.tolist(), trim(features, rows, logits), strict=True)
            advance(len(rows))
    if accelerator.num_processes > 1:
        found = gather_object(found)
    return [array for _, array in sorted(found, key=lambda pair: pair[0])]


def _logits(features: Features, outputs: Any) -> tuple[torch.Tensor, ...]:
    if features.task.kind == "span":
        return outputs.start_logits, outputs.end_logits
    return (outputs.logits,)
