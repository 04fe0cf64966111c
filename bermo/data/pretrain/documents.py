"""Documents streamed from text files, plain or packed by xz or gzip; never a whole file in memory.

A blank line ends a block. A block of one short line without a full stop is a title: it opens the document of
the block after it, so that both "title, blank line, paragraphs" and plain blocks of text become
documents. In texts with too few blank lines each line is a document.
"""

import gzip
import hashlib
import lzma
import zlib
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO

from bermo.errors import BermoError

SUFFIXES = (".txt", ".xz", ".gz")
MAX_TITLE = 120
BLOCK = 1 << 22


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
        f'{path} ends in "{path.suffix}", which is not a text we read. Known: {", ".join(SUFFIXES)}.'
    )


def is_one_a_line(files: Iterable[str], fewest: int) -> bool:
    """Tell whether blank lines part the texts into fewer documents than are needed, and line ends do not."""
    return len(_first(files, fewest)) < fewest <= len(_first(files, fewest, by_line=True))


def _first(files: Iterable[str], count: int, by_line: bool = False) -> list[str]:
    return list(islice(read_documents(files, by_line=by_line), count))


def read_documents(files: Iterable[str], limit: int | None = None, by_line: bool = False) -> Iterator[str]:
    """Yield each document as its lines joined by newlines, title first, in the order of the files."""
    number = 0
    for name in files:
        lines = _lines(Path(name).expanduser())
        for document in filter(None, lines) if by_line else _documents(lines):
            if number == limit:
                return
            number += 1
            yield document


def _documents(lines: Iterable[str]) -> Iterator[str]:
    title = ""
    for block in _blocks(lines):
        if _is_title(block):
            title = block[0]
            continue
        yield "\n".join([title, *block] if title else block)
        title = ""


def _is_title(block: list[str]) -> bool:
    return len(block) == 1 and len(block[0]) <= MAX_TITLE and block[0][-1] not in ".!?\"'”’:;"


def _blocks(lines: Iterable[str]) -> Iterator[list[str]]:
    """Yield the lines between blank ones."""
    block: list[str] = []
    for line in lines:
        if line:
            block.append(line)
        elif block:
            yield block
            block = []
    if block:
        yield block


def _lines(path: Path) -> Iterator[str]:
    """Yield every line, its white space made single."""
    try:
        with open_text(path) as file:
            for number, raw in enumerate(file, start=1):
                yield " ".join(_decoded(path, number, raw).split())
    except (lzma.LZMAError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise BermoError(f"{path} is damaged or is not packed as its name says: {error}") from error


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
