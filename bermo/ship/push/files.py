"""The files of a shipped model that go to the hub: those that bermo wrote, and no others.

    files_of("runs/mine") -> the files of runs/mine/model, each with its name on the hub

A folder that holds anything else (tables, checkpoints, caches, links) is refused: what is sent can be seen by
others, and is hard to take back.
"""

from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path

from bermo.errors import BermoError
from bermo.runs.model_files import find_model
from bermo.sums import SUMS_FILE, check_sums

CARD = "README.md"
SHIPPED = (
    CARD,
    "example.py",
    SUMS_FILE,
    "config.json",
    "task.json",
    "export.json",
    "shrink.json",
    "model*.safetensors",
    "model.safetensors.index.json",
    "sparse.safetensors",
    "model.onnx",
    "model.onnx.data",
    "model.xml",
    "model.bin",
    "onnx/model*.onnx",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "*.model",
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "[0-9]_*/config.json",
    "[0-9]_*/model.safetensors",
)
"""What a folder of bermo's may hold, by name: weights, graphs, tokenizer, settings, card."""
LEFT_OUT = ("estimator.json",)
"""The options of an estimator, which name paths of this machine: they stay here."""
MOST_NAMED = 5


def files_of(path: str | Path) -> dict[str, Path]:
    """Return the files of the model in a folder by their names on the hub, or refuse the folder."""
    folder = find_model(path).folder
    if not (folder / SUMS_FILE).is_file():
        raise BermoError(
            f"{folder} holds no model that bermo shipped: there is no {SUMS_FILE}. Give the folder of a run,"
            " of bermo shrink, of bermo compress or of bermo export."
        )
    check_sums(folder)
    found = {item.relative_to(folder).as_posix(): item for item in sorted(folder.rglob("*"))}
    files = {name: item for name, item in found.items() if item.is_symlink() or not item.is_dir()}
    _check(folder, files)
    return {name: item for name, item in files.items() if name not in LEFT_OUT}


def num_bytes(files: Mapping[str, Path]) -> int:
    """Return the size of all files."""
    return sum(file.stat().st_size for file in files.values())


def _check(folder: Path, files: Mapping[str, Path]) -> None:
    links = [name for name, item in files.items() if item.is_symlink()]
    if links:
        raise BermoError(
            f"{folder} has links ({_named(links)}), which may lead anywhere. Copy the files in their place."
        )
    others = [name for name in files if not _is_shipped(name)]
    if others:
        raise BermoError(
            f"{folder} holds what is no part of a model: {_named(others)}. It would be seen by others. Move"
            " it away, or give another folder."
        )


def _is_shipped(name: str) -> bool:
    is_deep = name.count("/")
    patterns = (pattern for pattern in SHIPPED if pattern.count("/") == is_deep)
    return name in LEFT_OUT or any(fnmatch(name, pattern) for pattern in patterns)


def _named(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more
