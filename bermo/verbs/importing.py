"""What a verb does around its imports of torch and transformers: thousands of modules, a million objects, none of them garbage."""

import ctypes
import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing(device: str = "cpu") -> Iterator[None]:
    """Import without Python's garbage collector, and let it pass by what was imported: it would walk it now, later and at the end.

    This is done once in a process. Then transformers' own bars are kept off the screen: progress is shown once, by us. With the device
    "auto" a graphics card, where there is one, wakes up meanwhile.
    """
    if device == "auto":
        threading.Thread(target=wake_card, daemon=True).start()
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


def wake_card() -> None:
    """Make the context of this process's card, which torch then finds: the driver needs seconds for it, and no Python."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:  # no driver, no card
        return
    context = ctypes.c_void_p()
    if driver.cuInit(0) == 0:
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), int(os.environ.get("LOCAL_RANK", 0)))
