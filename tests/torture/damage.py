"""Damage to one file: a byte flipped, its end cut off, its content gone, or the file itself."""

from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random


def _flip(path: Path, random: Random) -> str:
    content = bytearray(path.read_bytes())
    at = random.randrange(len(content))
    bit = random.randrange(8)
    content[at] ^= 1 << bit
    path.write_bytes(content)
    return f"bit {bit} of byte {at}"


def _cut(path: Path, random: Random) -> str:
    content = path.read_bytes()
    at = random.randrange(len(content))
    path.write_bytes(content[:at])
    return f"to {at} of {len(content)} bytes"


def _empty(path: Path, random: Random) -> str:
    path.write_bytes(b"")
    return ""


def _delete(path: Path, random: Random) -> str:
    path.unlink()
    return ""


DAMAGES: Mapping[str, Callable[[Path, Random], str]] = {
    "a bit flipped": _flip,
    "cut": _cut,
    "emptied": _empty,
    "deleted": _delete,
}
"""What can be done to a file; each returns where it was done."""


def damage_one(folder: Path, how: str, random: Random) -> tuple[Path, str] | None:
    """Damage a file under the folder, chosen at random; return it and what was done, or None without one."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    if not files:
        return None
    path = random.choice(files)
    where = DAMAGES[how](path, random)
    return path, f"{path.relative_to(folder).as_posix()} {how} {where}".strip()
