"""How far a run is, told by its folder alone, so that any machine that sees the disk can say it."""

from collections.abc import Collection
from pathlib import Path
from typing import Literal

from bermo.errors import BermoError
from bermo.files import read_sealed, reading
from bermo.runs.holder import living_holder
from bermo.runs.model_files import RESULT_FILE, SPEC_FILE

State = Literal["to do", "running", "stopped", "done", "diverged", "failed"]
ENDED: tuple[State, ...] = ("done", "diverged")
"""States of a run that has nothing left to do."""


def state_of(folder: Path, seeds: Collection[int]) -> State:
    """Tell how far the run of these seeds is: diverged means that all have ended, and one or more so.

    Whether one that stopped has failed, the folder does not know: whoever started it does.
    """
    if living_holder(folder) is not None:
        return "running"
    ended = _ended(folder / RESULT_FILE)
    if set(seeds) <= ended.keys():
        return "diverged" if any(ended[seed] for seed in seeds) else "done"
    return "stopped" if (folder / SPEC_FILE).exists() else "to do"


def _ended(path: Path) -> dict[int, bool]:
    """Return whether each seed of a result diverged; a result that cannot be read is written again."""
    if not path.exists():
        return {}
    try:
        with reading(path, "The command of the run writes it again."):
            return {int(seed["seed"]): seed["diverged"] is not None for seed in read_sealed(path)["seeds"]}
    except BermoError:
        return {}
