"""Batches of tokens with what each token is: first, separator, punctuation, and the sentence it stands in."""

import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from bermo.encoders.backbone import make_inputs
from bermo.vectors import Encoder
from bermo.vectors.stream import Batch, Text, batches

ENDS = (".", "!", "?")


@dataclass(frozen=True, eq=False)
class Tokens:
    """A batch of B texts of up to T tokens; all masks are (B, T)."""

    batch: Batch
    is_token: Tensor
    is_first: Tensor
    is_separator: Tensor
    """Special tokens but the first of each text."""
    is_punctuation: Tensor
    sentence: Tensor
    """The number of the sentence that a token stands in; a full stop belongs to the one it ends."""


class TokenKinds:
    """Remembers of each id of a vocabulary whether it is punctuation and whether it ends a sentence."""

    def __init__(self, encoder: Encoder) -> None:
        self.tokenizer = encoder.tokenizer
        self.special = set(self.tokenizer.all_special_ids)
        self._known: dict[int, tuple[bool, bool]] = {}

    def of(self, token: int) -> tuple[bool, bool]:
        """Return whether an id is punctuation, and whether it ends a sentence."""
        if token not in self._known:
            text = "" if token in self.special else str(self.tokenizer.decode([token])).strip()
            kinds = {unicodedata.category(character)[0] for character in text}
            self._known[token] = (bool(kinds) and kinds <= {"P", "S"}, text in ENDS)
        return self._known[token]

    def read(self, batch: Batch) -> Tokens:
        """Say of each token of a batch what it is."""
        is_token, special = batch.mask.bool(), batch.special
        assert special is not None, "batches say which tokens are special"
        is_first = is_token & (is_token.long().cumsum(1) == 1)
        kinds = torch.tensor([[self.of(token) for token in row] for row in batch.input_ids.tolist()])
        is_punctuation, ends = (kinds.to(is_token.device) & is_token[..., None]).unbind(-1)
        return Tokens(
            batch=batch,
            is_token=is_token,
            is_first=is_first,
            is_separator=special.bool() & is_token & ~is_first,
            is_punctuation=is_punctuation,
            sentence=ends.long().cumsum(1) - ends.long(),
        )


def token_batches(
    encoder: Encoder, texts: Iterable[Text], max_length: int, batch_size: int = 16
) -> Iterator[Tokens]:
    """Yield the texts as batches of tokens."""
    kinds = TokenKinds(encoder)
    for batch in batches(encoder, texts, max_length, batch_size):
        yield kinds.read(batch)


def run_encoder(encoder: Encoder, batch: Batch) -> Tensor:
    """Run the bare encoder on a batch and return its last layer."""
    inputs = make_inputs(encoder.backbone, batch.input_ids, batch.mask, batch.segments, None)
    hidden: Tensor = encoder.backbone(**inputs).last_hidden_state
    return hidden
