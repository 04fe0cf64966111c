"""torch's kernels for tensors without data, which are written in Python: imported where one is asked for.

A model is built of such tensors before its weights are loaded, and the families that bermo knows are content
with the kernels that torch has in C++. The others, with all that they import, are much of what a command that
only answers would import. Where a model needs one of them, it is built again with all.
"""

from collections.abc import Callable
from typing import TypeVar

from bermo.encoders import not_yet

T = TypeVar("T")
NAME = "torch._meta_registrations"


def leave_out_() -> None:
    """Let torch, which is not imported yet, be imported without these kernels, where it has such a module."""
    not_yet.leave_out_(NAME)


def are_left_out() -> bool:
    """Tell whether torch has been imported without them."""
    return not_yet.is_left_out(NAME)


def with_all_kernels(load: Callable[[], T]) -> T:
    """Load a model; where it needs a kernel that was left out, load it again with all of them."""
    try:
        return load()
    except NotImplementedError:
        if not are_left_out():
            raise
    not_yet.bring_back(NAME)
    return load()
