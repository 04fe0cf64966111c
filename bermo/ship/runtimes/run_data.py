"""The data of a run, with the folder or files that the user named in place of the run's own."""

from dataclasses import replace

from bermo.data.tasks import OWN
from bermo.errors import BermoError
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
    if changed.task in OWN and changed.train is None and changed.hub is None:
        more = " --data names the folder of a named task." if folder is not None else ""
        raise BermoError(
            "The model does not say on which files it was trained. Name them: --train FILE and --valid FILE."
            + more
        )
    return changed
