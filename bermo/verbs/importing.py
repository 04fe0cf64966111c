"""What a verb does around its imports of torch and transformers, which make a million objects."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing() -> Iterator[None]:
    """Import without Python's garbage collector, and exclude what was imported from every later collection.

    This is done once in a process. Then transformers' own bars are kept off the screen: progress is shown
    once, by us.
    """
    is_first = gc.isenabled() and not gc.get_freeze_count()
    if is_first:
        gc.disable()
    try:
        yield
    finally:
        if is_first:
            gc.freeze()
            gc.enable()
    from transformers.utils import logging

    logging.disable_progress_bar()
