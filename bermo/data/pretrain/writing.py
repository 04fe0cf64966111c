"""Documents written as token ids: training and held-out text apart, with the ids of a teacher beside ours."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import tee
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from bermo.data.cache import Writer
from bermo.data.pretrain.documents import Fragment, gather
from bermo.data.pretrain.encoding import Encoded, Ints, encode, in_processes, plain_json
from bermo.errors import BermoError

ENCODED = 1_000_000
"""Characters that are tokenised at once: a token takes hundreds of bytes there."""
FEW = 16
"""Fewer chunks than this are tokenised in this process, since starting others takes seconds."""


def write_ids(
    writer: Writer,
    documents: Callable[[], Iterator[Fragment]],
    every: int,
    tokenizers: Sequence[PreTrainedTokenizerBase],
    tell: Callable[[str], None],
) -> Mapping[str, Any]:
    """Tokenise all documents chunk by chunk, on all processors, and append them to their part.

    A second tokenizer is a teacher's: its ids and their owners are written too.
    """
    parts = {part: _Part(writer, part, tokenizers) for part in ("train", "held")}
    number = 0
    chunks, kept = tee(gather(documents(), ENCODED))
    jsons = [plain_json(tokenizer) for tokenizer in tokenizers]
    encode_chunk = partial(_encode_chunk, jsons=jsons)
    for chunk, encodings in zip(kept, in_processes(encode_chunk, chunks, FEW), strict=True):
        for fragment, encoded in zip(chunk, encodings, strict=True):
            part = parts["held" if number % every == every - 1 else "train"]
            part.append(encoded, fragment.is_end)
            number += fragment.is_end
        tell(f"{number:,} documents, {sum(part.length for part in parts.values()):,} tokens …")
    if not all(part.length for part in parts.values()):
        raise BermoError(
            f"The text has {number} documents, too few to keep every {every}th for scoring. Add text,"
            " put blank lines between documents, or raise --held-out."
        )
    unknown, total = (sum(getattr(p, name) for p in parts.values()) for name in ("num_unknown", "length"))
    return {"documents": number, "unknown_share": unknown / max(1, total)}


def _encode_chunk(chunk: list[Fragment], jsons: Sequence[str]) -> list[Encoded]:
    return encode([fragment.text for fragment in chunk], *jsons)


class _Part:
    """Training or held-out text as it is written."""

    def __init__(self, writer: Writer, name: str, tokenizers: Sequence[PreTrainedTokenizerBase]) -> None:
        self.writer, self.name, self.tokenizers = writer, name, tokenizers
        self.length = self.num_unknown = 0
        writer.append(
            {
                name: np.empty(0, _dtype(tokenizers[0])),
                f"{name}_starts": np.zeros(1, np.int64),
            }
        )
        if len(tokenizers) > 1:
            empty = {
                f"{name}_other": np.empty(0, _dtype(tokenizers[1])),
                f"{name}_owners": np.empty(0, np.int64),
            }
            writer.append(empty)

    def append(self, encoded: Encoded, is_end: bool) -> None:
        """Add a fragment of a document, and what stands after a document where it is the last."""
        own = self.tokenizers[0]
        ids = _ended(encoded.ids, own.sep_token_id, is_end)
        if encoded.other_ids is not None and encoded.owners is not None:
            others = _ended(encoded.other_ids, self.tokenizers[1].sep_token_id, is_end)
            owners = self.length + _ended(encoded.owners, len(encoded.ids), is_end)
            self.writer.append({f"{self.name}_other": others, f"{self.name}_owners": owners})
        self.length += len(ids)
        self.writer.append({self.name: ids})
        if is_end:
            self.writer.append({f"{self.name}_starts": np.array([self.length], np.int64)})
        self.num_unknown += int((ids == own.unk_token_id).sum())


def _ended(ids: Ints, end: Any, is_end: bool) -> Ints:
    return np.append(ids, end) if is_end else ids


def _dtype(tokenizer: PreTrainedTokenizerBase) -> type:
    return np.uint16 if len(tokenizer) <= 2**16 else np.uint32
