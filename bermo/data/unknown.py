"""The guard against a tokenizer that does not fit the text: the share of unknown tokens, and its cause.

An uncased vocabulary fed with cased text, or a tokenizer file with no words in it, raises no error anywhere;
the model then trains on nothing and scores at chance.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bermo.data.rows import ChoiceRows, Rows, SpanRows, TaggedRows, TextRows
from bermo.encoders.plain_tokenizer import AnyTokenizer, facts_of, plain
from bermo.errors import BermoError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SAMPLE = 2000
"""Texts that are read again to name the cause."""

MOST_OF_TEXT, MOST_OF_WORD = 80, 40
"""Characters of a text, and of an unknown word in it, that a message shows."""

FEW_WORDS = 10
"""A vocabulary with no more entries than this beside its special tokens holds no language."""


@dataclass(frozen=True)
class UnknownCount:
    """Tokens that are not special, and those of them that are unknown."""

    tokens: int
    unknown: int

    @property
    def share(self) -> float:
        """Unknown tokens among all."""
        return self.unknown / self.tokens if self.tokens else 0.0


def check_ids(largest: int, size: int, tokenizer: AnyTokenizer) -> None:
    """Refuse a token that a model has no embedding for: its tokenizer is another model's."""
    if largest >= size:
        token = plain(tokenizer).backend.id_to_token(largest)
        raise BermoError(
            f'The tokenizer gives "{token}" the number {largest}, but the model has embeddings for 0 to'
            f" {size - 1} only. Put the tokenizer that the model was trained with beside it."
        )


def count_unknown(ids: npt.NDArray[np.int32], tokenizer: AnyTokenizer) -> UnknownCount:
    """Count the unknown tokens; a vocabulary of bytes has none."""
    facts = facts_of(tokenizer)
    special = [token for token in facts.special_ids if token != facts.unknown_id]
    tokens = int(np.sum(~np.isin(ids, special)))
    return UnknownCount(tokens, 0 if facts.unknown_id is None else int(np.sum(ids == facts.unknown_id)))


def check_unknown(share: float, limit: float, rows: Rows, tokenizer: "PreTrainedTokenizerBase") -> None:
    """Refuse text of which more than `limit` is unknown, with examples and the likely cause."""
    if share <= limit:
        return
    shown = "\n".join(f"  {line}" for line in islice(_examples(rows, tokenizer), 3))
    raise BermoError(
        f"{share:.1%} of the tokens are unknown to the tokenizer, and at most {limit:.1%} may be."
        f" Likely cause: {_cause(share, rows, tokenizer)}\n{shown}\n"
        "Where this is wanted, raise the limit with --max-unknown."
    )


def _texts(rows: Rows) -> Iterator[str]:
    match rows:
        case TextRows():
            yield from chain(*zip(rows.first, *([rows.second] if rows.second else []), strict=True))
        case ChoiceRows():
            yield from chain(*([a, *b] for a, b in zip(rows.first, rows.endings, strict=True)))
        case TaggedRows():
            yield from (" ".join(words) for words in rows.words)
        case SpanRows():
            yield from chain(*zip(rows.questions, rows.contexts, strict=True))


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most] + "…"


def _examples(rows: Rows, tokenizer: "PreTrainedTokenizerBase") -> Iterator[str]:
    """Yield texts that have unknown words, each with the first few of these."""
    for text in _texts(rows):
        batch = tokenizer(text, return_offsets_mapping=True, add_special_tokens=False, verbose=False)
        pairs = zip(batch["input_ids"], batch["offset_mapping"], strict=True)
        words = [text[a:b] for token, (a, b) in pairs if token == tokenizer.unk_token_id]
        if words:
            first = dict.fromkeys(_short(word, MOST_OF_WORD) for word in words[:8])
            yield f'"{_short(text, MOST_OF_TEXT)}": unknown are {", ".join(first)}'


def _cause(share: float, rows: Rows, tokenizer: "PreTrainedTokenizerBase") -> str:
    words = len(tokenizer) - len(set(tokenizer.all_special_ids))
    if words <= FEW_WORDS:
        return (
            f"wrong tokenizer file: its vocabulary has {max(words, 0)} entries beside the special tokens."
            " Load the tokenizer.json that belongs to the model."
        )
    sample = list(islice(_texts(rows), SAMPLE))
    before = _share(sample, tokenizer)
    after = _share([text.lower() for text in sample], tokenizer)
    if after < before / 2:
        return (
            "cased text on an uncased vocabulary: the tokenizer does not lower-case (in lower case"
            f" {after:.1%} of the same texts would be unknown). Set do_lower_case to true, or give"
            " lower-cased text."
        )
    return (
        "the text is in another language or script than the vocabulary, or the tokenizer is another model's."
    )


def _share(texts: Sequence[str], tokenizer: "PreTrainedTokenizerBase") -> float:
    batch = tokenizer(list(texts), add_special_tokens=False, verbose=False)
    ids = np.fromiter(chain.from_iterable(batch["input_ids"]), dtype=np.int32)
    return count_unknown(ids, tokenizer).share
