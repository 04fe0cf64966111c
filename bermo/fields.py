"""The fields of a spec: help texts, flags and bounds, declared with the field and checked in one function.

    lr: float = option(3e-5, "learning rate", least=0)     flag --lr, and "lr must be at least 0, but got -1."

A spec is a frozen dataclass whose fields are options or specs. What must hold between several fields stands
in its method `rules`: pairs of a condition and the sentence of the error where it does not hold.
"""

import math
import types
import typing
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Any, Literal, TypeVar

from bermo.errors import BermoError

T = TypeVar("T")
Rules = list[tuple[bool, str]]
REQUIRED: Any = MISSING
"""The default of a field that has none."""


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """The range of a number: `least` and `most` belong to it, `over` and `under` do not."""

    least: float | None = None
    over: float | None = None
    most: float | None = None
    under: float | None = None

    def hold(self, value: float) -> bool:
        """Tell whether the value lies in the range."""
        return (
            (self.least is None or value >= self.least)
            and (self.over is None or value > self.over)
            and (self.most is None or value <= self.most)
            and (self.under is None or value < self.under)
        )

    def __str__(self) -> str:
        words = {"at least": self.least, "over": self.over, "at most": self.most, "under": self.under}
        known = {word: value for word, value in words.items() if value is not None}
        return " and ".join(
            f"{word} {int(value):,}" if value == int(value) else f"{word} {value:g}"
            for word, value in known.items()
        )


@dataclass(frozen=True, kw_only=True)
class Option:
    """The metadata of a field."""

    help: str
    flag: str | None = None
    metavar: str | None = None
    shown: str | None = None
    title: str | None = None
    bounds: Bounds = Bounds()
    is_positional: bool = False
    is_list: bool = False
    is_repeated: bool = False


def option(
    default: Any,
    help: str,
    flag: str | None = None,
    *,
    metavar: str | None = None,
    shown: str | None = None,
    title: str | None = None,
    is_list: bool = False,
    is_repeated: bool = False,
    **bounds: float,
) -> Any:
    """Declare a field with its help text and, where its name would be unclear, its own flag.

    `REQUIRED` as the default means that there is none. `shown` is what the help shows as the default where
    that is worked out later, `title` names the group in the help. A list takes its items as separate words,
    a repeated option one word each time, other tuples one word with commas. `bounds` are the fields of
    `Bounds`.
    """
    known = Option(
        help=help,
        flag=flag,
        metavar=metavar,
        shown=shown,
        title=title,
        bounds=Bounds(**bounds),
        is_list=is_list,
        is_repeated=is_repeated,
    )
    return field(default=default, metadata={"option": known})


def positional(
    help: str, default: Any = REQUIRED, *, metavar: str | None = None, is_list: bool = False
) -> Any:
    """Declare a field that is given by its position on the command line; a list takes all such words."""
    known = Option(help=help, metavar=metavar, is_positional=True, is_list=is_list)
    return field(default=default, metadata={"option": known})


def group(default: Any, title: str) -> Any:
    """Declare a field that is a spec itself, and the title of its options in the help."""
    return field(default=default, metadata={"title": title})


@dataclass(frozen=True, kw_only=True)
class Leaf:
    """One field of a spec as the command line sees it; `default` is REQUIRED where it has none."""

    dotted: str
    flag: str
    option: Option
    default: Any
    hint: Any
    title: str | None

    @property
    def is_switch(self) -> bool:
        """Whether the flag needs no value."""
        return without_none(self.hint) is bool

    @property
    def is_required(self) -> bool:
        return self.default is REQUIRED

    @property
    def shown(self) -> str:
        """The option as a user types it."""
        return self.flag if self.option.is_positional else f"--{self.flag}"

    @property
    def help(self) -> str:
        """The help text with the choices of its type."""
        choices = choices_of(self.hint)
        return self.option.help + (f" ({', '.join(choices)})" if len(choices) > 1 else "")


def leaves(spec: Any, prefix: str = "", title: str | None = None) -> list[Leaf]:
    """List the options of a spec or of its class, those of the specs inside it included, with their flags."""
    hints = typing.get_type_hints(spec if isinstance(spec, type) else type(spec))
    listed: list[Leaf] = []
    for item in fields(spec):
        hint = hints[item.name]
        default = item.default if isinstance(spec, type) else getattr(spec, item.name)
        if is_dataclass(hint):
            inner = hint if default is REQUIRED else default
            listed += leaves(inner, f"{prefix}{item.name}.", item.metadata.get("title", title))
        elif "option" in item.metadata:
            known: Option = item.metadata["option"]
            listed.append(
                Leaf(
                    dotted=prefix + item.name,
                    flag=known.flag or item.name.replace("_", "-"),
                    option=known,
                    default=default,
                    hint=hint,
                    title=known.title or title,
                )
            )
    return listed


def without_none(hint: Any) -> Any:
    """Return X of `X | None`, and any other type as it is."""
    if typing.get_origin(hint) not in (types.UnionType, typing.Union):
        return hint
    rest = [item for item in typing.get_args(hint) if item is not type(None)]
    return rest[0] if len(rest) == 1 else typing.Union[tuple(rest)]  # noqa: UP007


def choices_of(hint: Any) -> list[str]:
    """List the texts of the Literal types inside a type."""
    if typing.get_origin(hint) is Literal:
        return [item for item in typing.get_args(hint) if isinstance(item, str)]
    return [choice for inner in typing.get_args(hint) for choice in choices_of(inner)]


def check(spec: T) -> T:
    """Raise an error for a number that is not finite or out of bounds, or a rule that does not hold; return
    the spec unchanged.
    """
    for leaf in leaves(spec):
        values = leaf.default if isinstance(leaf.default, tuple) else (leaf.default,)
        for value in values:
            if isinstance(value, float) and not math.isfinite(value):
                raise BermoError(f"{leaf.flag} must be a finite number, but got {value}.")
            if isinstance(value, int | float) and not leaf.option.bounds.hold(value):
                raise BermoError(f"{leaf.flag} must be {leaf.option.bounds}, but got {value}.")
    for holds, sentence in _rules(spec):
        if not holds:
            raise BermoError(sentence)
    return spec


def _rules(spec: Any) -> Iterator[tuple[bool, str]]:
    for item in fields(spec):
        value = getattr(spec, item.name)
        if is_dataclass(value):
            yield from _rules(value)
    if hasattr(spec, "rules"):
        yield from spec.rules()
