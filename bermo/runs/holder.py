"""Who is at work in a folder, so that two never share one, on a disk of this machine or of a network.

The system's lock falls with its process, but on some network disks each machine has locks of its own. So the
holder also writes a file with its machine, its process and a random name, and touches it every few seconds. A
holder of this machine is dead when its process is gone; one of another machine when its file was not touched
for minutes, by the clock of the disk. Whoever takes a dead one's place looks again a moment later whether it
is the only one to do so. A holder whose file another has taken (its machine had been asleep) ends at once.
"""

import json
import os
import platform
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from bermo.errors import FolderHeld
from bermo.files import DAMAGED
from bermo.typed import check_fields

LOCK = ".lock"
HOLDER = ".holder"
OWN_FILES = frozenset({LOCK, HOLDER})
"""Files of a folder that are no content."""
BEAT_SECONDS = 15.0
DEAD_SECONDS = 180.0
"""Without a touch: longer than a network disk may show an old time of a file."""
RACE_SECONDS = 1.0
LOST = "bermo: Another bermo has taken {folder} over, so this one ends. What was saved before is whole.\n"


@dataclass(frozen=True)
class Holder:
    """One process at work in a folder."""

    machine: str
    process: int
    started: float
    name: str


def this_holder() -> Holder:
    """Describe this process."""
    return Holder(_machine(), os.getpid(), _start_of(os.getpid()) or 0.0, secrets.token_hex(8))


def _machine() -> str:
    """Name the machine and, where containers share one, the container."""
    space = ""
    with suppress(OSError):
        space = Path("/proc/self/ns/pid").readlink().name
    return f"{platform.node()} {space}".strip()


def _start_of(process: int) -> float | None:
    """Return when a process started, or None where there is none of this number."""
    import psutil

    try:
        return float(psutil.Process(process).create_time())
    except psutil.Error:
        return None


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold a folder for this process alone; refuse one that another process holds."""
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise FolderHeld(f"Another bermo is at work in {folder}. Wait for it, or stop it.") from None
    try:
        holder = this_holder()
        _take(folder / HOLDER, holder)
        with _beating(folder / HOLDER, holder):
            yield
    finally:
        lock.release()


def _take(path: Path, holder: Holder) -> None:
    """Write the file of the holder, in the place of a dead one's."""
    other = read_holder(path)
    is_replaced = path.exists()
    if is_replaced:
        _check_dead(path, other)
        path.unlink(missing_ok=True)
    try:
        # Made only where there is none, which network disks promise too.
        with path.open("x", encoding="utf-8", newline="\n") as file:
            json.dump(asdict(holder), file)
    except FileExistsError:
        _refuse(path, read_holder(path))
    if is_replaced and other is not None and other.machine != holder.machine:
        time.sleep(RACE_SECONDS)
        if read_holder(path) != holder:
            _refuse(path, read_holder(path))


def read_holder(path: Path) -> Holder | None:
    """Return who wrote the file; None where there is none, or it was not finished."""
    try:
        holder = Holder(**json.loads(path.read_text(encoding="utf-8")))
        check_fields(holder)
    except (OSError, *DAMAGED):
        return None
    return holder if holder.started is not None and 0 < holder.process < 2**31 else None


def living_holder(folder: Path) -> Holder | None:
    """Return the process that is at work in a folder, if there is one."""
    path = folder / HOLDER
    other = read_holder(path)
    return other if other is not None and _is_alive(path, other) else None


def _check_dead(path: Path, other: Holder | None) -> None:
    if other is None:
        return
    is_own = other.machine == _machine() and other.process == os.getpid()
    if not is_own and _is_alive(path, other):
        _refuse(path, other)


def _is_alive(path: Path, other: Holder) -> bool:
    if other.machine != _machine():
        return _age(path) < DEAD_SECONDS
    started = _start_of(other.process)
    return started is not None and abs(started - other.started) < 1


def _age(path: Path) -> float:
    """Return the seconds since a file was touched, by the clock of the disk that it is on."""
    now = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    try:
        now.touch()
        return now.stat().st_mtime - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
    finally:
        now.unlink(missing_ok=True)


def _refuse(path: Path, other: Holder | None) -> None:
    who = "" if other is None else f" (process {other.process} on {other.machine.partition(' ')[0]})"
    raise FolderHeld(
        f"Another bermo is at work in {path.parent}{who}. Wait for it, or stop it; if its machine has died,"
        f" the folder is free {DEAD_SECONDS / 60:.0f} minutes after that."
    )


@contextmanager
def _beating(path: Path, holder: Holder) -> Iterator[None]:
    """Touch the file of the holder while the block runs, and remove it then."""
    ended = threading.Event()
    beat = threading.Thread(target=_beat, args=(path, holder, ended), name="holder", daemon=True)
    beat.start()
    try:
        yield
    finally:
        ended.set()
        beat.join()
        if read_holder(path) == holder:
            path.unlink(missing_ok=True)


def _beat(path: Path, holder: Holder, ended: threading.Event) -> None:
    while not ended.wait(BEAT_SECONDS):
        found = read_holder(path)
        if found == holder:
            with suppress(OSError):
                os.utime(path)
        elif found is not None:
            os.write(2, LOST.format(folder=path.parent).encode())
            os._exit(1)
