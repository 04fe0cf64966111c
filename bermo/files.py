"""Files written whole or not at all: write beside the target under a temporary name, sync, rename."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def cache_root(given: str | None) -> Path:
    """Return the folder of all caches: the given one, $BERMO_CACHE, or the user's cache folder."""
    return Path(given or os.environ.get("BERMO_CACHE") or "~/.cache/bermo").expanduser()


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


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path` as a whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        # The same bytes on every system: Windows would end lines with \r\n.
        temporary.write_text(text, encoding="utf-8", newline="\n")
        sync(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


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
def whole_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder that becomes `path` when the block ends well, replacing what was there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    restore(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    old = _old(path)
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        yield temporary
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


def restore(path: Path) -> None:
    """Undo what a killed `whole_folder` left: bring the old folder back, or remove it beside the new one."""
    old = _old(path)
    if path.exists():
        shutil.rmtree(old, ignore_errors=True)
    elif old.exists():
        old.rename(path)
    for rest in path.parent.glob(f".{path.name}.*.tmp"):
        if not _is_alive(int(rest.name.split(".")[-2])):
            shutil.rmtree(rest, ignore_errors=True)


def _old(path: Path) -> Path:
    return path.with_name(f".{path.name}.old")


def _is_alive(process: int) -> bool:
    # Not os.kill(process, 0): on Windows that sends Ctrl-C.
    import psutil

    return bool(psutil.pid_exists(process))
