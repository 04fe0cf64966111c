"""Rows that a student and its teacher read side by side: the same words, each in tokens of its own.

    own        [CLS] the next T − 2 tokens, some masked [SEP]      words: where each token's word starts
    teacher's  [CLS] its tokens of the same text, unmasked [SEP]   words: the same numbers, −1 outside words

A word is named by the position of its first token in the student's row. What of the teacher's text does not
fit into its S tokens is left out, and so are the words there.

Axes: B rows, T tokens of the student, S tokens of the teacher.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from bermo.data.pretrain.chance import Rows
from bermo.data.pretrain.corpus import Frame, Other
from bermo.data.pretrain.masking import Ids, word_starts
from bermo.data.pretrain.packing import Arrays, PackedBatches, Stream

OWN_WORDS, IDS, MASK, WORDS = "own_words", "teacher_ids", "teacher_mask", "teacher_words"
TEACHING = frozenset({OWN_WORDS, IDS, MASK, WORDS})
"""The tensors of a batch that only a teacher and its loss read."""


@dataclass(frozen=True)
class TaughtBatches:
    """Packed batches that bring along what a teacher reads in rows of `length` tokens."""

    packed: PackedBatches
    frame: Frame
    length: int

    @property
    def source(self) -> Stream:
        """What the student's rows are cut from."""
        assert isinstance(self.packed.source, Stream), "a teacher reads rows of one segment"
        return self.packed.source

    def epoch(self, epoch: int) -> Sequence[np.ndarray]:
        """Return the numbers of each batch's rows."""
        return self.packed.epoch(epoch)

    def collate(self, rows: np.ndarray) -> dict[str, torch.Tensor]:
        """Return the student's tensors and the teacher's."""
        own_BT = word_starts(self.source.pieces, self.source.cut(rows)["input_ids"])
        arrays = {OWN_WORDS: own_BT} | self._teacher_rows(rows, own_BT)
        return self.packed.collate(rows) | {name: torch.from_numpy(a) for name, a in arrays.items()}

    def _teacher_rows(self, rows: Rows, own_BT: Ids) -> Arrays:
        other, first_B = self.source.tokens.other, self.source.first(rows)
        assert other is not None, "the text was tokenised for the teacher too"
        low_B, size_B = self._ranges(other, first_B)
        position_S = np.arange(self.length - 2)
        is_token = position_S < size_B[:, None]
        index = np.minimum(low_B[:, None] + position_S, len(other.ids) - 1)
        owner = other.owners[index] - first_B[:, None] + 1
        word = np.take_along_axis(own_BT, np.clip(owner, 0, own_BT.shape[1] - 1), axis=1)
        ids_BS = np.full((len(rows), self.length), self.frame.pad, dtype=np.int64)
        words_BS = np.full_like(ids_BS, -1)
        ids_BS[:, 0] = self.frame.cls
        ids_BS[:, 1:-1][is_token] = other.ids[index][is_token]
        words_BS[:, 1:-1][is_token] = word[is_token]
        ids_BS[np.arange(len(rows)), size_B + 1] = self.frame.sep
        mask_BS = (np.arange(self.length) < size_B[:, None] + 2).astype(np.int64)
        return {IDS: ids_BS, MASK: mask_BS, WORDS: words_BS}

    def _ranges(self, other: Other, first_B: Ids) -> tuple[Ids, Ids]:
        """Return where the teacher's tokens of each row start, and how many there are room for."""
        low_B = np.searchsorted(other.owners, first_B)
        high_B = np.searchsorted(other.owners, first_B + self.source.length - 2)
        return low_B, np.minimum(high_B - low_B, self.length - 2)
