"""The options of an estimator: those of `bermo train` as keyword arguments, made into a spec.

Classifier("box", epochs=3, mix="none", score_lr=1e-2)      bermo train --model box --epochs 3 …
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bermo.aliases import OPTION_ALIASES
from bermo.errors import BermoError, nearest
from bermo.fields import check, leaves
from bermo.spec import RunSpec
from bermo.values import override

OWN = ("out", "verbose")
"""Options of estimators alone."""
LEFT_OUT = ("task", "data", "train", "valid", "hub", "separator", "keep")
"""Options that say what is learned from which files, or that leave no model."""


@dataclass(frozen=True)
class Options:
    """Options as they were given, and the spec that they make."""

    spec: RunSpec
    given: Mapping[str, Any]

    def show(self, name: str) -> str:
        """Write the call that these options are given by."""
        return f"{name}({', '.join(f'{option}={value!r}' for option, value in self.given.items())})"


def read_options(task: str, given: Mapping[str, Any]) -> Options:
    """Read options for a task; `seed` is the one seed, and the folder of a fitted `teacher` is taken."""
    fields = {leaf.flag.replace("-", "_"): leaf for leaf in leaves(RunSpec)}
    known = [name for name in fields if name not in LEFT_OUT]
    spec = override(RunSpec(), "data.task", task)
    for option, value in given.items():
        if option in OWN or (option == "metric" and callable(value)):
            continue
        name, value = ("seeds", (value,)) if option == "seed" else (option, value)
        if name not in known:
            raise BermoError(f'There is no option "{option}".{_meant(option, (*known, *OWN, "seed"))}')
        if option == "model" and value is None:
            raise BermoError(
                'model is None, but a name, a folder or "box" was expected. Leave it out for "box".'
            )
        # None leaves open what is open; the word "none" may be one of the choices.
        if value is not None or fields[name].default is not None:
            spec = override(spec, fields[name].dotted, _text(_folder_of(option, value)), option)
    return Options(check(spec), dict(given))


def _folder_of(option: str, value: Any) -> Any:
    """Return the folder of a fitted estimator, and any other value as it is."""
    if hasattr(value, "folder_"):
        return value.folder_
    if hasattr(value, "get_params"):
        raise BermoError(
            f"{option} is a {type(value).__name__} without a model of bermo. Call its fit first, or give the"
            " folder of a run."
        )
    return value


def _meant(option: str, known: Sequence[str]) -> str:
    """Say which option was meant: by the name that another tool has for it, else the nearest."""
    for flag in OPTION_ALIASES.get(f"--{option.lower().replace('_', '-')}", ()):
        name, _, value = flag.removeprefix("--").partition(" ")
        if (name := name.replace("-", "_")) in known:
            return f' Did you mean "{name}{f"={value!r}" if value else ""}"?'
    return nearest(option, known)


def _text(value: Any) -> str | Sequence[str]:
    """Return a value as the command line would be given it."""
    if isinstance(value, tuple | list):
        return [str(item) for item in value]
    return "none" if value is None else str(value)
