"""A model and features -> one prediction a feature, over all processes, in bounded padding."""

from collections.abc import Callable

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor

from bermo.data.batches import collate
from bermo.data.features import Features
from bermo.model import BermoPreTrainedModel


def predict(
    model: BermoPreTrainedModel,
    features: Features,
    batch_size: int,
    accelerator: Accelerator,
    advance: Callable[[int], None] = lambda done: None,
) -> list[np.ndarray]:
    """Return the model's outputs in feature order, padding cut off; long texts come first, like with like."""
    order = np.argsort(-features.lengths, kind="stable")
    batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
    mine = batches[accelerator.process_index :: accelerator.num_processes]
    found: list[tuple[int, np.ndarray]] = []
    model.eval()
    with torch.inference_mode():
        for rows in mine:
            batch = collate(features, rows, with_labels=False)
            with accelerator.autocast():
                outputs = model(**{k: v.to(accelerator.device) for k, v in batch.items()})
            found += zip(rows.tolist(), _cut(features, outputs, batch), strict=True)
            advance(len(rows))
    if accelerator.num_processes > 1:
        found = gather_object(found)
    return [array for _, array in sorted(found, key=lambda pair: pair[0])]


def _cut(features: Features, outputs: object, batch: dict[str, Tensor]) -> list[np.ndarray]:
    """Split a batch's outputs into one array a feature, without the padding."""
    match features.task.kind:
        case "classification" | "regression" | "choice":
            return list(outputs.logits.float().cpu().numpy())  # type: ignore[attr-defined]
        case "tagging":
            logits = outputs.logits.float().cpu().numpy()  # type: ignore[attr-defined]
            real = batch["attention_mask"].bool().numpy()
            return [row[mask] for row, mask in zip(logits, real, strict=True)]
        case "span":
            pair = (outputs.start_logits, outputs.end_logits)  # type: ignore[attr-defined]
            logits = torch.stack(pair, dim=1).float().cpu().numpy()
            real = batch["attention_mask"].bool().numpy()
            return [row[:, mask] for row, mask in zip(logits, real, strict=True)]
