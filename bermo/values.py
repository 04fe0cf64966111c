"""The values of a spec's fields, read from texts or JSON and checked by the field's type; a spec as JSON."""

import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from bermo.errors import BermoError, nearest
from bermo.fields import leaves, without_none

T = TypeVar("T")
Text = str | Sequence[str]
TRUE, FALSE = ("true", "yes", "1"), ("false", "no", "0")


def to_dict(spec: Any) -> Any:
    """Turn a spec into plain JSON values."""
    if is_dataclass(spec) and not isinstance(spec, type):
        return {item.name: to_dict(getattr(spec, item.name)) for item in fields(spec)}
    if isinstance(spec, tuple):
        return [to_dict(item) for item in spec]
    return str(spec) if isinstance(spec, Path) else spec


def from_dict(kind: type[T], values: Mapping[str, Any]) -> T:
    """Build a spec of the given class from plain values; an unknown name is an error."""
    hints = typing.get_type_hints(kind)
    if not isinstance(values, Mapping):
        names = ", ".join(item.name for item in fields(kind))
        raise BermoError(
            f"{kind.__name__} must be an object with the fields {names}, but got {values!r:.80}."
        )
    for name in values:
        _check_name(kind, name)
    built = {
        name: from_dict(hints[name], value)
        if is_dataclass(hints[name])
        else _from_plain(hints[name], value, name)
        for name, value in values.items()
    }
    return kind(**built)


def normal(spec: T) -> T:
    """Return a spec that was built in Python as the command line would: paths as texts, lists as tuples.

    A value of a wrong type is an error.
    """
    return from_dict(type(spec), to_dict(spec))


def from_texts(kind: type[T], texts: Mapping[str, Text]) -> T:
    """Build a spec from the texts of its options by dotted name; fields without one have their default."""
    shown = {leaf.dotted: leaf.shown for leaf in leaves(kind)}
    return _from_texts(kind, None, texts, shown, "")


def _from_texts(
    kind: type[T], start: T | None, texts: Mapping[str, Text], shown: Mapping[str, str], prefix: str
) -> T:
    """Read the fields whose dotted names start with `prefix`; the others are as in `start`, if given."""
    hints = typing.get_type_hints(kind)
    built: dict[str, Any] = {}
    for item in fields(kind):  # type: ignore[arg-type]
        dotted = prefix + item.name
        known = item.default if start is None else getattr(start, item.name)
        if is_dataclass(hints[item.name]):
            inner: Any = None if known is MISSING else known
            built[item.name] = _from_texts(hints[item.name], inner, texts, shown, dotted + ".")
        elif dotted in texts:
            built[item.name] = _read(item.name, hints[item.name], texts[dotted], shown[dotted], known)
    return kind(**built) if start is None else replace(start, **built)  # type: ignore[type-var]


def override(spec: T, dotted: str, text: Text, shown: str | None = None) -> T:
    """Return `spec` with the field at a dotted path (`train.lr`) read from `text`; errors call it `shown`."""
    shown = shown or dotted
    head, _, rest = dotted.partition(".")
    _check_name(type(spec), head)
    hint = typing.get_type_hints(type(spec))[head]
    known = getattr(spec, head)
    if not is_dataclass(hint):
        value = _read(head, hint, text, shown, known)
    elif rest:
        value = override(known, rest, text, shown)
    else:
        names = ", ".join(f"{head}.{item.name}" for item in fields(hint))
        raise BermoError(f'"{head}" is a group of fields. Set one of them: {names}.')
    return replace(spec, **{head: value})  # type: ignore[type-var]


def _check_name(kind: type, name: str) -> None:
    names = [item.name for item in fields(kind)]
    if name not in names:
        raise BermoError(f'{kind.__name__} has no field "{name}".{nearest(name, names)}')


def _read(name: str, hint: Any, text: Text, shown: str, known: Any) -> Any:
    """Read a text as the value of a field. For seeds, a single number is how many."""
    if name == "seeds" and typing.get_origin(hint) is tuple and isinstance(text, str):
        return parse_seeds(text, known)
    return parse(hint, text, shown)


def parse(hint: Any, text: Text, name: str) -> Any:
    """Read the text of an option as a value of the type; a tuple's items are words, or parted by commas."""
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return _parse_union(hint, text, name)
    if typing.get_origin(hint) is tuple:
        items = [item.strip() for item in text.split(",") if item] if isinstance(text, str) else text
        if not items:
            raise BermoError(f"{name} is empty. Give one value or more, parted by commas.")
        # An empty text is one too: it is answered as an empty row is.
        return tuple(item if arguments[0] is str else parse(arguments[0], item, name) for item in items)
    text = str(text)
    if hint in (str, Path) and not text.strip():
        raise BermoError(f"{name} is empty. Give a value; is a variable of the shell not set?")
    if typing.get_origin(hint) is Literal:
        if text not in arguments:
            raise BermoError(f'{name} cannot be "{text}".{nearest(text, arguments)}')
        return text
    if hint is bool:
        if text.lower() in TRUE + FALSE:
            return text.lower() in TRUE
        raise BermoError(f'{name} must be true or false, but got "{text}".')
    try:
        return hint(text)
    except ValueError:
        kind = "a whole number" if hint is int else "a number"
        raise BermoError(f'{name} must be {kind}, but got "{text}".') from None


def _parse_union(hint: Any, text: Text, name: str) -> Any:
    """Read a word of a Literal as itself, "none" as None where allowed, anything else as the other type."""
    members = typing.get_args(hint)
    if any(typing.get_origin(item) is Literal and text in typing.get_args(item) for item in members):
        return text
    if type(None) in members:
        if isinstance(text, str) and text.lower() == "none":
            return None
        return parse(without_none(hint), text, name)
    return parse(next(item for item in members if typing.get_origin(item) is not Literal), text, name)


def parse_seeds(text: str, known: tuple[int, ...]) -> tuple[int, ...]:
    """Read "9,25" as those seeds, and "5" as five: the known ones first, then the next free numbers."""
    numbers: tuple[int, ...] = parse(tuple[int, ...], text, "seeds")
    if len(numbers) != 1 or "," in text:
        return numbers
    if not 1 <= numbers[0] <= 1000:
        raise BermoError(f'seeds must be 1 to 1000, or a list such as "9,25", but got "{text}".')
    free = (seed for seed in range(1, 2001) if seed not in known)
    return tuple(known[k] if k < len(known) else next(free) for k in range(numbers[0]))


def _from_plain(hint: Any, value: Any, name: str) -> Any:
    """Check a plain value by reading its text, so that files and flags obey the same rules."""
    if value is None:
        if type(None) not in typing.get_args(hint):
            raise BermoError(f"{name} has no value. Give one, or leave the field out.")
        return None
    if isinstance(value, list | tuple):
        inner = next((o for o in typing.get_args(hint) if typing.get_origin(o) is tuple), hint)
        if typing.get_origin(inner) is not tuple:
            raise BermoError(f"{name} must be one value, but got a list of {len(value)}.")
        return tuple(parse(typing.get_args(inner)[0], str(item), name) for item in value)
    return parse(hint, str(value), name)
