"""Whether Triton kernels can be built and run on this machine."""

import importlib.util
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Lock

import torch
from torch.nn import functional

IS_LOOKING = Lock()
"""Held while it is found out, by whoever asks first."""


def has_kernels() -> bool:
    """Tell whether Triton is installed and can build kernels for this machine's GPU."""
    return kernel_fault() is None


def kernel_fault() -> str | None:
    """Why there can be no kernels on this machine, or None; with a GPU one kernel is built and run, once.

    Triton may lack a compiler, Python's headers or a folder to write in, or not know the GPU: then torch does
    the work.
    """
    with IS_LOOKING:
        return find_fault()


def look_for_kernels_(device: torch.device) -> None:
    """Begin to find out in a thread, after a first product on the device: cuBLAS sets itself up in it, and
    Triton reads all of its own library before it builds anything.
    """
    looking = ThreadPoolExecutor(1, thread_name_prefix="kernels")
    # An error is raised again where a product, or the answer, is asked for.
    looking.submit(first_product, device)
    looking.submit(kernel_fault)
    looking.shutdown(wait=False)


def first_product(device: torch.device) -> None:
    """Compute a small linear layer in bfloat16, for what libraries do when they are first called."""
    x = torch.ones(16, 16, dtype=torch.bfloat16, device=device)
    functional.linear(x, x, x[0])


@cache
def find_fault() -> str | None:
    """Find out what is wrong with kernels on this machine."""
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    if torch.cuda.is_available():
        from bermo.nn.fast.kernels import try_one

        try:
            try_one(torch.device("cuda"))
        # Compilers, drivers and file systems fail in ways of their own.
        except Exception as error:
            return str(error).strip().partition("\n")[0] or type(error).__name__
    return None
