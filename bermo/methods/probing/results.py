"""What the probes of a task found, as a file: written whole, and read again where its rows are the same."""

import math
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

from bermo.errors import BermoError
from bermo.files import read_sealed, reading, write_sealed
from bermo.methods.probing.frozen import Probed
from bermo.methods.probing.words import WordProbed

P = TypeVar("P", Probed, WordProbed)


def write_probed(path: Path, probed: Probed | WordProbed) -> None:
    """Write the results of a task."""
    write_sealed(path, asdict(probed))


def read_probed(path: Path, kind: type[P], expected: str | None = None) -> P | None:
    """Return the written results, or None; results of other rows than the expected ones are an error."""
    if not path.exists():
        return None
    with reading(path, "Delete it, and the same command measures it again."):
        values = read_sealed(path)
        lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
        lists["untrained"] = tuple(math.nan if v is None else v for v in lists["untrained"])
        probed = kind(**(values | lists))
    if expected is not None and probed.digest != expected:
        raise BermoError(f"The data of {path} has changed since. Give another folder with --out.")
    return probed
