"""Whether the values of a dataclass, as they were read from a file, are of the types that it declares."""

import math
import types
import typing
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any

LARGEST = 1e300
"""A number beyond this is none that was measured: sums and axes of such overflow. Infinity, and what is not a
number, are drawn as gaps."""


def check_fields(value: Any) -> None:
    """Raise a `TypeError` that names the first field of a dataclass whose value is of another type."""
    hints = _hints(value.__class__)
    for item in fields(value):
        found = getattr(value, item.name)
        if not fits(found, hints[item.name]):
            shown = "too large" if isinstance(found, int) else f"{found!r:.60}"
            raise TypeError(f"{item.name} is {shown}")


@cache
def _hints(kind: type) -> dict[str, Any]:
    """The types of a class's fields, looked up once: ten thousand results are read in a page of runs."""
    return typing.get_type_hints(kind)


@cache
def _parts(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    return typing.get_origin(hint), typing.get_args(hint)


def fits(value: Any, hint: Any) -> bool:
    """Tell whether a value is of a type such as `tuple[float, ...]` or `Mapping[str, str]`.

    None is a number too, where the file has null for one that is not finite.
    """
    origin, inner = _parts(hint)
    if hint is Any:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, part) for part in inner)
    if origin in (Mapping, dict):
        return isinstance(value, dict) and all(
            fits(key, inner[0]) and fits(item, inner[1]) for key, item in value.items()
        )
    if origin in (tuple, list):
        return isinstance(value, origin) and _fit_items(value, inner)
    if hint is float:
        is_large = isinstance(value, float) and LARGEST <= abs(value) < math.inf
        return value is None or fits(value, int) or (isinstance(value, float) and not is_large)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < LARGEST
    return isinstance(value, hint)


def _fit_items(value: tuple[Any, ...] | list[Any], inner: tuple[Any, ...]) -> bool:
    if isinstance(value, list) or inner[-1] is Ellipsis:
        return all(fits(item, inner[0]) for item in value)
    return len(value) == len(inner) and all(map(fits, value, inner))
