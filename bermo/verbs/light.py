"""Imports of a command that trains or answers, without what transformers takes along for other purposes.

With a model's class transformers imports accelerate, torch's sharded tensors, its compiler (for a handful of
decorators) and scipy: half of all modules, of which a forward pass uses none, and a training by one process
accelerate alone. A process that does nothing else does without them: packages that transformers can miss are
as if not installed, torch has no distributed part, the compiler's decorators give their functions back, and
no model was compiled. Whoever asks the compiler for anything else gets the real one, as with torch.export
(encoders/not_yet.py). A command that answers also leaves out kernels that hardly any model is built with
(encoders/meta_kernels.py). Nor does a command give the memory of freed tensors back to the system at every
step (`keep_memory_`).
"""

import ctypes
import importlib.abc
import os
import sys
from collections.abc import Callable, Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from bermo.encoders import meta_kernels, not_yet
from bermo.interrupts import is_own_process
from bermo.verbs.ahead import loading_libraries

OPTIONAL = ("scipy", "sklearn", "torchvision")
NOT_TO_ANSWER = ("accelerate", "jinja2", "pydot")
"""Packages that an answer can do without too: for loops of training, templates of chats, and drawn graphs."""
NOT_YET: Mapping[str, tuple[str, ...]] = {
    "torch.export": (),
    "torch._dynamo._trace_wrapped_higher_order_op": ("TransformGetItemToIndex",),
}
"""Modules of torch that hardly a command asks for, and their classes that others import by name."""
# Set where a command is one of several processes, by whatever started them.
SEVERAL = ("WORLD_SIZE", "LOCAL_RANK", "PMI_SIZE")
COMPILER = "torch._dynamo"
# Options of mallopt, and the largest value that it takes.
TRIM_THRESHOLD, MMAP_THRESHOLD, LARGEST = -1, -3, 2**31 - 1
Use = Literal["graphs", "answers", "training", "all"]
"""What a command does with torch and transformers; for answers of graphs it imports neither."""
# A module of the compiler that torch imports with functions for gradients; it needs no other one.
BY_ITSELF = frozenset({"torch._dynamo._trace_wrapped_higher_order_op"})
SHARDED = "torch.distributed.tensor"
DECORATORS = frozenset({"disable", "allow_in_graph", "assume_constant_result", "graph_break"})


class OptimizedModule:
    """The class of what the compiler made: of nothing, while it was not imported."""


class CompiledNothing:
    """Stands for the part of torch's compiler that is asked whether a model was compiled."""

    OptimizedModule = OptimizedModule

    def __getattr__(self, name: str) -> Any:
        return getattr(_compiler().eval_frame, name)


class DecoratorsOnly(ModuleType):
    """Stands for torch's compiler until something else than a decorator is asked of it."""

    def __getattr__(self, name: str) -> Any:
        if name in DECORATORS:
            return _same
        if name == "eval_frame":
            return CompiledNothing()
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(_compiler(), name)


class WholeCompiler(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the compiler's modules in the whole compiler, while a stand-in is in its place."""

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if name in BY_ITSELF or not name.startswith(COMPILER + ".") or not _is_left_out():
            return None
        _compiler()
        return ModuleSpec(name, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return importlib.import_module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """It has been executed."""


def _is_left_out() -> bool:
    return isinstance(sys.modules.get(COMPILER), DecoratorsOnly)


def _compiler() -> ModuleType:
    """torch's compiler itself."""
    if _is_left_out():
        del sys.modules[COMPILER]
        sys.modules.pop(SHARDED, None)
    return importlib.import_module(COMPILER)


def _same(function: Callable[..., Any] | None = None, *_: Any, **__: Any) -> Any:
    """A decorator, with or without arguments, that changes nothing."""
    return (lambda other: other) if function is None else function


def leave_out_(use: Use) -> None:
    """Let a process of ours import torch and transformers without what this use does not need."""
    if use in ("all", "graphs") or not is_own_process() or "transformers" in sys.modules:
        return
    if use == "training" and is_of_several():
        return
    for name in OPTIONAL if use == "training" else (*OPTIONAL, *NOT_TO_ANSWER):
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]
    for name, classes in NOT_YET.items():
        not_yet.leave_out_(name, classes)
    if use == "answers":
        meta_kernels.leave_out_()
    with loading_libraries():
        import transformers  # noqa: F401
    import torch
    from torch import distributed

    distributed.is_available = lambda: False
    if COMPILER not in sys.modules:
        stand_in = DecoratorsOnly(COMPILER)
        sys.meta_path.insert(0, WholeCompiler())
        stand_in.__path__ = [str(Path(torch.__path__[0]) / "_dynamo")]
        sys.modules[COMPILER] = stand_in
        sys.modules.setdefault(SHARDED, None)  # type: ignore[arg-type]


def keep_memory_() -> None:
    """Let a process of ours keep the memory of freed tensors for the next ones, unless the user set how.

    By itself glibc gives every large block back to the system, which empties and maps its pages again at the
    next step of a training: 30,000 faults a step of a small encoder.
    """
    is_set = any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ)
    if sys.platform != "linux" or is_set or not is_own_process():
        return
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries have none
    if set_option is not None:
        for option in (MMAP_THRESHOLD, TRIM_THRESHOLD):
            set_option(option, LARGEST)


def is_of_several() -> bool:
    """Tell whether this process was started as one of several, by torch, accelerate or MPI."""
    return any(name.startswith("ACCELERATE_") or name.endswith(SEVERAL) for name in os.environ)
