"""The journal of a search: what optuna changed, a sealed JSON object a line.

optuna's own file takes a lock that a kill leaves behind, and believes every line. Here the folder's lock
keeps other processes out, a last line that a kill tore does not count, and any other that changed is named.
Files of earlier versions, in which no line is sealed, are read as they are.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from optuna.storages.journal import BaseJournalBackend

from bermo.files import SEAL, reading, seal, unseal, write_text

REMEDY = "Restore it, or delete the folder: the search then starts anew."
Log = dict[str, Any]


class Journal(BaseJournalBackend):
    """A file of one process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.logs, self.is_stale = _read(path) if path.exists() else ([], False)

    def read_logs(self, log_number_from: int) -> list[Log]:
        return self.logs[log_number_from:]

    def append_logs(self, logs: Sequence[Log]) -> None:
        lines = [_line(log) for log in logs]
        if self.is_stale:
            write_text(self.path, "".join(map(_line, self.logs)))
            self.is_stale = False
        with self.path.open("a", encoding="utf-8", newline="\n") as file:
            file.write("".join(lines))
            file.flush()
            os.fsync(file.fileno())
        self.logs += map(unseal, lines)


def _line(log: Log) -> str:
    return json.dumps(seal(log)) + "\n"


def _read(path: Path) -> tuple[list[Log], bool]:
    """Return what the file holds, and whether it must be written anew: its last line is torn, or none is
    sealed.
    """
    with reading(path, REMEDY):
        *lines, torn = path.read_text(encoding="utf-8").split("\n")
        sealed = {f'"{SEAL}"' in line for line in lines}
        if len(sealed) > 1:
            raise ValueError("a line has lost its sum")
        return [unseal(line) for line in lines], bool(torn) or False in sealed
