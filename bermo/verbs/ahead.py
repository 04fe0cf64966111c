"""What threads do while Python imports: torch's libraries are loaded, a GPU is made ready, and the files of
models are summed.

To load torch's libraries is a quarter of the seconds of its import, and needs no Python. While a library is
loaded, every other load of one waits: so those that are needed anyway come first, and what Python imports
meanwhile should have none.
"""

import ctypes
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

from bermo.errors import BermoError
from bermo.interrupts import is_own_process
from bermo.runs.model_files import find_model
from bermo.sums import sum_ahead_

WITH_LIBRARIES = (
    "numpy",
    "asyncio",
    "decimal",
    "queue",
    "ssl",
    "uuid",
    "markupsafe",
    "regex",
    "tokenizers",
    "yaml",
)
"""What transformers imports before torch, and has a library in it."""
OF_TORCH = ("libtorch_cpu.so", "libtorch_cuda.so")
DRIVER = "libcuda.so.1"


@contextmanager
def loading_libraries() -> Iterator[None]:
    """Load torch's libraries while the block runs, if none is loaded yet; torch is imported after it."""
    files = libraries() if sys.platform == "linux" and "torch" not in sys.modules else []
    load = getattr(ctypes.CDLL(None), "dlopen", None) if files else None
    if load is None:
        yield
        return
    for name in WITH_LIBRARIES:
        with suppress(ImportError):
            importlib.import_module(name)
    # As a function of C's library it runs without the lock of Python's interpreter.
    load.argtypes, load.restype = [ctypes.c_char_p, ctypes.c_int], ctypes.c_void_p

    def load_all() -> None:
        for file in files:  # one that cannot be loaded is looked at when torch is imported
            load(os.fsencode(file), os.RTLD_NOW | os.RTLD_LOCAL)

    thread = Thread(target=load_all, daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def wake_gpu_() -> None:
    """Begin to make the first NVIDIA GPU ready, in the process of a command; torch goes on with what is made.

    The driver takes half a second for it. A GPU that cannot be used is left to torch, which says why.
    """
    if sys.platform != "linux" or not is_own_process():
        return
    # As torch sets it, and the driver reads it once: kernels are loaded when they are first used.
    os.environ.setdefault("CUDA_MODULE_LOADING", "LAZY")
    Thread(target=_make_ready, name="gpu").start()


def _make_ready() -> None:
    try:
        driver = ctypes.CDLL(DRIVER)
    except OSError:
        return
    device, context = ctypes.c_int(), ctypes.c_void_p()
    if driver.cuInit(0) == 0 and driver.cuDeviceGet(ctypes.byref(device), 0) == 0:
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)


def libraries() -> list[Path]:
    """Find torch's libraries without importing torch."""
    found = importlib.util.find_spec("torch")
    folders = found.submodule_search_locations if found is not None else None
    files = [Path(folder, "lib", name) for folder in folders or () for name in OF_TORCH]
    return [file for file in files if file.is_file()]


def sum_models_(folders: Iterable[Path]) -> None:
    """Begin to sum the files of models, in the process of a command.

    What is wrong with a folder is said where it is opened.
    """
    for folder in folders if is_own_process() else ():
        with suppress(BermoError, OSError):
            sum_ahead_(find_model(folder).folder)
