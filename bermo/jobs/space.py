"""The space of a search: options of `bermo train`, each with a range or with words to choose from.

lr=1e-5..1e-4,density=0.05..0.3,mix=none|across
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bermo.errors import BermoError, nearest
from bermo.fields import Leaf, check, leaves, without_none
from bermo.spec import RunSpec
from bermo.values import override, parse

LOG_FROM = 10.0
"""A range whose ends are this many times apart is searched by its logarithm."""
HOW = "Write name=low..high or name=one|two, parted by commas, e.g. lr=1e-5..1e-4,mix=none|across."
Value = int | float | str


@dataclass(frozen=True, kw_only=True)
class Range:
    """A number between two, both of which belong to it."""

    name: str
    dotted: str
    low: float
    high: float
    is_whole: bool

    @property
    def is_log(self) -> bool:
        """Whether its logarithm is searched evenly."""
        return self.low > 0 and self.high / self.low >= LOG_FROM


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One of some words."""

    name: str
    dotted: str
    words: tuple[str, ...]


Parameter = Range | Choice


def read_space(text: str, spec: RunSpec) -> tuple[Parameter, ...]:
    """Read a space; every value of it must be one that the option takes."""
    known = {leaf.flag: leaf for leaf in leaves(RunSpec)}
    space = tuple(_read(part, known) for part in text.split(",") if part.strip())
    names = [parameter.name for parameter in space]
    if not space or len(set(names)) < len(names):
        raise BermoError(f'"{text}" is no space: one name or more, each once. {HOW}')
    for parameter in space:
        for value in ends(parameter):
            override(spec, parameter.dotted, _text(parameter, value))
    for index in (0, -1):
        check(corner(spec, space, index))
    return space


def corner(spec: RunSpec, space: Sequence[Parameter], index: int) -> RunSpec:
    """Return the spec with the first (0) or the last (-1) value of each parameter."""
    return set_values(spec, space, {parameter.name: ends(parameter)[index] for parameter in space})


def ends(parameter: Parameter) -> tuple[Value, ...]:
    """Return the ends of a range, or all words of a choice."""
    return parameter.words if isinstance(parameter, Choice) else (parameter.low, parameter.high)


def set_values(spec: RunSpec, space: Sequence[Parameter], values: Mapping[str, Value]) -> RunSpec:
    """Return the spec with the values of a point of the space."""
    for parameter in space:
        spec = override(spec, parameter.dotted, _text(parameter, values[parameter.name]))
    return spec


def _read(part: str, known: Mapping[str, Leaf]) -> Parameter:
    name, equals, rest = part.strip().removeprefix("--").partition("=")
    if not equals or not rest:
        raise BermoError(f'"{part}" is no part of a space. {HOW}')
    if name not in known:
        raise BermoError(f'bermo train has no option "--{name}" to search.{nearest(name, known)}')
    leaf, found = known[name], re.fullmatch(r"(.+?)\.\.(.+)", rest)
    if found is None:
        words = tuple(rest.split("|"))
        if len(set(words)) < 2:
            raise BermoError(f'"{part}" leaves nothing to choose. {HOW}')
        return Choice(name=name, dotted=leaf.dotted, words=words)
    hint = without_none(leaf.hint)
    if hint not in (int, float):
        raise BermoError(f"--{name} takes no number, so {rest} is no range of it. {HOW}")
    low, high = (parse(hint, end, f"--{name}") for end in found.groups())
    if not low < high:
        raise BermoError(f"{rest} of {name} is empty: write the smaller number first.")
    return Range(name=name, dotted=leaf.dotted, low=low, high=high, is_whole=hint is int)


def _text(parameter: Parameter, value: Value) -> str:
    is_whole = isinstance(parameter, Range) and parameter.is_whole
    return str(int(value)) if is_whole else str(value)
