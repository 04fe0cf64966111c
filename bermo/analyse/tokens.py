"""Texts as padded batches of tokens, with what each token is: special, separator, punctuation, which sentence.

Attention is read per token, so it needs no layer vectors; those come from `bermo.vectors`.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from bermo.backbone import make_inputs

BATCH_SIZE = 16
ENDS = (".", "!", "?")


@dataclass(frozen=True, eq=False)
class TokenBatch:
    """B texts of up to T tokens; all masks are (B, T)."""

    rows: tuple[int, ...]
    input_ids: Tensor
    is_token: Tensor
    is_special: Tensor
    is_punctuation: Tensor
    block: Tensor
    """The number of the sentence that a token stands in."""

    @cached_property
    def is_separator(self) -> Tensor:
        """Special tokens but the first of each text."""
        return self.is_special & ~self.is_first

    @cached_property
    def is_first(self) -> Tensor:
        """The first token of each text, after any padding on the left."""
        return self.is_token & (self.is_token.long().cumsum(1) == 1)

    def __len__(self) -> int:
        return len(self.rows)

    def to(self, device: torch.device | str) -> "TokenBatch":
        """Return the batch on a device."""
        tensors = (self.input_ids, self.is_token, self.is_special, self.is_punctuation, self.block)
        return TokenBatch(self.rows, *(item.to(device) for item in tensors))


class TokenReader:
    """Tokenises texts; remembers of each id whether it is punctuation or ends a sentence."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, max_length: int = 128) -> None:
        self.tokenizer, self.max_length = tokenizer, max_length
        self._kinds: dict[int, tuple[bool, bool]] = {}

    def batches(
        self, texts: Sequence[str], batch_size: int = BATCH_SIZE, max_length: int | None = None
    ) -> Iterator[TokenBatch]:
        """Yield the texts, like lengths together; `rows` says which they are."""
        order = sorted(range(len(texts)), key=lambda row: (-len(texts[row]), row))
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            yield self.batch([texts[row] for row in rows], rows, max_length)

    def batch(
        self, texts: Sequence[str], rows: Sequence[int] | None = None, max_length: int | None = None
    ) -> TokenBatch:
        """Tokenise some texts as one batch."""
        found = self.tokenizer(
            list(texts),
            truncation=True,
            max_length=max_length or self.max_length,
            padding=True,
            return_tensors="pt",
            return_special_tokens_mask=True,
        )
        ids, is_token = found["input_ids"], found["attention_mask"].bool()
        kinds = [[self._kind(token) for token in row] for row in ids.tolist()]
        is_punctuation = torch.tensor([[kind[0] for kind in row] for row in kinds]).reshape(ids.shape)
        ends = torch.tensor([[kind[1] for kind in row] for row in kinds]).reshape(ids.shape)
        ends = ends & is_token
        return TokenBatch(
            rows=tuple(range(len(texts)) if rows is None else rows),
            input_ids=ids,
            is_token=is_token,
            is_special=found["special_tokens_mask"].bool() & is_token,
            is_punctuation=is_punctuation & is_token,
            block=ends.long().cumsum(1) - ends.long(),
        )

    def _kind(self, token: int) -> tuple[bool, bool]:
        if token not in self._kinds:
            special = token in self.tokenizer.all_special_ids
            text = "" if special else self.tokenizer.decode([token]).strip()
            is_punctuation = bool(text) and all(
                unicodedata.category(character)[0] in "PS" for character in text
            )
            self._kinds[token] = (is_punctuation, text in ENDS)
        return self._kinds[token]


def run_encoder(encoder: PreTrainedModel, batch: TokenBatch) -> Tensor:
    """Run a bare encoder on a batch and return its last layer."""
    inputs = make_inputs(encoder, batch.input_ids, batch.is_token, None, None)
    hidden: Tensor = encoder(**inputs).last_hidden_state
    return hidden
