"""What a verb does around its imports of torch and transformers: thousands of modules, a million objects, none of them garbage."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing() -> Iterator[None]:
    """Import without Python's garbage collector, and let it pass by what was imported: it would walk it now, later and at the end.

    This is done once in a process. Then transformers' own bars are kept off the screen: progress is shown once, by us.
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
