"""Whether Triton kernels can be built and run on this machine."""

import importlib.util
from functools import cache

import torch


def has_kernels() -> bool:
    """Tell whether Triton is there to write kernels with, and can build them for the card at hand."""
    return kernel_fault() is None


@cache
def kernel_fault() -> str | None:
    """Why there can be no kernels here, or None; on a graphics card one is built and run, once in a process.

    Triton may lack a compiler, Python's headers, a folder to write in, or know too little of the card: then torch does the work.
    """
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    if torch.cuda.is_available():
        from bermo.nn.fast.kernels import try_one

        try:
            try_one(torch.device("cuda"))
        except Exception as error:  # compilers, drivers and file systems fail in ways of their own
            return str(error).strip().partition("\n")[0] or type(error).__name__
    return None
