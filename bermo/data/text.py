"""Files as text, whole or line by line: UTF-8 or UTF-16, with or without a byte-order mark.

Lines end in \\n or \\r\\n; in a file that has no \\n at all they end in \\r, as old Mac programs write. Any
other encoding is an error, since nothing in a file says which one it is.
"""

import codecs
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bermo.data.packed import BUFFER, check_magic, open_bytes
from bermo.errors import BermoError

MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
"""Byte-order marks and their encodings; that of UTF-16 is the start of UTF-32's, so it comes later."""
GUESSED = ("utf-16-be", "utf-16-le")
"""What a file without a mark may be in, as its zero bytes say."""


@dataclass(frozen=True)
class Sample:
    """How a file starts: its encoding, its first characters, and whether they are all that it holds."""

    encoding: str
    text: str
    is_whole: bool

    @property
    def line_end(self) -> str:
        return "\r" if "\n" not in self.text and "\r" in self.text else "\n"


def read_sample(path: Path) -> Sample:
    """Read the start of a text file; a file of white space alone, or one that is no text, is an error."""
    with open_bytes(path) as file:
        start = file.read(BUFFER)
        is_whole = not file.read(1)
    check_magic(path, start)
    encoding = _encoding(start)
    sample = Sample(encoding, start.decode(encoding, "ignore"), is_whole)
    if is_whole and not sample.text.strip():
        raise BermoError(f"{path} is empty.")
    return sample


def _encoding(start: bytes) -> str:
    for mark, encoding in MARKS.items():
        if start.startswith(mark):
            return encoding
    # Latin letters in UTF-16 have a zero byte each: the first of the two, or the second.
    least = max(4, 0.4 * (len(start) // 2))
    if start[::2].count(0) > least:
        return "utf-16-be"
    return "utf-16-le" if start[1::2].count(0) > least else "utf-8"


def read_lines(path: Path, sample: Sample, newline: str | None = None) -> Iterator[str]:
    """Yield each line with its end; `newline` "" also ends lines at a \\r that stands alone."""
    end = sample.line_end if newline is None else newline
    with _opened(path, sample.encoding, end) as file:
        yield from file


def read_text(path: Path) -> str:
    """Read a whole file; where \\r alone ends its lines, it becomes \\n."""
    sample = read_sample(path)
    with _opened(path, sample.encoding, "") as file:
        text = file.read()
    if not text.strip():
        raise BermoError(f"{path} is empty.")
    return text.replace("\r", "\n") if "\n" not in text else text


@contextmanager
def _opened(path: Path, encoding: str, newline: str) -> Iterator[io.TextIOWrapper]:
    try:
        with io.TextIOWrapper(open_bytes(path), encoding=encoding, newline=newline) as file:
            yield file
    except UnicodeDecodeError:
        raise _wrong_byte(path, encoding) from None


def _wrong_byte(path: Path, encoding: str) -> BermoError:
    """Return the error that names the first line with a byte that is not UTF-8, and what the line may say."""
    if encoding in GUESSED:
        return BermoError(
            f"{path} is no text, or is cut off: of every two bytes one is mostly zero, but together they are"
            f" not {encoding.upper()}."
        )
    if not encoding.startswith("utf-8"):
        return BermoError(f"{path} is cut off or damaged: it is not whole {encoding.upper()}.")
    with open_bytes(path) as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                around = line[max(0, error.start - 20) : error.start + 20].decode("cp1252", "replace")
                number += line.count(b"\r", 0, error.start)
                return BermoError(
                    f"{path}, line {number}: byte 0x{line[error.start]:02x} is not UTF-8. Save the file as"
                    f' UTF-8. If "{" ".join(around.split())}" is right, it is in Latin-1, and this turns it'
                    " into UTF-8: iconv -f WINDOWS-1252 -t UTF-8 OLD > NEW"
                )
    raise AssertionError("a line that decodes alone decodes in the file")
