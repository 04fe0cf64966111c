"""Ctrl-C while there is nothing to save yet: one line, and the exit code that says "call again".

SIGTERM and SIGUSR2, by which schedulers announce that a job's time is over, are taken as Ctrl-C.

While packages are imported, a KeyboardInterrupt would come out of a C extension as another error, or as a
traceback. So in that time the command ends at once. One that comes in a finaliser is printed and forgotten by
Python; it is repeated.

The command imports this first, and until then Ctrl-C gives Python's traceback. So this imports only what is
in Python's own program or loaded before us: `signal` takes milliseconds more than `_signal`, which it wraps.
"""

import _signal  # type: ignore[import-not-found]
import _thread
import os
import sys

SECONDS_LATER = 0.05
INTERRUPTED = "Stopped. What was saved is whole; the same command goes on."
STOPPED = 75  # EX_TEMPFAIL of sysexits.h: stopped, and the same command goes on
SIGNALLED = 128  # a command ended by signal N exits with 128 + N, as shells expect
SCHEDULERS = tuple(getattr(_signal, name) for name in ("SIGTERM", "SIGUSR2") if hasattr(_signal, name))
"""Signals that mean the same as Ctrl-C; Windows has no SIGUSR2."""


_PROCESS = {"is_ours": False}


def own_process_() -> None:
    """Say that this process does nothing but run one command."""
    _PROCESS["is_ours"] = True


def is_own_process() -> bool:
    """Tell whether this process does nothing but run one command."""
    return _PROCESS["is_ours"]


def end_at_once() -> bool:
    """Let Ctrl-C end this process at once, unless something else decides on it; tell whether it does now."""
    try:
        if _signal.getsignal(_signal.SIGINT) is not _signal.default_int_handler:
            return False
        _signal.signal(_signal.SIGINT, _end)
        follow_ctrl_c()
    except ValueError:  # not the main thread: whoever runs us there handles signals
        return False
    return True


def follow_ctrl_c() -> None:
    """Let signals of schedulers do what Ctrl-C does, where nothing else decides on them."""
    for number in SCHEDULERS:
        if _signal.getsignal(number) is _signal.SIG_DFL:
            _signal.signal(number, _as_ctrl_c)


def _as_ctrl_c(number: int, frame: object) -> None:
    handler = _signal.getsignal(_signal.SIGINT)
    # A process in the background may ignore Ctrl-C, but not the scheduler.
    if not callable(handler):
        raise KeyboardInterrupt
    handler(number, frame)


def raise_again() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again, where it was set to end the process."""
    if _signal.getsignal(_signal.SIGINT) is _end:
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)


def die_quietly() -> None:
    """Let Ctrl-C, and what schedulers send, end Python without a word when the work is done and only the end
    of the process is left.
    """
    for number in SCHEDULERS:
        if _signal.getsignal(number) is _as_ctrl_c:
            _signal.signal(number, _signal.SIG_DFL)
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)


def repeat_lost() -> None:
    """Let Ctrl-C come again a moment later where Python cannot raise it, as in a finaliser, and drops it."""
    sys.unraisablehook = _repeat


def _repeat(lost: "sys.UnraisableHookArgs") -> None:
    if not isinstance(lost.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(lost)
        return
    from threading import Timer

    again = Timer(SECONDS_LATER, _thread.interrupt_main)
    again.daemon = True
    again.start()


class ending_at_once:
    """Let Ctrl-C end this process at once while the block runs."""

    def __enter__(self) -> None:
        self.is_set = end_at_once()

    def __exit__(self, *ended: object) -> None:
        if self.is_set:
            raise_again()


class ignored:
    """Start processes in this block that Ctrl-C does not reach: it is for the one that started them."""

    def __enter__(self) -> None:
        try:
            self.old = _signal.signal(_signal.SIGINT, _signal.SIG_IGN)
        except ValueError:  # not the main thread
            self.old = None

    def __exit__(self, *ended: object) -> None:
        if self.old is not None:
            _signal.signal(_signal.SIGINT, self.old)


def _end(number: int, frame: object) -> None:
    os.write(2, b"bermo: Stopped.\n")
    os._exit(STOPPED)
