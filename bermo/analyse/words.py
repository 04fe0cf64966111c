"""Words of texts: which there are, and one vector for each, the mean of its pieces.

A word's key is the tuple of its piece ids, so that the same spelling is the same word in any text.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from bermo.analyse.curves import MIX
from bermo.vectors import Encoder, TokenVectors

Key = tuple[int, ...]
CHUNK = 256


@dataclass(frozen=True, eq=False)
class Words:
    """The words of a batch: text, position in it, pieces, and their vectors (W, D) at each layer."""

    rows: tuple[int, ...]
    positions: tuple[int, ...]
    keys: tuple[Key, ...]
    vectors: tuple[Tensor, ...]


def has_mix(encoder: Encoder) -> bool:
    """Tell whether the encoder has a mix as wide as a layer, which can be compared with the layers."""
    size = encoder.hidden_size
    return encoder.mix is not None and encoder.mix.output_size(size) == size


def layer_names(encoder: Encoder) -> tuple[str, ...]:
    """Return the names of what is measured: every layer from 0 on, then the mix if there is one."""
    layers = tuple(str(layer) for layer in range(encoder.num_layers))
    return (*layers, MIX) if has_mix(encoder) else layers


def pool_words(batch: TokenVectors) -> Words:
    """Average the pieces of each word of a batch; special tokens and padding are no words."""
    is_piece = batch.is_token & ~batch.is_special & (batch.word_of >= 0)
    text, position = is_piece.nonzero(as_tuple=True)
    word = batch.word_of[text, position]
    width = int(word.max()) + 1 if len(word) else 1
    groups, group = torch.unique(text * width + word, return_inverse=True)
    counts = torch.bincount(group, minlength=len(groups))[:, None]
    pooled = []
    for hidden in batch.vectors:
        sums = torch.zeros(len(groups), hidden.shape[-1], device=hidden.device)
        sums.index_add_(0, group.to(hidden.device), hidden[text, position].float())
        pooled.append(sums / counts.to(hidden.device))
    keys: list[list[int]] = [[] for _ in groups]
    pieces = batch.input_ids[text, position].tolist()
    for index, piece in zip(group.tolist(), pieces, strict=True):
        keys[index].append(piece)
    rows = torch.as_tensor(batch.rows)[(groups // width).cpu()].tolist()
    return Words(
        rows=tuple(rows),
        positions=tuple((groups % width).tolist()),
        keys=tuple(map(tuple, keys)),
        vectors=tuple(pooled),
    )


def word_keys(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], max_length: int
) -> Iterator[list[Key]]:
    """Yield the words of each text, cut to `max_length` tokens, without running any model."""
    for start in range(0, len(texts), CHUNK):
        batch = tokenizer(list(texts[start : start + CHUNK]), truncation=True, max_length=max_length)
        for index, ids in enumerate(batch["input_ids"]):
            pieces_of: dict[int, list[int]] = {}
            for piece, word in zip(ids, batch.word_ids(index), strict=True):
                if word is not None:
                    pieces_of.setdefault(word, []).append(piece)
            yield [tuple(pieces) for pieces in pieces_of.values()]


def frequent_words(
    tokenizer: PreTrainedTokenizerBase,
    texts: Iterable[list[Key]],
    min_texts: int,
    max_words: int,
) -> Mapping[Key, str]:
    """Return words of letters in at least `min_texts` texts: all, or an even choice by frequency."""
    counts = Counter(key for words in texts for key in set(words))
    known = sorted(
        (key for key, count in counts.items() if count >= min_texts),
        key=lambda key: (-counts[key], key),
    )
    named = {key: str(tokenizer.decode(list(key))).strip() for key in known}
    unknown = tokenizer.unk_token_id
    usable = [key for key in known if unknown not in key and any(map(str.isalpha, named[key]))]
    # Every k-th word keeps rare and frequent ones in their proportion.
    step = max(1, -(-len(usable) // max_words))
    return {key: named[key] for key in usable[::step]}
