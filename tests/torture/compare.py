"""What a command left, as one digest a file, so that two folders can be compared.

Every byte counts, except for what no two runs share: times, memory, and what follows from them. These fields
are named here, and nowhere else; files that hold nothing else are named by their kind (kinds.py).
"""

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from bermo.files import is_temporary

MEASURED = frozenset(
    {
        "seconds",
        "seconds_a_step",
        "rows_per_second",
        "tokens_per_second",
        "peak_memory_mib",
        "peak_memory_mb",
        "peak memory",
        "timings",
        "crc32",
    }
)
"""Fields of JSON files that hold times and memory, or a sum over them."""
IGNORED = frozenset({".lock"})
EARLIER_LOG = re.compile(r"(.*/)?jobs/[^/]+\.\d+\.log")
"""What a job printed that was begun before: kept on purpose."""

Tree = Mapping[str, str]
"""The digest of each file by its path."""


def read_tree(folder: Path, measured: Collection[str] = ()) -> Tree:
    """Return the digest of every file and folder; of `measured` files it counts only that they are there."""
    tree = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_dir() or name in measured:
            tree[name] = ""
        elif path.name not in IGNORED and not EARLIER_LOG.fullmatch(name):
            tree[name] = hashlib.sha256(normalised(path, folder)).hexdigest()
    return tree


def normalised(path: Path, folder: Path) -> bytes:
    """Return the content of a file without what was measured and without the place of the folder; a file that
    is torn is compared as it is.
    """
    content = path.read_bytes()
    here = str(folder).encode()
    try:
        match path.suffix:
            case ".json":
                return _dump(json.loads(content.replace(here, b"")))
            case ".jsonl":
                return b"\n".join(_dump(json.loads(line)) for line in content.splitlines())
    except ValueError:
        pass
    return content


def _dump(value: Any) -> bytes:
    return json.dumps(_without_measured(value)).encode()


def _without_measured(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_measured(item) for item in value]
    if isinstance(value, dict):
        return {name: _without_measured(item) for name, item in value.items() if name not in MEASURED}
    return value


def differences(expected: Tree, got: Tree) -> list[str]:
    """Say in a few words what differs between two trees."""
    said = [f"{name} is missing" for name in sorted(expected.keys() - got.keys())]
    said += [f"{name} is left over" for name in sorted(got.keys() - expected.keys())]
    both = sorted(expected.keys() & got.keys())
    return said + [f"{name} differs" for name in both if expected[name] != got[name]]


def torn(folder: Path) -> list[str]:
    """Name the files that are half written under their final names."""
    said = []
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if not path.is_file() or any(is_temporary(Path(part)) for part in inside.parts):
            continue
        if not _is_whole(path):
            said.append(f"{inside.as_posix()} is half written")
    return said


def _is_whole(path: Path) -> bool:
    content = path.read_bytes()
    if path.suffix == ".json":
        return _is_json(content)
    if path.suffix == ".safetensors":
        return len(content) > 8 and _is_safetensors(content)
    return True


def _is_json(content: bytes) -> bool:
    try:
        json.loads(content)
    except ValueError:
        return False
    return True


def _is_safetensors(content: bytes) -> bool:
    """Tell whether the file is as long as its header says."""
    length = int.from_bytes(content[:8], "little")
    header = content[8 : 8 + length]
    if len(header) < length or not _is_json(header):
        return False
    ends = [item["data_offsets"][1] for name, item in json.loads(header).items() if name != "__metadata__"]
    return len(content) == 8 + length + max(ends, default=0)
