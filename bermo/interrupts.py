"""Ctrl-C while there is nothing to save yet: one line, and the exit code that says "call again".

SIGTERM and SIGUSR2, by which schedulers announce that a job's time is over, are taken as Ctrl-C.

While packages are imported, a KeyboardInterrupt would come out of a C extension as another error, or as a
traceback. So in that time the command ends at once. One that comes in a finaliser is printed and forgotten by
Python; it is repeated.
"""

import _thread
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SECONDS_LATER = 0.05
STOPPED = 75  # EX_TEMPFAIL of sysexits.h: stopped, and the same command goes on
SIGNALLED = 128  # a command ended by signal N exits with 128 + N, as shells expect
SCHEDULERS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGUSR2") if hasattr(signal, name))
"""Signals that mean the same as Ctrl-C; Windows has no SIGUSR2."""


def end_at_once() -> bool:
    """Let Ctrl-C end this process at once, unless something else decides on it; tell whether it does now."""
    try:
        if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            return False
        signal.signal(signal.SIGINT, _end)
        follow_ctrl_c()
    except ValueError:  # not the main thread: whoever runs us there handles signals
        return False
    return True


def follow_ctrl_c() -> None:
    """Let signals of schedulers do what Ctrl-C does, where nothing else decides on them."""
    for number in SCHEDULERS:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _as_ctrl_c)


def _as_ctrl_c(number: int, frame: Any) -> None:
    handler = signal.getsignal(signal.SIGINT)
    # A process in the background may ignore Ctrl-C, but not the scheduler.
    if not callable(handler):
        raise KeyboardInterrupt
    handler(number, frame)


def raise_again() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again, where it was set to end the process."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def die_quietly() -> None:
    """Let Ctrl-C, and what schedulers send, end Python without a word when the work is done and only the end
    of the process is left.
    """
    for number in SCHEDULERS:
        if signal.getsignal(number) is _as_ctrl_c:
            signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def repeat_lost() -> None:
    """Let Ctrl-C come again a moment later where Python cannot raise it, as in a finaliser, and drops it."""
    sys.unraisablehook = _repeat


def _repeat(lost: "sys.UnraisableHookArgs") -> None:
    if not isinstance(lost.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(lost)
        return
    again = threading.Timer(SECONDS_LATER, _thread.interrupt_main)
    again.daemon = True
    again.start()


@contextmanager
def ending_at_once() -> Iterator[None]:
    """Let Ctrl-C end this process at once while the block runs."""
    is_set = end_at_once()
    try:
        yield
    finally:
        if is_set:
            raise_again()


@contextmanager
def ignored() -> Iterator[None]:
    """Start processes in this block that Ctrl-C does not reach: it is for the one that started them."""
    try:
        old = signal.signal(signal.SIGINT, signal.SIG_IGN)
    except ValueError:
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, old)


def _end(number: int, frame: Any) -> None:
    os.write(2, b"bermo: Stopped.\n")
    os._exit(STOPPED)
