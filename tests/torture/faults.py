"""What is done to a command: a signal at a time or at its n-th change of a file, or a disk that fails."""

import errno
import signal
from dataclasses import dataclass
from random import Random
from typing import Literal

Moment = Literal["before", "after", "half"]
MOMENTS: tuple[Moment, ...] = ("before", "after", "half")
"""Before the call, after it, or after half of what it writes; the shim knows them by their index."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A signal, or an error of the system, at a moment of a command."""

    name: str
    """The row of the table that it counts in."""
    signal: int = 0
    error: int = 0
    at: int = 0
    """The call that is hit, counted from 1; 0: the signal comes at a time."""
    again: int = 0
    """A later call at which the signal comes once more."""
    moment: Moment = "before"
    is_lasting: bool = False
    """Whether the disk fails from that call on, or once."""
    seconds: tuple[float, ...] = ()
    """When the signal comes, in seconds after the start."""

    def described(self, hit: str) -> str:
        """Say what it does and when; `hit` is the call of the system that it came at."""
        if self.seconds:
            return f"{self.name} ({', '.join(f'{at:.3f} s' for at in self.seconds)})"
        again = f" and {self.again}" if self.again else ""
        lasting = ", lasting" if self.is_lasting else ""
        return f"{self.name} ({self.moment} {self.at}{again}{lasting}: {hit or 'not reached'})"


NONE = Fault(name="none")


@dataclass(frozen=True, kw_only=True)
class Sort:
    """A row of the table: which signal or error, and whether at a call or at a time."""

    name: str
    signal: int = 0
    error: int = 0
    is_timed: bool = False
    times: int = 1
    """How often the signal comes."""


KILLS = (
    Sort(name="KILL at a write", signal=signal.SIGKILL),
    Sort(name="KILL at a time", signal=signal.SIGKILL, is_timed=True),
    Sort(name="TERM at a write", signal=signal.SIGTERM),
    Sort(name="TERM at a time", signal=signal.SIGTERM, is_timed=True),
    Sort(name="INT at a write", signal=signal.SIGINT),
    Sort(name="INT at a time", signal=signal.SIGINT, is_timed=True),
    Sort(name="INT twice", signal=signal.SIGINT, times=2),
    Sort(name="INT twice at a time", signal=signal.SIGINT, times=2, is_timed=True),
    Sort(name="STOP, CONT", signal=signal.SIGSTOP, is_timed=True),
)
DISKS = (
    Sort(name="disk full", error=errno.ENOSPC),
    Sort(name="disk fails", error=errno.EIO),
    Sort(name="disk read-only", error=errno.EROFS),
    Sort(name="quota used up", error=errno.EDQUOT),
)
LONGEST_GAP = 12
"""Calls between two signals of one fault."""


def draw(sort: Sort, calls: int, seconds: float, random: Random) -> Fault:
    """Choose a moment of a command that makes so many calls in so many seconds."""
    if sort.is_timed:
        times = sorted(random.uniform(0, seconds) for _ in range(sort.times))
        return Fault(name=sort.name, signal=sort.signal, seconds=tuple(times))
    at = random.randint(1, max(1, calls))
    return Fault(
        name=sort.name,
        signal=sort.signal,
        error=sort.error,
        at=at,
        again=at + random.randint(1, LONGEST_GAP) if sort.times > 1 else 0,
        moment=random.choice(MOMENTS),
        is_lasting=bool(sort.error) and random.random() < 0.7,
    )
