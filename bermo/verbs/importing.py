"""What a verb does around its imports of torch and transformers, which make a million objects."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from bermo.interrupts import ending_at_once


@contextmanager
def importing() -> Iterator[None]:
    """Import without Python's garbage collector, and exclude what was imported from every later collection.

    Ctrl-C ends the command at once meanwhile. This is done once in a process. Then transformers' own bars are
    kept off the screen: progress is shown once, by us.
    """
    is_first = gc.isenabled() and not gc.get_freeze_count()
    if is_first:
        gc.disable()
    with ending_at_once():
        try:
            yield
        finally:
            if is_first:
                gc.freeze()
                gc.enable()
        from transformers.utils import logging
    logging.disable_progress_bar()
