"""Flat arrays on disk: written by appending, whole or not at all, and read memory-mapped.

A folder holds one .npy file for each array and facts.json with the type, shape and CRC-32 of each and its own
CRC-32; a folder in which one of them differs is torn, and is built again. No array is ever pickled.
"""

import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from bermo import files
from bermo.errors import BermoError

Arrays = Mapping[str, npt.NDArray[Any]]


class Appender:
    """A .npy file that grows along its first axis; numpy's header leaves room for the final length."""

    def __init__(self, path: Path, dtype: npt.DTypeLike, tail: tuple[int, ...] = ()) -> None:
        self.dtype, self.tail, self.length, self.crc32 = np.dtype(dtype), tail, 0, 0
        self._file: IO[bytes] = path.open("wb")
        self._write_header()
        self._header_size = self._file.tell()

    def _write_header(self) -> None:
        header = {
            "descr": np.lib.format.dtype_to_descr(self.dtype),
            "fortran_order": False,
            "shape": (self.length, *self.tail),
        }
        np.lib.format.write_array_header_1_0(self._file, header)

    def append(self, values: npt.NDArray[Any]) -> None:
        """Add rows at the end."""
        values = np.ascontiguousarray(values, dtype=self.dtype)
        assert values.shape[1:] == self.tail, f"rows of shape {self.tail}, got {values.shape[1:]}"
        content = values.tobytes()
        self.crc32 = zlib.crc32(content, self.crc32)
        self._file.write(content)
        self.length += len(values)

    def finish(self) -> None:
        """Write the final length into the header and close the file."""
        self._file.seek(0)
        self._write_header()
        assert self._file.tell() == self._header_size, "the header must keep its size"
        self.close()

    def close(self) -> None:
        """Close the file, finished or not."""
        self._file.close()


class Writer:
    """The arrays of one folder; an array is opened by its first rows."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._appenders: dict[str, Appender] = {}

    def append(self, arrays: Arrays) -> None:
        """Add rows to each of the named arrays."""
        for name, values in arrays.items():
            if name not in self._appenders:
                path = self._folder / f"{name}.npy"
                self._appenders[name] = Appender(path, values.dtype, values.shape[1:])
            self._appenders[name].append(values)

    def finish(self, facts: Mapping[str, Any]) -> None:
        """Finish the arrays and write their types, shapes and sums, with the facts given."""
        for appender in self._appenders.values():
            appender.finish()
        shapes = {
            name: [appender.dtype.str, appender.length, *appender.tail]
            for name, appender in self._appenders.items()
        }
        sums = {name: appender.crc32 for name, appender in self._appenders.items()}
        sealed = files.seal({**facts, "arrays": shapes, "sums": sums})
        files.write_json(self._folder / "facts.json", sealed)

    def close(self) -> None:
        """Close all files, finished or not."""
        for appender in self._appenders.values():
            appender.close()


class MemoryWriter:
    """The same in memory, for rows that are read once."""

    def __init__(self) -> None:
        self._parts: dict[str, list[npt.NDArray[Any]]] = {}

    def append(self, arrays: Arrays) -> None:
        """Add rows to each of the named arrays."""
        for name, values in arrays.items():
            self._parts.setdefault(name, []).append(values)

    def arrays(self) -> Arrays:
        """Return the arrays, their rows end to end."""
        return {name: np.concatenate(parts) for name, parts in self._parts.items()}


@dataclass(frozen=True)
class Cached:
    """Memory-mapped arrays and the facts written with them."""

    arrays: Arrays
    facts: Mapping[str, Any]


NO_ARRAY = (SyntaxError, TokenError)
"""What numpy raises of a header that is no Python value."""


def read_cache(folder: Path) -> Cached | None:
    """Return what a folder holds, or None where it is missing or torn."""
    try:
        facts = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
        if not files.is_sealed(facts):
            return None
        arrays = {
            name: _open(folder / f"{name}.npy", shape, facts["sums"][name])
            for name, shape in facts["arrays"].items()
        }
    except (OSError, EOFError, *NO_ARRAY, *files.DAMAGED):
        return None
    return Cached(arrays, facts)


def _open(path: Path, expected: list[Any], crc32: int) -> npt.NDArray[Any]:
    array: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    if [array.dtype.str, *array.shape] != expected:
        raise ValueError(f"{path} has shape {array.shape} of {array.dtype}, not {expected}")
    if array.size and zlib.crc32(array.reshape(-1).view(np.uint8).data) != crc32:
        raise ValueError(f"{path} is damaged")
    return array


class _BuiltElsewhere(Exception):
    """Another process has finished the same cache first; ours is thrown away."""


def open_cache(folder: Path, build: Callable[[Writer], Mapping[str, Any]]) -> Cached:
    """Return the arrays of `folder`, building them first where they are missing or torn.

    Processes that build the same folder at once write the same bytes, each under its own temporary name;
    the first to finish wins, and a loser of the race reads the winner's.
    """
    failure: OSError | None = None
    for _ in range(3):
        cached = read_cache(folder)
        if cached is not None:
            return cached
        try:
            _build(folder, build)
        except _BuiltElsewhere:
            continue
        except OSError as error:
            failure = error
    cached = read_cache(folder)
    if cached is None:
        raise BermoError(
            f"The token cache {folder} could not be written: {failure}. Free space, or name another"
            " folder with --cache."
        )
    return cached


def _build(folder: Path, build: Callable[[Writer], Mapping[str, Any]]) -> None:
    with files.whole_folder(folder) as temporary:
        writer = Writer(temporary)
        try:
            writer.finish(build(writer))
        finally:
            writer.close()
        if read_cache(folder) is not None:
            raise _BuiltElsewhere
