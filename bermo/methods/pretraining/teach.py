"""A teacher beside masked or replaced words: the student also learns its vectors of words and of whole rows.

    loss = guessed words + words · unexplained(words) + rows · unexplained(row)

The teacher reads the same text unmasked, in its own tokens; words are means of their tokens, so that the two
tokenizers may differ (bermo.data.pretrain.taught). Student layer i learns from teacher layer ⌈i · L_T / L_S⌉,
through a linear map of its own, each a mean over the layers (TinyBERT, Jiao et al. 2020). The row is read
from the student's first token, which a fine-tuned head reads too, and is pooled as the teacher was trained to
(Reimers & Gurevych 2020). `unexplained` is the share of the variance that is left (bermo.nn.words).

Axes: B rows, T tokens, W words, D units.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from bermo.data.pretrain.taught import IDS, MASK, OWN_WORDS, TEACHING, WORDS, TaughtBatches
from bermo.encoders.backbone import hidden_states, load_encoder, make_inputs
from bermo.encoders.families import family_of, longest_input, num_layers
from bermo.encoders.pooling import trained_pooling
from bermo.encoders.position_bias import set_position_bias_
from bermo.errors import BermoError
from bermo.methods.pretraining.guess import SCORED_ROWS, GuessLoss
from bermo.models.pretraining import Guesses, Pretraining
from bermo.nn.heads import masked_mean, pooled_rows, take_rows
from bermo.nn.losses import even_map, mean_over
from bermo.nn.words import Standard, TeacherMaps, membership, pool_words
from bermo.pretrain_spec import ObjectiveSpec
from bermo.training.job import Batch, ModelCall

MEASURED_ROWS = 512
"""Rows on which the teacher's vectors are measured before the first step."""


class Teacher:
    """A frozen encoder that is asked for the vectors of words, in some layers, and of rows."""

    def __init__(self, name: str, num_student_layers: int, which: str, accelerator: Accelerator) -> None:
        encoder: PreTrainedModel = load_encoder(name).encoder
        if family_of(encoder.config).inputs.is_decoder:
            raise BermoError(
                f'"{name}" reads from left to right only and cannot teach an encoder. Name an encoder.'
            )
        self.encoder, self.pooling = encoder.eval().requires_grad_(False), trained_pooling(name) or "mean"
        set_position_bias_(self.encoder)
        is_half = accelerator.mixed_precision == "bf16"
        self.encoder.to(accelerator.device, torch.bfloat16 if is_half else torch.float32)
        pairs = enumerate(even_map(num_student_layers, num_layers(encoder.config) - 1), start=1)
        self.layers = dict(pairs if which == "all" else list(pairs)[-1:])
        """The teacher's layer by the student's."""
        self.standards: list[Standard] = []

    @property
    def size(self) -> int:
        """D: the units of its vectors."""
        return int(self.encoder.config.hidden_size)

    def row_length(self, length: int) -> int:
        """S: the tokens of its rows, as many as the student's if it has positions for them."""
        longest = longest_input(self.encoder.config)
        return length if longest is None else min(length, longest)

    @torch.no_grad()
    def vectors(self, batch: Batch, is_in_BWT: Tensor) -> list[Tensor]:
        """Return the words of each layer that is learned, (B, W, D), and last the rows, (B, D)."""
        mask_BT = batch[MASK]
        with torch.autocast(mask_BT.device.type, enabled=False):
            inputs = make_inputs(self.encoder, batch[IDS], mask_BT, None, None)
            hidden: Any = hidden_states(self.encoder, inputs).hidden_states
            words = [pool_words(hidden[layer], is_in_BWT) for layer in self.layers.values()]
            return [*words, self._pool(hidden[-1], mask_BT)]

    def _pool(self, hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        if self.pooling == "mean":
            pooled_BD = masked_mean(hidden_BTD, mask_BT)
        else:
            pooled_BD = take_rows(hidden_BTD, pooled_rows(self.pooling, mask_BT))[:, 0]
        return functional.normalize(pooled_BD.float(), dim=-1)

    def measure_(self, batches: TaughtBatches) -> None:
        """Measure mean and deviation of its vectors on rows from all over the text."""
        count = batches.source.num_rows
        rows = np.unique(np.linspace(0, count - 1, min(count, MEASURED_ROWS)).astype(np.int64))
        parts = [self._measured(batches.collate(chunk)) for chunk in _chunks(rows)]
        self.standards = [Standard.of(torch.cat(vectors)) for vectors in zip(*parts, strict=True)]

    def _measured(self, batch: Batch) -> list[Tensor]:
        """Return the vectors of all words that the teacher has, (N, D), in each layer, and of the rows."""
        batch = {name: batch[name].to(self.encoder.device) for name in TEACHING}
        is_in_BWT = membership(batch[WORDS], batch[OWN_WORDS].shape[1])
        *words, rows = self.vectors(batch, is_in_BWT)
        is_word_BW = is_in_BWT.any(-1)
        return [*(vectors[is_word_BW] for vectors in words), rows]


@dataclass(frozen=True)
class TaughtLoss:
    """The loss of guessed words plus, weighted, what of the teacher's vectors is not explained."""

    teacher: Teacher
    words: float
    rows: float

    guess = GuessLoss()
    call = ModelCall(only_for_loss=guess.call.only_for_loss | TEACHING - {OWN_WORDS})

    def count(self, batch: Batch) -> int:
        return self.guess.count(batch)

    def __call__(self, outputs: Guesses, batch: Batch) -> Tensor:
        words_B, rows_B = self.unexplained(outputs, batch)
        # Each row has the weight of its masked words, so that a batch split in parts keeps its mean.
        taught = mean_over(self.words * words_B + self.rows * rows_B, batch["weights"].sum(1))
        return self.guess(outputs, batch) + taught

    def unexplained(self, outputs: Guesses, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return for each row the mean over its words, and that of the row itself."""
        assert outputs.teacher is not None, "the model has maps to its teacher"
        is_in_BWT = membership(batch[WORDS], batch[OWN_WORDS].shape[1])
        triples = zip(
            self.teacher.standards, outputs.teacher, self.teacher.vectors(batch, is_in_BWT), strict=True
        )
        *errors, rows_B = [standard.unexplained(guessed, true) for standard, guessed, true in triples]
        is_word_BW = is_in_BWT.any(-1)
        # Positions at which no word starts count nothing.
        sums_B = (torch.stack(errors).mean(0) * is_word_BW).sum(1)
        return sums_B / is_word_BW.sum(1).clamp(min=1), rows_B


def attach_maps_(model: Pretraining, teacher: Teacher) -> None:
    """Give the student linear maps to its teacher's vectors, drawn from torch's generator."""
    size = int(model.encoder.config.hidden_size)
    model.maps = TeacherMaps(size, teacher.size, list(teacher.layers))


def make_loss(spec: ObjectiveSpec, teacher: Teacher | None) -> GuessLoss | TaughtLoss:
    """Return the objective of a pretraining, with or without a teacher."""
    return GuessLoss() if teacher is None else TaughtLoss(teacher, spec.teach_words, spec.teach_rows)


def score_taught(
    model: nn.Module, loss: TaughtLoss, held: TaughtBatches, rows: np.ndarray, accelerator: Accelerator
) -> dict[str, float]:
    """Return how much of the teacher's vectors of held-out words and rows is explained, in percent."""
    sums = torch.zeros(2, dtype=torch.float64, device=accelerator.device)
    for chunk in _chunks(rows):
        batch = {name: value.to(accelerator.device) for name, value in held.collate(chunk).items()}
        with torch.inference_mode(), accelerator.autocast():
            parts = loss.unexplained(model(**loss.call.arguments(batch)), batch)
        sums += torch.stack([part.double().sum() for part in parts])
    words, whole = (100 * (1 - sums / len(rows))).tolist()
    return {"words": words, "rows": whole}


def held_objective(loss: TaughtLoss, likelihood: float, taught: dict[str, float]) -> float:
    """Return minus the loss that is trained, on held-out text: it decides which model is the best."""
    left = {name: 1 - value / 100 for name, value in taught.items()}
    return likelihood - loss.words * left["words"] - loss.rows * left["rows"]


def _chunks(rows: np.ndarray) -> Sequence[np.ndarray]:
    return np.array_split(rows, -(-len(rows) // SCORED_ROWS))
