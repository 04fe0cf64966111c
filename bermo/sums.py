"""checksums.json: what the files of a model's folder were when bermo wrote them, so that a change is noticed.

    write_sums(folder)     the size and CRC-32 of every file in it and below, but for those that anybody may
                           edit
    check_sums(folder)     an error that names the first file which is missing or no longer the same
    sum_ahead_(folder)     begins in a thread with what the next `check_sums` of the folder will ask

A folder without checksums.json, such as a model from elsewhere, is not checked.
"""

import json
from contextlib import suppress
from pathlib import Path, PurePosixPath
from threading import Thread

from bermo.errors import BermoError
from bermo.files import checksum, is_sealed, reading, write_sealed

SUMS_FILE = "checksums.json"
NOT_SUMMED = (SUMS_FILE, "README.md", "example.py")
REMEDY = "Copy the whole folder anew from where it was made"


class Ahead(Thread):
    """Sums the files of a folder. A sum counts while its file is the same one, of the same size and times."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self.path = path
        self.found: dict[Path, tuple[tuple[int, ...], dict[str, int]]] = {}

    def run(self) -> None:
        with suppress(BermoError, OSError):  # said by whoever checks the sums
            for name in _read(self.path, REMEDY):
                file = self.path.parent / name
                self.found[file] = _stamp(file), checksum(file)

    def sum_of(self, file: Path) -> dict[str, int]:
        """Return a file's sum: the one known, where the file has not been touched since."""
        self.join()
        stamp, known = self.found.get(file, ((), {}))
        return known if stamp == _stamp(file) else checksum(file)


AHEAD: dict[Path, Ahead] = {}
"""The sums begun and not asked for yet, by the file of a folder's sums."""


def sum_ahead_(folder: Path) -> None:
    """Begin to sum the files of a folder; the next `check_sums` of it, and no later one, takes the sums."""
    path = folder / SUMS_FILE
    if path.is_file():
        AHEAD[path] = Ahead(path)
        AHEAD[path].start()


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
    ahead = AHEAD.pop(path, None)
    if not path.is_file():
        return
    sum_of = checksum if ahead is None else ahead.sum_of
    for name, expected in _read(path, remedy).items():
        file = path.parent / name
        if not file.is_file() or sum_of(file) != expected:
            how = "damaged, or was changed since it was written" if file.is_file() else "missing"
            raise BermoError(f"{file} is {how}. {remedy}, or delete {path} if that was on purpose.")


def _stamp(file: Path) -> tuple[int, ...]:
    """What changes with a file's content: which file it is, its size, and when it was written or replaced."""
    known = file.stat()
    return known.st_dev, known.st_ino, known.st_size, known.st_mtime_ns, known.st_ctime_ns


def _read(path: Path, remedy: str) -> dict[str, dict[str, int]]:
    with reading(path, f"{remedy}."):
        values = json.loads(path.read_text(encoding="utf-8"))
        if not is_sealed(values):
            raise ValueError("its own sum is another")
        files = dict(values["files"])
        if any(PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts for name in files):
            raise ValueError("it names a file outside of its folder")
        return files
