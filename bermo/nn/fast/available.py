"""Whether Triton kernels can be built and run on this machine."""

import importlib.util
from functools import cache

import torch


def has_kernels() -> bool:
    """Tell whether Triton is installed and can build kernels for this machine's GPU."""
    return kernel_fault() is None


@cache
def kernel_fault() -> str | None:
    """Why there can be no kernels on this machine, or None; with a GPU one kernel is built and run, once.

    Triton may lack a compiler, Python's headers or a folder to write in, or not know the GPU: then torch does
    the work.
    """
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
