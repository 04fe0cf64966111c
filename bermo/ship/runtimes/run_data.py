"""The data of a run, with the folder or files that the user named in place of the run's own."""

from dataclasses import replace

from bermo.data.tasks import OWN
from bermo.spec import DataSpec


def with_files(
    data: DataSpec, kind: str, folder: str | None, train: str | None, valid: str | None
) -> DataSpec:
    """Return a run's data with what the user named; own files take the place of a named task's folder."""
    given = {"folder": folder, "train": train, "valid": valid}
    changes = {name: value for name, value in given.items() if value is not None}
    changed = replace(data, **changes)  # type: ignore[arg-type]
    if folder is None and (train or valid) and data.task not in OWN:
        return replace(changed, task=f"own/{kind}", folder=None)
    return changed
