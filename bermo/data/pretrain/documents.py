"""Documents streamed from text files, plain or packed by xz or gzip; never a whole file in memory.

A blank line ends a block. A block of one short line without a full stop is a title: it opens the document of
the block after it, so that both "title, blank line, paragraphs" and plain blocks of text become
documents. In texts with too few blank lines each line is a document. In a table each row is one (tables.py).

A document comes in fragments of about a million characters, cut at line ends, so that memory does not grow
with the longest one; nor does it with the longest line, which is cut into several.
"""

import gzip
import hashlib
import lzma
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO

from bermo.data.pretrain.tables import TABLES, is_table, row_texts
from bermo.errors import BermoError

SUFFIXES = (".txt", ".xz", ".gz")
MAX_TITLE = 120
BLOCK = 1 << 22
LONGEST_FRAGMENT = 1 << 20
"""Characters of a fragment, which goes on to the end of its last line."""
LONGEST_LINE = 1 << 20
"""Bytes; what is longer is cut at a blank."""
FRAGMENT_COST = 20
"""Characters that take as much memory as what stands beside the tokens of a document, however short."""
BLANKS = b" \t\v\f\r"


@dataclass(frozen=True)
class Fragment:
    """A part of a document; the texts of all fragments up to one that ends it make up the document."""

    text: str
    is_end: bool


def open_text(path: Path) -> IO[bytes]:
    """Open a text file for reading bytes, unpacked by its ending."""
    match path.suffix.lower():
        case ".xz":
            return lzma.open(path, "rb")
        case ".gz":
            return gzip.open(path, "rb")  # type: ignore[return-value]
        case ".txt":
            return path.open("rb")
    raise BermoError(
        f'{path} ends in "{path.suffix}", which is not a text we read. Known:'
        f" {', '.join((*SUFFIXES, *TABLES))}."
    )


def is_one_a_line(files: Iterable[str], fewest: int) -> bool:
    """Tell whether blank lines part the texts into fewer documents than are needed, and line ends do not."""
    return _count(files, fewest) < fewest <= _count(files, fewest, by_line=True)


def _count(files: Iterable[str], most: int, by_line: bool = False) -> int:
    """Count the documents, at most so many."""
    ends = (fragment for fragment in read_fragments(files, by_line=by_line) if fragment.is_end)
    return sum(1 for _ in islice(ends, most))


def read_fragments(
    files: Iterable[str], limit: int | None = None, by_line: bool = False
) -> Iterator[Fragment]:
    """Yield each document as its lines with newlines between, title first, in the order of the files."""
    number = 0
    for name in files:
        for fragment in _read(Path(name).expanduser(), by_line):
            if number == limit:
                return
            number += fragment.is_end
            yield fragment


def _read(path: Path, by_line: bool) -> Iterator[Fragment]:
    if is_table(path):
        return (Fragment(text, is_end=True) for text in row_texts(path))
    lines = _lines(path)
    return _each_line(lines) if by_line else _fragments(lines)


def gather(documents: Iterable[Fragment], size: int) -> Iterator[list[Fragment]]:
    """Gather fragments of documents into lists of about `size` characters."""
    chunk, length = [], 0
    for fragment in documents:
        chunk.append(fragment)
        length += len(fragment.text) + FRAGMENT_COST
        if length >= size:
            yield chunk
            chunk, length = [], 0
    if chunk:
        yield chunk


def _each_line(lines: Iterable[str]) -> Iterator[Fragment]:
    return (Fragment(line, is_end=True) for line in lines if line)


def _fragments(lines: Iterable[str]) -> Iterator[Fragment]:
    title, is_whole = "", True
    for block, is_end in _blocks(lines):
        is_whole = is_whole and is_end
        if is_whole and _is_title(block):
            title = block[0]
            continue
        text = "\n".join([title, *block] if title else block)
        yield Fragment(text if is_end else text + "\n", is_end)
        title, is_whole = "", is_end


def _is_title(block: list[str]) -> bool:
    return len(block) == 1 and len(block[0]) <= MAX_TITLE and block[0][-1] not in ".!?\"'”’:;"


def _blocks(lines: Iterable[str]) -> Iterator[tuple[list[str], bool]]:
    """Yield the lines between blank ones, in parts, and whether a part is the last of its block."""
    block: list[str] = []
    length = 0
    for line in lines:
        if length >= LONGEST_FRAGMENT and line:
            yield block, False
            block, length = [], 0
        if line:
            block.append(line)
            length += len(line)
        elif block:
            yield block, True
            block, length = [], 0
    if block:
        yield block, True


def _lines(path: Path) -> Iterator[str]:
    """Yield every line, its white space made single."""
    try:
        with open_text(path) as file:
            for number, raw in _raw_lines(file):
                yield " ".join(_decoded(path, number, raw).split())
    except (lzma.LZMAError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise BermoError(f"{path} is damaged or is not packed as its name says: {error}") from error


def _raw_lines(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield every line and its number; one that is too long comes in parts."""
    number, rest = 1, b""
    while raw := rest + file.readline(LONGEST_LINE - len(rest)):
        is_whole = raw.endswith(b"\n") or len(raw) < LONGEST_LINE
        end = len(raw) if is_whole else _where_to_cut(raw)
        yield number, raw[:end]
        rest = raw[end:]
        number += is_whole


def _where_to_cut(raw: bytes) -> int:
    """Return the place after the last blank or, in a single word, before the last character of UTF-8."""
    blank = max(raw.rfind(blank) for blank in BLANKS)
    if blank > 0:
        return blank + 1
    starts = (place for place in range(len(raw) - 1, len(raw) - 5, -1) if raw[place] & 0xC0 != 0x80)
    return next(starts, len(raw))


def _decoded(path: Path, number: int, raw: bytes) -> str:
    try:
        return raw.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError:
        raise BermoError(f"{path}, line {number}: this is not UTF-8. Save the text as UTF-8.") from None


def digest_files(files: Iterable[str]) -> str:
    """Return a short name of the files' bytes."""
    digest = hashlib.sha256()
    for name in files:
        with Path(name).expanduser().open("rb") as file:
            while block := file.read(BLOCK):
                digest.update(block)
        digest.update(b"\0")
    return digest.hexdigest()[:16]
