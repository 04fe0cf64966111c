"""torch's kernels for tensors without data, which are written in Python: imported where one is asked for.

A model is built of such tensors before its weights are loaded, and the families that bermo knows are content
with the kernels that torch has in C++. The others, with all that they import, are much of what a command that
only answers would import. Where a model needs one of them, it is built again with all.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

T = TypeVar("T")
NAME = "torch._meta_registrations"


class NotYet(ModuleType):
    """Stands for the kernels until something of them is asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        bring_back_()
        return getattr(sys.modules[NAME], name)


def leave_out_() -> None:
    """Let torch, which is not imported yet, be imported without these kernels, where it has such a module."""
    found = importlib.util.find_spec("torch")
    places = found.submodule_search_locations if found is not None else None
    is_there = any((Path(place) / f"{NAME.partition('.')[2]}.py").is_file() for place in places or ())
    if is_there and "torch" not in sys.modules:
        sys.modules.setdefault(NAME, NotYet(NAME))


def are_left_out() -> bool:
    """Tell whether torch has been imported without them."""
    return isinstance(sys.modules.get(NAME), NotYet)


def bring_back_() -> None:
    """Import them after all."""
    if are_left_out():
        del sys.modules[NAME]
        importlib.import_module(NAME)


def with_all_kernels(load: Callable[[], T]) -> T:
    """Load a model; where it needs a kernel that was left out, load it again with all of them."""
    try:
        return load()
    except NotImplementedError:
        if not are_left_out():
            raise
    bring_back_()
    return load()
