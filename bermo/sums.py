"""checksums.json: what the files of a model's folder were when bermo wrote them, so that a change is noticed.

    write_sums(folder)     the size and CRC-32 of every file in it and below, but for those that anybody may
                           edit
    check_sums(folder)     an error that names the first file which is missing or no longer the same

A folder without checksums.json, such as a model from elsewhere, is not checked.
"""

import json
from pathlib import Path, PurePosixPath

from bermo.errors import BermoError
from bermo.files import checksum, is_sealed, reading, write_sealed

SUMS_FILE = "checksums.json"
NOT_SUMMED = (SUMS_FILE, "README.md", "example.py")
REMEDY = "Copy the whole folder anew from where it was made"


def write_sums(folder: Path) -> None:
    """Write the sums of a folder's files beside them."""
    files = [file for file in sorted(folder.rglob("*")) if file.is_file() and file.name not in NOT_SUMMED]
    sums = {file.relative_to(folder).as_posix(): checksum(file) for file in files}
    write_sealed(folder / SUMS_FILE, {"files": sums})


def ensure_sums(folder: Path) -> None:
    """Write the sums of a folder that came without them."""
    if not (folder / SUMS_FILE).exists():
        write_sums(folder)


def check_sums(folder: str | Path, remedy: str = REMEDY) -> None:
    """Refuse a folder in which a file is missing or other than it was written; `remedy` says what to do."""
    path = Path(folder) / SUMS_FILE
    if not path.is_file():
        return
    for name, expected in _read(path, remedy).items():
        file = path.parent / name
        if not file.is_file() or checksum(file) != expected:
            how = "damaged, or was changed since it was written" if file.is_file() else "missing"
            raise BermoError(f"{file} is {how}. {remedy}, or delete {path} if that was on purpose.")


def _read(path: Path, remedy: str) -> dict[str, dict[str, int]]:
    with reading(path, f"{remedy}."):
        values = json.loads(path.read_text(encoding="utf-8"))
        if not is_sealed(values):
            raise ValueError("its own sum is another")
        files = dict(values["files"])
        if any(PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts for name in files):
            raise ValueError("it names a file outside of its folder")
        return files
