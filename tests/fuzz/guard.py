"""One call under watch: how it ended, how long it took, what memory it needed, and what it touched.

Only `BermoError` may come out. Nothing may be written, no process started, no address called, no pickle read.
"""

import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from bermo.errors import BermoError

SECONDS = 4.0
"""Of processor time that one input may take."""
MEMORY = 400 << 20
"""Bytes that one input may add to the most that the process ever held."""
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
FORBIDDEN = (
    "os.mkdir",
    "os.rename",
    "os.remove",
    "os.rmdir",
    "os.link",
    "os.symlink",
    "os.truncate",
    "os.chmod",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "subprocess.Popen",
    "socket.connect",
    "socket.getaddrinfo",
    "pickle.find_class",
)
End = Literal["accepted", "refused", "fault"]


class TooLong(BaseException):
    """The input has used up its time."""


@dataclass(frozen=True)
class Outcome:
    """How a reader answered an input; `reason` is the sentence of a refusal, or what the fault is."""

    end: End
    reason: str = ""
    trace: str = ""


class _Watch:
    """Python's audit events while a reader is at work; a hook can never be taken out again."""

    def __init__(self) -> None:
        self.is_on, self.is_hooked = False, False
        self.seen: list[str] = []

    def __call__(self, event: str, values: tuple[Any, ...]) -> None:
        if not self.is_on:
            return
        if event == "open":
            path, _, flags = values
            if isinstance(flags, int) and flags & WRITES and path != os.devnull:
                self.seen.append(f"{path} was opened for writing")
        elif event in FORBIDDEN:
            self.seen.append(f"{event}{values!r:.200}")

    @contextmanager
    def on(self) -> Iterator[None]:
        if not self.is_hooked:
            sys.addaudithook(self)
            self.is_hooked = True
        self.seen, self.is_on = [], True
        try:
            yield
        finally:
            self.is_on = False


WATCH = _Watch()


def guarded(read: Callable[[], object]) -> Outcome:
    """Call a reader and judge what it did."""
    started, memory = time.process_time(), peak()
    outcome = _called(read)
    seconds, grown = time.process_time() - started, peak() - memory
    if WATCH.seen:
        return Outcome("fault", f"it touched what it must not: {WATCH.seen[0]}")
    if outcome.end != "fault" and seconds > SECONDS:
        return Outcome("fault", f"it took more than {SECONDS:g} s of processor time")
    if outcome.end != "fault" and grown > MEMORY:
        return Outcome("fault", f"it took {grown >> 20} MiB of memory")
    return outcome


def _called(read: Callable[[], object]) -> Outcome:
    try:
        with WATCH.on(), _limited():
            read()
    except BermoError as error:
        said = str(error)
        return Outcome("refused", said) if said.strip() else Outcome("fault", "an error without a sentence")
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{os.path.basename(last.filename)}:{last.lineno}"  # noqa: PTH119
        reason = f"{type(error).__name__} at {place}: {str(error)[:200]}"
        return Outcome("fault", reason, traceback.format_exc())
    return Outcome("accepted")


@contextmanager
def _limited() -> Iterator[None]:
    """Raise `TooLong` when the time is used up."""
    before = signal.signal(signal.SIGPROF, _end)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _end(*_: object) -> None:
    raise TooLong(f"more than {SECONDS:g} s of processor time")


def peak() -> int:
    """The most memory in bytes that the process ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
