"""The options that a command keeps in its folder: the same ones go on there, others are refused by name.

A file from before an option existed means the value that was computed with then (`EARLIER_VALUES`), or the
option's default.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bermo.errors import BermoError
from bermo.fields import Leaf
from bermo.files import read_sealed, reading, write_sealed
from bermo.runs.folder import EARLIER_VALUES, check_empty, locked

SPEC = "spec."
"""The group of a run's spec among the options of a command that has others beside it."""

_CHECKSUM = re.compile("[0-9a-f]{64}")


@contextmanager
def locked_for(out: Path, name: str, options: Mapping[str, Any], known: Sequence[Leaf]) -> Iterator[None]:
    """Hold the folder of a command that keeps its options in the file `name`; one of other options, or of
    something else, is refused. `known` are the options as they are typed.
    """
    path, wanted = out / name, _plain(options)
    _check_options(path, wanted, known)
    with locked(out):
        _check_options(path, wanted, known)
        write_sealed(path, wanted)
        yield


def differences(
    old: Mapping[str, Any], new: Mapping[str, Any], defaults: Mapping[str, Any], names: Mapping[str, str]
) -> list[str]:
    """Say of each option in which two files differ what it was and is; of a checksum, what it is of.

    What the old file lacks has its default. An option that only the old file has need not be the same any
    more, unless there is no such option any more.
    """
    before, after = _flat(old), _flat(new)
    changes = []
    for dotted in sorted(before.keys() | after.keys()):
        if dotted not in after and dotted in defaults:
            continue
        was, now = before.get(dotted, defaults.get(dotted)), after.get(dotted)
        if was != now and (_is_checksum(was) or _is_checksum(now)):
            changes.append(f"other {dotted}")
        elif was != now:
            changes.append(f"{names.get(dotted, dotted)} was {_shown(was)}, now {_shown(now)}")
    return changes


def _check_options(path: Path, wanted: Mapping[str, Any], known: Sequence[Leaf]) -> None:
    out = path.parent
    if not path.exists():
        check_empty(out)
        return
    names = {leaf.dotted: leaf.shown for leaf in known}
    with reading(path, "Give another folder with --out."):
        changes = differences(read_sealed(path), wanted, _earlier(known), names)
    if changes:
        raise BermoError(
            f"{out} was started with other options: {'; '.join(changes)}."
            " Give another folder with --out, or the options of then."
        )


def _earlier(known: Sequence[Leaf]) -> dict[str, Any]:
    """Return what each option meant before it existed."""
    defaults = {leaf.dotted: None if leaf.is_required else leaf.default for leaf in known}
    earlier = {
        dotted: EARLIER_VALUES.get(dotted.removeprefix(SPEC), value) for dotted, value in defaults.items()
    }
    plain: dict[str, Any] = _plain(earlier)
    return plain


def _plain(values: Mapping[str, Any]) -> Any:
    return json.loads(json.dumps(values, default=str))


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values of nested objects by their dotted names."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat


def _is_checksum(value: Any) -> bool:
    return isinstance(value, str) and _CHECKSUM.fullmatch(value) is not None


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value)) or "not given"
    return "not given" if value is None else str(value)
