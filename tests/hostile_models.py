"""Models that try to run code: it would leave a mark."""

import json
import os
import pickle
from pathlib import Path
from typing import Any


class Hostile:
    """A pickle that leaves a mark when it is opened."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


def change_json(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | values), encoding="utf-8")


def make_pickle(folder: Path, mark: Path, name: str = "pytorch_model.bin") -> None:
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(pickle.dumps({"weight": Hostile(mark)}))


def add_code(folder: Path, mark: Path, **auto_map: str) -> None:
    code = f"import os\nos.mkdir({str(mark)!r})\nclass Thing:\n    pass\n"
    (folder / "hostile.py").write_text(code, encoding="utf-8")
    change_json(folder / "config.json", auto_map=auto_map)
