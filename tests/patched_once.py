"""Triton's interpreter replaces the functions of its language by its own at each launch of a kernel, and puts
them back after it: a fifth of a launch. Where all kernels are interpreted they are replaced once, and stay.
"""

from collections.abc import Callable
from typing import Any

from triton.runtime import interpreter


def patched_once(patch: Callable[..., Any]) -> Callable[..., Any]:
    """Return what replaces the language that a function sees, once for all functions of a module."""
    known: set[int] = set()
    nothing_to_restore = interpreter._LangPatchScope()

    def patch_language(function: Any) -> Any:
        module = id(function.__globals__)
        if module not in known:
            patch(function)
            known.add(module)
        return nothing_to_restore

    return patch_language
