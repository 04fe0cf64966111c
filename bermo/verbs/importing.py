"""What a verb does around its imports of torch and transformers, which make a million objects."""

import gc
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Event, Thread

from bermo.encoders.quick_import import quick_imports
from bermo.interrupts import ending_at_once
from bermo.verbs.ahead import sum_models_
from bermo.verbs.light import Use, leave_out_

WAIT = "loading torch"
HAS_FROZEN = Event()
"""Set once this is done: to count what is frozen is a walk through all of it."""


@contextmanager
def importing(use: Use = "all") -> Iterator[None]:
    """Import quickly (encoders/quick_import.py), without Python's garbage collector, and exclude what was
    imported from every later collection.

    A command that trains alone, or only answers, leaves out what it does not need (light.py). Ctrl-C ends
    the command at once meanwhile, and a terminal shows the seconds. This is done once in a process. Then
    transformers' own bars, where it is imported, are kept off the screen: progress is shown once, by us.
    """
    is_first = gc.isenabled() and not HAS_FROZEN.is_set()
    if is_first:
        gc.disable()
    counting = nullcontext() if use == "graphs" else _counting_seconds()
    with ending_at_once(), counting, quick_imports():
        try:
            leave_out_(use)
            yield
        finally:
            if is_first:
                gc.freeze()
                HAS_FROZEN.set()
                gc.enable()
        if use == "graphs":
            return
        from transformers.utils import logging
    logging.disable_progress_bar()


@contextmanager
def importing_answers(*folders: Path) -> Iterator[None]:
    """Import what the models in these folders answer with: torch and transformers, or neither where all are
    exports that say how they read texts.
    """
    from bermo.runs.reading import needs_torch

    sum_models_(folders)
    has_torch = needs_torch(*folders)
    with importing("answers" if has_torch else "graphs"):
        if has_torch:
            import bermo.runs.loading
            import bermo.ship.runtimes.torch_candidate  # noqa: F401
        yield


@contextmanager
def _counting_seconds() -> Iterator[None]:
    """Show on a terminal, from the first second on, how long the block takes; leave nothing on the line."""
    if not sys.stderr.isatty():
        yield
        return
    is_over, started = Event(), time.monotonic()

    def count() -> None:
        while not is_over.wait(1.0):
            print(f"\r{WAIT} … {time.monotonic() - started:.0f} s ", end="", file=sys.stderr, flush=True)

    counter = Thread(target=count, daemon=True)
    counter.start()
    try:
        yield
    finally:
        is_over.set()
        counter.join()
        print("\r" + " " * (len(WAIT) + 12) + "\r", end="", file=sys.stderr, flush=True)
