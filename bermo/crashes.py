"""What ended a command, as one sentence: the disk, the memory, or what nobody expected.

The traceback of an unexpected error goes into a file, which the sentence names.
"""

import errno
import os
import platform
import re
import secrets
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path

from bermo.files import cache_root, write_text

NUM_KEPT = 20
LONGEST = 400
"""Characters of an error's own message that the sentence shows."""
SAVED = "What was saved before is whole: make room, and the same command goes on."
MEMORY = (
    "There is not enough memory for this. Try a smaller --batch-size or --max-length, or fewer rows with"
    " --limit."
)
LOST_PROCESS = (
    "Another process of this training has ended, so this one cannot go on. What was saved is whole: start all"
    " of them by the same command, and they go on."
)
REASONS: Mapping[int, str] = {
    errno.ENOSPC: f"The disk is full{{at}}. {SAVED}",
    errno.EDQUOT: f"Your quota on the disk is used up{{at}}. {SAVED}",
    errno.EROFS: "The disk is read-only{at}. Give a path on a disk that can be written.",
    errno.EACCES: "{path} may not be read or written by this user. Change its permissions, or give another.",
    errno.EPERM: "{path} may not be changed by this user. Change its permissions, or give another.",
    errno.EIO: "The disk failed{at}. Copy what is on it to another one, and run the same command there.",
    errno.ENAMETOOLONG: "The name {path} is too long for this disk. Give a shorter one.",
    errno.ELOOP: "{path} is a link that leads back to itself. Give the file or folder that is meant.",
    errno.ENOTDIR: "{path} leads through a file as if it were a folder. Give another path.",
}
"""What failures of the system mean, by their number; their tracebacks tell nothing more."""
LOST = re.compile(
    r"\[.*gloo/|\bNCCL\b|ProcessGroup|recvValue failed|Broken pipe|Connection (closed|reset)", re.I
)
OUT_OF_MEMORY = re.compile(r"out of memory|can't allocate memory|cannot allocate memory|bad_alloc", re.I)


def was_interrupted(error: BaseException) -> bool:
    """Tell whether Ctrl-C is what began the error: libraries catch it and raise errors of their own."""
    return any(isinstance(item, KeyboardInterrupt) for item in _chain(error))


def describe(error: BaseException) -> str:
    """Return one sentence about an error that is not ours; the traceback of an unexpected one is kept."""
    if isinstance(error, MemoryError) or OUT_OF_MEMORY.search(str(error)):
        return MEMORY
    if _is_of_group(error) and LOST.search(str(error)):
        return LOST_PROCESS
    number, path = _system_failure(error)
    if number is not None and number in REASONS:
        return REASONS[number].format(path=path or "A file", at=f" at {path}" if path else "")
    first = str(error).strip().partition("\n")[0][:LONGEST].rstrip(".")
    reason = f"{type(error).__name__}: {first}" if first else type(error).__name__
    file = _write_traceback(error)
    where = "" if file is None else f' The traceback is in {file}; send it with what "bermo doctor" prints.'
    return f"This failed in a way that bermo did not expect: {reason}.{where}"


def _is_of_group(error: BaseException) -> bool:
    """Tell whether an error came while several processes trained as one."""
    return isinstance(error, RuntimeError) and int(os.environ.get("WORLD_SIZE", "1")) > 1


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and those that it was raised from, or while handling."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def _system_failure(error: BaseException) -> tuple[int | None, str | None]:
    """The number of the system's error and its path; libraries in Rust tell the number in their text."""
    if isinstance(error, OSError):
        path = error.filename if error.filename is not None else error.filename2
        return error.errno, os.fsdecode(path) if isinstance(path, str | bytes) else None
    told = re.search(r"\(os error (\d+)\)", str(error))
    return (int(told[1]) if told else None), None


def _write_traceback(error: BaseException) -> Path | None:
    """Write the traceback beside the caches, or where temporary files go; None where neither can be."""
    text = "\n".join(
        [
            f"bermo {' '.join(sys.argv[1:])}",
            f"Python {platform.python_version()}, {platform.platform()}",
            "",
            *(part.rstrip("\n") for part in traceback.format_exception(error)),
            "",
        ]
    )
    # A random part, since containers that share a cache have the same numbers of processes.
    name = f"traceback-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{secrets.token_hex(2)}.txt"
    for folder in (cache_root(None) / "tracebacks", Path(tempfile.gettempdir())):
        try:
            write_text(folder / name, text)
        except (OSError, UnicodeError):
            continue
        for old in sorted(folder.glob("traceback-*.txt"))[:-NUM_KEPT]:
            old.unlink(missing_ok=True)
        return folder / name
    return None
