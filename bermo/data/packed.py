"""Files as bytes: plain, or packed by gzip, bzip2 or xz, which are unpacked while they are read.

What a file unpacks to is bounded by the machine's memory, so that a few kilobytes cannot ask for all of it.
"""

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, BinaryIO

from bermo.errors import BermoError, nearest
from bermo.files import POINTER, is_pointer
from bermo.machine import memory_bytes

PACKED: Mapping[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
MEMORY_SHARE = 4
"""A file may unpack to one part in so many of the memory: its rows and tokens must fit beside it."""
BUFFER = 1 << 16
MAGIC = {
    b"\x1f\x8b": ".gz",
    b"BZh": ".bz2",
    b"\xfd7zXZ\x00": ".xz",
    b"PAR1": ".parquet",
}
"""How tables and packed texts start that are no text themselves, and the ending of each."""
ZIP = b"PK\x03\x04"
WORKBOOK = (b"[Content_Types].xml", b"xl/")
"""Parts of a zip file that make it one of Excel's."""
OTHERS = {
    b"\x89PNG\r\n": "an image",
    b"\xff\xd8\xff": "an image",
    b"GIF8": "an image",
    b"%PDF-": "a PDF",
    b"\xd0\xcf\x11\xe0": "a file of an old Word or Excel",
    b"SQLite format 3\0": "a database",
}
"""How files of other programs start."""
PAGES = (b"<!doctype html", b"<html")


def kind_of(path: Path) -> str:
    """Return the ending that names the format, in small letters: .csv for my.csv and for my.csv.gz."""
    return Path(path.stem if path.suffix.lower() in PACKED else path.name).suffix.lower()


ADDRESSES = ("http:/", "https:/", "s3:/", "hf:/")
"""How a path starts that was an address: two slashes are one in it."""


def check_file(path: Path) -> Path:
    """Return `path`, or fail with the nearest file name of its folder."""
    if path.is_file():
        return path
    if path.is_dir():
        raise BermoError(f"{path} is a folder, but a file was expected.")
    if path.exists():
        raise BermoError(
            f"{path} is a pipe or a device, not a file. Save what it holds to a file, and give that; bermo"
            " predict reads texts from its standard input too."
        )
    if path.as_posix().startswith(ADDRESSES):
        raise BermoError(f"{path} is an address, not a file. Download it, and give the file.")
    if not path.parent.is_dir():
        raise BermoError(f"There is no file {path}: the folder {path.parent} does not exist.")
    names = [item.name for item in path.parent.iterdir() if item.is_file()]
    hint = nearest(path.name, names) if names else " The folder is empty."
    raise BermoError(f"There is no file {path}.{hint}")


def open_bytes(path: Path) -> BinaryIO:
    """Open a file for reading, unpacked by its ending."""
    unpack = PACKED.get(check_file(path).suffix.lower())
    try:
        if unpack is None:
            return path.open("rb", buffering=BUFFER)
        return io.BufferedReader(_Unpacked(path, unpack(path, "rb")), BUFFER)
    except OSError as error:
        raise BermoError(f"{path} cannot be read: {error.strerror}.") from None


def check_magic(path: Path, start: bytes) -> None:
    """Refuse a file that is no text although its name says so."""
    ending = next((ending for magic, ending in MAGIC.items() if start.startswith(magic)), None)
    if start.startswith(ZIP):
        if not any(part in start for part in WORKBOOK):
            raise BermoError(f"{path} is a zip archive. Unpack it, and give the file that is in it.")
        ending = ".xlsx"
    what = next((what for magic, what in OTHERS.items() if start.startswith(magic)), None)
    if what is not None:
        raise BermoError(f"{path} is no text: it starts like {what}. Save its rows as a table, such as .csv.")
    if is_pointer(start):
        raise BermoError(f"{path} {POINTER}")
    if kind_of(path) != ".txt" and start.lstrip().lower().startswith(PAGES):
        raise BermoError(
            f"{path} is a web page, not a table: it starts with <html>. Download the file that the page links"
            " to."
        )
    if ending is not None:
        raise BermoError(
            f"{path} is no text: it starts like a {ending} file. Give it a name that ends in {ending}."
        )


def most_bytes() -> int:
    """The bytes that a file may unpack to."""
    return memory_bytes() // MEMORY_SHARE


def check_size(path: Path, size: int) -> None:
    """Refuse what would not fit into this machine's memory when it is unpacked."""
    most = most_bytes()
    if size > most:
        raise BermoError(
            f"{path} unpacks to more than {most / 2**30:.1f} GiB, a quarter of this machine's memory. Is it"
            " damaged or made to fill it? Otherwise give a part of it."
        )


class _Unpacked(io.RawIOBase):
    """The unpacked bytes of a file, counted."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self.path, self.file, self.count = path, file, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            chunk = self.file.read(len(buffer))
        except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
            raise BermoError(f"{self.path} is damaged or is not packed as its name says: {error}.") from None
        self.count += len(chunk)
        check_size(self.path, self.count)
        buffer[: len(chunk)] = chunk
        return len(chunk)

    def close(self) -> None:
        self.file.close()
        super().close()
