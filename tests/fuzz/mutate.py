"""Valid files made wrong: bytes flipped, cut, doubled and spliced, huge numbers, values of JSON replaced.

A file that is packed (gzip, bzip2, xz, zip) or has a header (safetensors) is often changed inside and packed
again, or its sums would hide what lies behind them.
"""

import bz2
import gzip
import io
import json
import lzma
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Any

from bermo.files import seal

NUMBERS = (
    "0",
    "-1",
    "-0.0",
    "1e308",
    "1e999",
    "NaN",
    "-Infinity",
    "9" * 30,
    "9" * 5000,
    str(2**31),
    str(2**63),
    str(2**64),
    "0x10",
    "1_000",
    "١٢٣",
)
WORDS = (
    "",
    " ",
    "\t",
    "\r\n",
    "\x00",
    "\x1b[31m\x1b]0;title\x07",
    "\x9b31m",
    "\u202egnp.exe",
    "\ufeff",
    "\u2028",
    "a\u0301" * 20,
    "😀" * 5,
    "[/bar]",
    "<script>alert(1)</script>",
    "\"'><svg onload=alert(1)>",
    "{{7*7}}",
    "%s%n",
    "=cmd|' /C calc'!A0",
    "../../../etc/passwd",
    "/etc/passwd",
    "C:\\x",
    "none",
    "null",
    "true",
    '"',
    ",",
    ";",
    "[",
    "{",
    "word " * 3000,
)
VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    2**31,
    2**63,
    10**30,
    -(10**400),
    0.5,
    1e308,
    float("nan"),
    float("inf"),
    "",
    [],
    {},
    [[]],
    [None],
    [1, "a", None],
    {"": ""},
    {"a": {"b": 1}},
    [[[[[[[[1]]]]]]]],
    *WORDS,
)
DEEP = (b"[", b'{"a":', b"(", b"<a>", b"[[1],")
DEPTHS = (50, 900, 3000, 100_000)
LARGEST = 1 << 18
"""Bytes of a changed file, but for those nested deeply."""
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")


def mutate(data: bytes, name: str, others: Sequence[bytes], random: Random) -> bytes:
    """Return a file of this name with one to four changes."""
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        change = _inside(name) if random.random() < 0.7 else None
        try:
            data = (change or _bytes)(data, others, random)
        except Exception:  # an earlier change left nothing that can be opened
            data = _bytes(data, others, random)
    return data


Change = Callable[[bytes, Sequence[bytes], Random], bytes]


def _inside(name: str) -> Change | None:
    """Return what changes the content of a file, by its ending; None where only its bytes are known."""
    ending = name.rpartition(".")[2].lower()
    return INSIDE.get(ending)


def _bytes(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    return random.choice(BYTE_CHANGES)(data, others, random)[: LARGEST + max(DEPTHS) * 6]


def _span(data: bytes, random: Random) -> tuple[int, int]:
    start = random.randrange(len(data) + 1)
    return start, min(len(data), start + random.choice((1, 2, 8, 64, 4096)))


def _flip(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 8)) if data else 0):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def _overwrite(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    start, end = _span(data, random)
    return data[:start] + random.choice((b"\x00", b"\xff", b"\x80", b" ")) * (end - start) + data[end:]


def _cut(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    return data[: random.randrange(len(data) + 1)]


def _delete(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    start, end = _span(data, random)
    return data[:start] + data[end:]


def _repeat(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    start, end = _span(data, random)
    times = min(random.choice((1, 2, 10, 1000)), LARGEST // (end - start + 1))
    return data[:end] + data[start:end] * times + data[end:]


def _splice(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    other = random.choice(others)
    return data[: random.randrange(len(data) + 1)] + other[random.randrange(len(other) + 1) :]


def _insert(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    start, _ = _span(data, random)
    return data[:start] + random.choice((*WORDS, *NUMBERS)).encode() + data[start:]


def _number(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    found = list(_NUMBER.finditer(data[:LARGEST]))
    if not found:
        return _insert(data, others, random)
    at = random.choice(found)
    return data[: at.start()] + random.choice(NUMBERS).encode() + data[at.end() :]


def _nest(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    start, _ = _span(data, random)
    return data[:start] + random.choice(DEEP) * random.choice(DEPTHS) + data[start:]


BYTE_CHANGES: tuple[Change, ...] = (
    _flip,
    _flip,
    _overwrite,
    _cut,
    _delete,
    _repeat,
    _splice,
    _insert,
    _insert,
    _number,
    _number,
    _nest,
)


def _json(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    content = json.loads(data)
    changed = _changed(content, random)
    # Where a file holds its own sum, most changed ones hold the sum of what they are now.
    if isinstance(changed, dict) and "crc32" in changed and random.random() < 0.9:
        changed = seal({name: value for name, value in changed.items() if name != "crc32"})
    return json.dumps(changed, ensure_ascii=random.random() < 0.5).encode("utf-8", "surrogatepass")


def _json_line(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    lines = data.split(b"\n")
    at = random.randrange(len(lines))
    lines[at] = _json(lines[at], others, random)
    return b"\n".join(lines)


def _changed(value: Any, random: Random) -> Any:
    """Return a value of JSON with one place in it changed."""
    if isinstance(value, dict) and value and random.random() < 0.92:
        name = random.choice(list(value))
        return _changed_dict(value, name, random)
    if isinstance(value, list) and value and random.random() < 0.92:
        at = random.randrange(len(value))
        match random.randrange(8):
            case 0:
                return value[:at] + value[at + 1 :]
            case 1:
                return [*value, *value[at : at + 1] * random.choice((1, 50))]
            case _:
                return [*value[:at], _changed(value[at], random), *value[at + 1 :]]
    if isinstance(value, str) and value[:1] in ("{", "["):
        with suppress(ValueError):
            return json.dumps(_changed(json.loads(value), random))
    return random.choice(VALUES)


def _changed_dict(value: Mapping[str, Any], name: str, random: Random) -> dict[str, Any]:
    rest = {key: item for key, item in value.items() if key != name}
    match random.randrange(10):
        case 0:
            return rest
        case 1:
            return rest | {str(random.choice(VALUES))[:100]: value[name]}
        case 2:
            return dict(value) | {random.choice(WORDS)[:100]: random.choice(VALUES)}
        case 3:
            return dict(value) | {name: value[random.choice(list(value))]}
        case _:
            return dict(value) | {name: _changed(value[name], random)}


def _repacked(unpack: Callable[[bytes], bytes], pack: Callable[[bytes], bytes]) -> Change:
    return lambda data, others, random: pack(_bytes(unpack(data), others, random))


def _zip(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as old:
        parts = {item.filename: old.read(item) for item in old.infolist()}
    name = random.choice(list(parts))
    parts[name] = _bytes(parts[name], list(parts.values()), random)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
        for name, part in parts.items():
            new.writestr(name, part)
    return packed.getvalue()


def _tensors(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    """Change the header of a safetensors file: its length in 8 bytes, then JSON."""
    size = int.from_bytes(data[:8], "little")
    header = _json(data[8 : 8 + size], others, random)
    return len(header).to_bytes(8, "little") + header + data[8 + size :]


INSIDE: Mapping[str, Change] = {
    "json": _json,
    "jsonl": _json_line,
    "gz": _repacked(gzip.decompress, lambda data: gzip.compress(data, 1, mtime=0)),
    "bz2": _repacked(bz2.decompress, bz2.compress),
    "xz": _repacked(lzma.decompress, lambda data: lzma.compress(data, preset=0)),
    "xlsx": _zip,
    "safetensors": _tensors,
}
