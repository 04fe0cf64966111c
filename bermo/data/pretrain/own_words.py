"""Words of one's own in the vocabulary of a tokenizer that exists: each becomes one piece.

    WordPiece      a piece of its own, so that its endings are pieces after it: "ferritin" -> "ferritin ##s"
    any other,     an added token, found before the text is cut; only where it stands as a whole word
    and "covid-19"

What a word was cut into before is kept, for its vector starts as the mean of theirs.
"""

import copy
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tokenizers import AddedToken, Tokenizer
from transformers import PreTrainedTokenizerBase

# Byte-level and sentence-piece vocabularies count the blank before a word to it.
BLANKS = ("Ġ", "▁")


@dataclass(frozen=True)
class Extended:
    """A tokenizer with more pieces, and by the id of each the ids that stood for it before."""

    tokenizer: PreTrainedTokenizerBase
    cuts: Mapping[int, tuple[int, ...]]


def with_words(tokenizer: PreTrainedTokenizerBase, words: Iterable[str]) -> Extended:
    """Return a copy of a fast tokenizer in which every word is one piece; those that are stay as they are."""
    backend: Any = tokenizer._tokenizer
    normalise = backend.normalizer.normalize_str if backend.normalizer else str
    known = backend.get_vocab(True)
    has_blanks = any(token.startswith(BLANKS) for token in known)
    cuts: dict[str, tuple[int, ...]] = {}
    for word in dict.fromkeys(map(normalise, words)):
        cut = backend.encode(f" {word}" if has_blanks else word, add_special_tokens=False).ids
        if word not in known and (len(cut) > 1 or cut == [tokenizer.unk_token_id]):
            cuts[word] = tuple(cut)
    is_wordpiece = json.loads(backend.to_str())["model"]["type"] == "WordPiece"
    whole = [word for word in cuts if is_wordpiece and _is_whole(backend, word)]
    longer = _add_pieces(backend, whole)
    rest = [word for word in cuts if word not in longer.get_vocab(True)]
    longer.add_tokens([AddedToken(word, single_word=True, lstrip=has_blanks) for word in rest])
    extended = copy.deepcopy(tokenizer)
    extended._tokenizer = longer
    ids = longer.get_vocab(True)
    return Extended(extended, {ids[word]: cut for word, cut in cuts.items()})


def _is_whole(backend: Any, word: str) -> bool:
    """Tell whether a word reaches WordPiece as it is, and is not cut at signs before."""
    return word.startswith("##") or len(backend.pre_tokenizer.pre_tokenize_str(word)) == 1


def _add_pieces(backend: Any, words: list[str]) -> Tokenizer:
    state = json.loads(backend.to_str())
    first = max(backend.get_vocab(True).values()) + 1
    if words:
        state["model"]["vocab"] |= {word: first + index for index, word in enumerate(words)}
    return Tokenizer.from_str(json.dumps(state))
