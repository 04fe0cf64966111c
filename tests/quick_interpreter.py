"""Triton's interpreter with less Python around each operation, and the same results.

By itself it replaces the functions of its language at each launch of a kernel and puts them back after it,
builds the types of each value anew, with a table of numpy's types at each cast, and looks for overflows of
integers by ten operations of its own for each of a kernel's, only to say nothing of them. Here the functions
are replaced once and stay, types are kept, and an overflow is an error.
"""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from triton.language import core
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter

OPERATIONS = {"add": operator.add, "sub": operator.sub, "mul": operator.mul}
Shape = tuple[int, ...]


def make_quick_(patch: pytest.MonkeyPatch) -> None:
    """Replace what is slow."""
    patch.setattr(interpreter, "_patch_lang", patched_once(interpreter._patch_lang))
    patch.setattr(interpreter, "_patch_lang_tensor", countable(interpreter._patch_lang_tensor))
    patch.setattr(interpreter, "_get_np_dtype", kept_types(interpreter._get_np_dtype))
    patch.setattr(core.block_type, "__init__", kept_blocks(core.block_type.__init__))
    patch.setattr(core.tensor, "__init__", kept_shapes(core.tensor.__init__))
    patch.setattr(TritonSemantic, "broadcast_impl_value", alike_or(TritonSemantic.broadcast_impl_value))
    patch.setattr(TritonSemantic, "binary_op_sanitize_overflow_impl", find_overflow)


def patched_once(replace: Callable[..., Any]) -> Callable[..., Any]:
    """Return what replaces the language that a function sees, once for all functions of a module."""
    known: set[int] = set()
    nothing_to_restore = interpreter._LangPatchScope()

    def patch_language(function: Any) -> Any:
        module = id(function.__globals__)
        if module not in known:
            replace(function)
            known.add(module)
        return nothing_to_restore

    return patch_language


def countable(replace: Callable[..., None]) -> Callable[..., None]:
    """Return what replaces the functions of a value; one that was given at run time may end a range."""

    def patch_tensor(tensor: Any, scope: Any) -> None:
        replace(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    return patch_tensor


def kept_types(find: Callable[[Any], np.dtype]) -> Callable[[Any], np.dtype]:
    """Return what gives numpy's type for one of Triton's, whose name says all of it."""
    known: dict[str, np.dtype] = {}

    def numpy_type(kind: Any) -> np.dtype:
        name = kind.scalar.name
        if name not in known:
            known[name] = find(kind)
        return known[name]

    return numpy_type


def kept_blocks(make: Callable[..., None]) -> Callable[..., None]:
    """Return what makes the type of a block; those of one shape and kind share all."""
    known: dict[tuple[str, Shape], dict[str, Any]] = {}
    shapes: dict[Shape, Any] = {}

    def init(self: Any, element_ty: Any, shape: Any) -> None:
        sizes = tuple(shape)
        if not all(type(size) is int for size in sizes):
            make(self, element_ty, shape)
            return
        key = element_ty.name, sizes
        if key not in known:
            make(self, element_ty, shape)
            self.shape = shapes.setdefault(sizes, self.shape)
            known[key] = vars(self)
        else:
            self.__dict__ = known[key]

    return init


def kept_shapes(make: Callable[..., None]) -> Callable[..., None]:
    """Return what makes a value; those of one shape share it."""
    known: dict[Shape, tuple[Any, Any]] = {}

    def init(self: Any, handle: Any, kind: Any) -> None:
        sizes = tuple(kind.shape) if kind.is_block() else ()
        if sizes not in known:
            make(self, handle, kind)
            known[sizes] = self.shape, self.numel
            return
        self.handle, self.type, self.dtype = handle, kind, kind.scalar
        self.shape, self.numel = known[sizes]

    return init


def alike_or(broadcast: Callable[..., Any]) -> Callable[..., Any]:
    """Return what gives two values one shape, and finds at once that they have it."""

    def broadcast_unless_alike(self: Any, left: Any, right: Any) -> Any:
        one, other = left.type, right.type
        blocks = one.is_block() + other.is_block()
        is_alike = blocks == 0 or (blocks == 2 and one.shape is other.shape)
        return (left, right) if is_alike else broadcast(self, left, right)

    return broadcast_unless_alike


def find_overflow(self: Any, left: Any, right: Any, operation: Callable[..., Any]) -> None:
    """Refuse integers whose sum, difference or product has more bits than they have."""
    kind = left.type.scalar
    if kind.int_bitwidth >= 64 or not self.builder.options.sanitize_overflow:
        return
    name = operation.__name__
    both = (value.handle.data.astype(np.int64) for value in (left, right))
    found = OPERATIONS[name](*both)
    lies_within = (kind.get_int_min_value() <= found) & (found <= kind.get_int_max_value())
    assert lies_within.all(), f"int{kind.int_bitwidth} overflow detected for operation {name}"
