"""Imports of a command that only answers, without what transformers takes along to train and to compile.

With a model's class transformers imports accelerate, torch's sharded tensors, its compiler (for a handful of
decorators) and scipy: half of all modules, of which a forward pass uses none. A process that ends with its
answers does without them: packages that transformers can miss are as if not installed, torch has no
distributed part, and the compiler's decorators give their functions back. Whoever asks the compiler for
anything else gets the real one.
"""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

OPTIONAL = ("accelerate", "scipy", "sklearn", "torchvision")
COMPILER = "torch._dynamo"
DECORATORS = frozenset({"disable", "allow_in_graph", "assume_constant_result"})


class DecoratorsOnly(ModuleType):
    """Stands for torch's compiler until something else than a decorator is asked of it."""

    def __getattr__(self, name: str) -> Any:
        if name in DECORATORS:
            return _same
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get(COMPILER) is self:
            del sys.modules[COMPILER]
        return getattr(importlib.import_module(COMPILER), name)


def _same(function: Callable[..., Any] | None = None, *_: Any, **__: Any) -> Any:
    """A decorator, with or without arguments, that changes nothing."""
    return (lambda other: other) if function is None else function


_PROCESS = {"is_ours": False}


def own_process_() -> None:
    """Say that this process does nothing but run one command."""
    _PROCESS["is_ours"] = True


def leave_out_() -> None:
    """Let a process of ours import torch and transformers without what only training needs."""
    if not _PROCESS["is_ours"] or "transformers" in sys.modules:
        return
    for name in OPTIONAL:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]
    import torch
    from torch import distributed

    distributed.is_available = lambda: False
    if COMPILER not in sys.modules:
        stand_in = DecoratorsOnly(COMPILER)
        # Its submodules can be imported by themselves.
        stand_in.__path__ = [str(Path(torch.__path__[0]) / "_dynamo")]
        sys.modules[COMPILER] = stand_in
