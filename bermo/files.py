"""Files written whole or not at all: write beside the target under a temporary name, sync, rename.

A temporary name holds the machine, the process and a random part, so that containers which share a disk never
write into each other's. What a killed process left is removed when its target is written again.
"""

import errno
import json
import os
import platform
import secrets
import shutil
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from glob import escape as glob_escape
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from bermo.errors import BermoError

SEAL = "crc32"
"""The field of a JSON file that holds the sum over all others."""
SECONDS_OF_A_DAY = 24 * 60 * 60
DAMAGED = (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError)
"""What comes of a file whose text is no JSON, is nested without end, or holds other values than it should."""

POINTER = "is a pointer of Git LFS, not the file itself. Fetch the file with git lfs pull, or download it."


def cache_root(given: str | None) -> Path:
    """Return the folder of all caches: the given one, $BERMO_CACHE, or the user's cache folder."""
    return Path(given or os.environ.get("BERMO_CACHE") or "~/.cache/bermo").expanduser()


def check_place(path: Path, flag: str = "--out") -> None:
    """Refuse a file or folder that cannot be written, before any work is done for it; `flag` named it."""
    if path.is_symlink() and not path.exists():
        raise BermoError(f"{path} is a link to a place that does not exist. Give another with {flag}.")
    known = next(part for part in (path, *path.absolute().parents) if part.exists())
    if known != path and not known.is_dir():
        raise BermoError(f"{known} is a file, so nothing can be written below it. Give another {flag}.")
    may_write = os.access(known, os.W_OK, effective_ids=os.access in os.supports_effective_ids)
    if not may_write or (known != path and not _takes_files(known)):
        raise BermoError(
            f"{known} cannot be written: this user may not, or the disk is read-only. Give another place with"
            f" {flag}."
        )


def _takes_files(folder: Path) -> bool:
    """Try it: even the superuser can make nothing in /proc. A full disk is told later."""
    trial = _temporary(folder / "trial")
    try:
        trial.mkdir()
        trial.rmdir()
    except OSError as error:
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return True


def is_pointer(start: bytes) -> bool:
    """Tell whether a file starts as one that Git LFS leaves in place of a large one."""
    return start.startswith(b"version https://git-lfs.github.com/spec/")


def sync(path: Path) -> None:
    """Flush a file or folder to the disk, so that a rename after it cannot outrun its content."""
    is_windows = os.name == "nt"
    # Windows cannot open a folder as a file, and flushes only what was opened for writing.
    if is_windows and path.is_dir():
        return
    handle = os.open(path, os.O_RDWR if is_windows else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def whole_file(path: Path) -> Iterator[TextIO]:
    """Yield a text file that becomes `path` when the block ends well, replacing what was there."""
    # The same bytes on every system: Windows would end lines with \r\n.
    with _becoming(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as handle:
        yield handle


@contextmanager
def whole_bytes(path: Path) -> Iterator[BinaryIO]:
    """As `whole_file`, for bytes."""
    with _becoming(path) as temporary, temporary.open("wb") as handle:
        yield handle


@contextmanager
def _becoming(path: Path) -> Iterator[Path]:
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(path)
    temporary = _temporary(path)
    try:
        yield temporary
        sync(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path` as a whole."""
    with whole_file(path) as handle:
        handle.write(text)


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON; NaN and infinity become null, which every JSON reader accepts."""
    write_text(path, json.dumps(_finite(value), indent=2, ensure_ascii=False) + "\n")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


@contextmanager
def reading(path: Path, remedy: str) -> Iterator[None]:
    """Turn what is wrong in a file that the block reads into one sentence, which ends with `remedy`."""
    try:
        yield
    except DAMAGED as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise BermoError(f"{path} is damaged ({type(error).__name__}: {reason}). {remedy}") from error


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder that becomes `path` when the block ends well, replacing what was there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    restore(path)
    temporary = _temporary(path)
    old = _old(path)
    temporary.mkdir()
    try:
        yield temporary
        share_tensors_(temporary, temporary)
        for file in temporary.rglob("*"):
            sync(file)
        sync(temporary)
        if path.exists():
            path.rename(old)
        temporary.rename(path)
        sync(path.parent)
    finally:
        restore(path)
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def passing_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `path` for the time of the block; one that a kill left goes too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(path)
    temporary = _temporary(path)
    temporary.mkdir()
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def copy_folder(source: Path, target: Path, copy: Callable[[str, str], object] | None = None) -> None:
    """Copy a folder's files into another; unlike shutil.copytree it ends with the first error as it is."""
    for path in sorted(source.rglob("*")):
        copied = target / path.relative_to(source)
        if path.is_dir():
            copied.mkdir(exist_ok=True)
        else:
            (copy or shutil.copy2)(str(path), str(copied))


def share_tensors_(folder: Path, like: Path) -> None:
    """Let the tensors in a folder be read by whom the file or folder `like`, made under the user's umask, can
    be read by: safetensors makes its files for their owner alone.
    """
    for file in folder.glob("*.safetensors"):
        file.chmod(like.stat().st_mode & 0o666)


def restore(path: Path) -> None:
    """Undo what a killed `whole_folder` left: bring the old folder back, or remove it beside the new one."""
    old = _old(path)
    if path.exists():
        shutil.rmtree(old, ignore_errors=True)
    elif old.exists():
        old.rename(path)
    _remove_leftovers(path)


def is_temporary(path: Path) -> bool:
    """Tell whether a name is one that a write under way, or a killed one, has."""
    return path.name.startswith(".") and path.name.endswith((".tmp", ".old"))


def checksum(file: Path) -> dict[str, int]:
    """Return the size and the CRC-32 of a file, read in blocks into one place: new memory is slower."""
    crc, block = 0, memoryview(bytearray(1 << 20))
    with file.open("rb", buffering=0) as handle:
        while size := handle.readinto(block):
            crc = zlib.crc32(block[:size], crc)
    return {"bytes": file.stat().st_size, "crc32": crc}


def seal(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values` with the CRC-32 of their own text, so that a changed number is noticed."""
    return {**values, SEAL: _text_sum(values)}


def is_sealed(values: Mapping[str, Any]) -> bool:
    """Tell whether values read from JSON are those that `seal` was given."""
    inner = without_seal(values)
    try:
        return values.get(SEAL) == zlib.crc32(json.dumps(inner, sort_keys=True, allow_nan=False).encode())
    except ValueError:  # NaN, which stands for null
        return values.get(SEAL) == _text_sum(inner)


def without_seal(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `seal` was given."""
    return {name: value for name, value in values.items() if name != SEAL}


def unseal(text: str) -> dict[str, Any]:
    """Return the values of a JSON text, without their seal; a ValueError says that they are not those that
    were sealed. A text that has no seal, such as one of an older version, is believed.
    """
    values = dict(json.loads(text))
    if SEAL in values and not is_sealed(values):
        raise ValueError(f"a value is not the one that was written, or {SEAL} is not")
    return without_seal(values)


def write_sealed(path: Path, values: Mapping[str, Any]) -> None:
    """Write values as JSON, with their seal."""
    write_json(path, seal(values))


def read_sealed(path: Path) -> dict[str, Any]:
    """Read what `write_sealed` wrote; to be called inside `reading`."""
    return unseal(path.read_text(encoding="utf-8"))


def _text_sum(values: Mapping[str, Any]) -> int:
    # Through JSON, since numbers and keys may change their type on the way to the disk and back.
    plain = json.loads(json.dumps(_finite(values)))
    return zlib.crc32(json.dumps(plain, sort_keys=True).encode())


def _old(path: Path) -> Path:
    return path.with_name(f".{path.name}.old")


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{_machine()}-{os.getpid()}-{secrets.token_hex(3)}.tmp")


def _machine() -> str:
    return f"{zlib.crc32(platform.node().encode()):08x}"


def _remove_leftovers(path: Path) -> None:
    """Remove temporary files and folders of `path` whose process has ended."""
    for rest in path.parent.glob(f".{glob_escape(path.name)}.*.tmp"):
        if _is_abandoned(rest):
            # Another process may be removing it too.
            shutil.rmtree(rest, ignore_errors=True) if rest.is_dir() else rest.unlink(missing_ok=True)


def _is_abandoned(rest: Path) -> bool:
    machine, _, process = rest.name.removesuffix(".tmp").rpartition(".")[2].partition("-")
    number = process.partition("-")[0]
    if machine == _machine() and number.isdecimal():
        return not _is_alive(int(number))
    # Of another machine that shares the disk, or of an older version: a day is longer than any write.
    try:
        return time.time() - rest.stat().st_mtime > SECONDS_OF_A_DAY
    except FileNotFoundError:  # its write has just ended
        return False


def _is_alive(process: int) -> bool:
    # Not os.kill(process, 0): on Windows that sends Ctrl-C.
    import psutil

    return bool(psutil.pid_exists(process))
