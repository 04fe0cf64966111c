"""The loss of guessing words, pairs and replaced tokens, and how well held-out text is guessed.

Axes: B rows, T tokens, K masked positions, V pieces of the vocabulary.
"""

import math

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.nn import functional

from bermo.data.pretrain.packing import PackedBatches
from bermo.models.pretraining import Guesses
from bermo.training.job import Batch, ModelCall

# ELECTRA's: its loss is far smaller than that of words.
DETECTION_WEIGHT = 50.0
CALL = ModelCall(only_for_loss=frozenset({"pair_labels"}))
SCORED_ROWS = 64


class GuessLoss:
    """The mean over masked tokens of −log p, plus the pair's, plus 50 times that of replaced or not."""

    call = CALL

    def count(self, batch: Batch) -> int:
        return int(batch["weights"].sum())

    def __call__(self, outputs: Guesses, batch: Batch) -> Tensor:
        weights_BK = batch["weights"]
        loss = (word_losses(outputs, batch) * weights_BK).sum() / weights_BK.sum().clamp(min=1)
        if outputs.pairs_B2 is not None:
            loss = loss + functional.cross_entropy(outputs.pairs_B2.float(), batch["pair_labels"])
        if outputs.replaced_BT is not None and outputs.is_replaced_BT is not None:
            loss = loss + DETECTION_WEIGHT * functional.binary_cross_entropy_with_logits(
                outputs.replaced_BT.float(), outputs.is_replaced_BT.float()
            )
        return loss


def word_losses(guesses: Guesses, batch: Batch) -> Tensor:
    """Return −log p of the true word at each masked position, (B, K)."""
    scores = guesses.words_BKV.float().flatten(0, 1)
    losses = functional.cross_entropy(scores, batch["targets"].flatten(), reduction="none")
    return losses.view_as(batch["targets"])


def score_guesses(
    model: nn.Module, held: PackedBatches, rows: np.ndarray, accelerator: Accelerator
) -> dict[str, float]:
    """Guess held-out text whose masks never change; the first value decides which model is the best.

    likelihood is the mean log p of a masked token, and decides but for ELECTRA; accuracy and perplexity are
    of the same tokens; pairs is the share of pairs classified right; detection is the mean of the shares of
    replaced and of original tokens classified right, so that calling nothing replaced gives 50.
    """
    sums: dict[str, Tensor] = {}
    device = accelerator.device
    with torch.inference_mode(), torch.random.fork_rng(devices=_devices(device)):
        # ELECTRA's generator draws words.
        torch.manual_seed(0)
        for chunk in np.array_split(rows, -(-len(rows) // SCORED_ROWS)):
            batch = {name: value.to(device) for name, value in held.collate(chunk).items()}
            with accelerator.autocast():
                guesses = model(**CALL.arguments(batch))
            for name, value in _tally(guesses, batch).items():
                sums[name] = sums.get(name, torch.zeros((), device=device)) + value.double()
    return _scores({name: value.item() for name, value in sums.items()})


def _tally(guesses: Guesses, batch: Batch) -> dict[str, Tensor]:
    weights_BK = batch["weights"]
    hits_BK = guesses.words_BKV.argmax(-1) == batch["targets"]
    counts = {
        "words": weights_BK.sum(),
        "hits": (hits_BK * weights_BK).sum(),
        "nats": (word_losses(guesses, batch) * weights_BK).sum(),
    }
    if guesses.pairs_B2 is not None:
        right_B = guesses.pairs_B2.argmax(-1) == batch["pair_labels"]
        counts |= {"pairs": torch.tensor(len(right_B)), "right pairs": right_B.sum()}
    if guesses.replaced_BT is not None and guesses.is_replaced_BT is not None:
        guess_BT, true_BT = guesses.replaced_BT > 0, guesses.is_replaced_BT > 0
        counts |= {
            "replaced": true_BT.sum(),
            "right replaced": (guess_BT & true_BT).sum(),
            "original": (~true_BT).sum(),
            "right original": (~guess_BT & ~true_BT).sum(),
        }
    return {name: value.to(weights_BK.device) for name, value in counts.items()}


def _scores(sums: dict[str, float]) -> dict[str, float]:
    scores = {}
    if "replaced" in sums:
        shares = [sums[f"right {kind}"] / max(1, sums[kind]) for kind in ("replaced", "original")]
        scores["detection"] = 50 * sum(shares)
    nats = sums["nats"] / max(1, sums["words"])
    scores["likelihood"] = -nats
    scores["accuracy"] = 100 * sums["hits"] / max(1, sums["words"])
    scores["perplexity"] = math.exp(min(700.0, nats))
    if "pairs" in sums:
        scores["pairs"] = 100 * sums["right pairs"] / sums["pairs"]
    return scores


def _devices(device: torch.device) -> list[torch.device]:
    return [device] if device.type == "cuda" else []
