"""JSON to tables: one object a line (JSONL), a list of objects, or columns by their names.

[{"text": "a", "label": "x"}, …]        {"text": ["a", …], "label": ["x", …]}
{"text": {"0": "a", …}, …}              as pandas writes
{"rows": [{"text": "a", …}, …], …}      one list among other facts
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from bermo.data.packed import kind_of
from bermo.data.table import EXAMPLE, Table, table_of
from bermo.data.text import read_lines, read_sample, read_text
from bermo.errors import BermoError

SPLITS = frozenset({"train", "training", "valid", "validation", "val", "dev", "eval", "test", "unsupervised"})
"""What the parts of a dataset are called."""
JSON = (".jsonl", ".ndjson", ".json")
Row = tuple[int, dict[str, Any]]


def read_objects(path: Path) -> Table:
    """Read a JSON or JSONL file."""
    return table_of(path, _read(path))


def object_blocks(path: Path, size: int) -> Iterator[Table]:
    """Yield a JSON or JSONL file as tables of at most `size` rows, all with the columns of the first."""
    rows, names = _read(path), tuple[str, ...]()
    while block := list(islice(rows, size)):
        table = table_of(path, block)
        names = names or tuple(table.columns)
        missing = {name: [""] * len(table) for name in names if name not in table.columns}
        yield replace(table, columns=table.columns | missing)


def _read(path: Path) -> Iterator[Row]:
    """Yield the rows of a file; what its content is decides how it is read, not its ending."""
    sample = read_sample(path)
    is_list = sample.text.lstrip().startswith("[")
    if is_list or (kind_of(path) == ".json" and not _is_one_a_line(sample.text)):
        yield from _rows(path, parse_json(path, read_text(path)))
        return
    for number, line in enumerate(read_lines(path, sample), start=1):
        if line.strip():
            yield _checked(path, number, parse_json(path, line, number))


def _is_one_a_line(start: str) -> bool:
    """Tell whether the first line is an object and something follows it."""
    first, _, rest = start.strip().partition("\n")
    try:
        return isinstance(json.loads(first), dict) and bool(rest)
    except (ValueError, RecursionError):
        return False


def parse_json(path: Path, text: str, line: int | None = None) -> Any:
    """Parse JSON; a mistake is an error that names file and line."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        number = line if line is not None else error.lineno
        raise BermoError(f"{path}, line {number}: not JSON ({error.msg}).") from None
    except (RecursionError, ValueError) as error:
        what = "nested too deeply" if isinstance(error, RecursionError) else "a number of too many digits"
        place = f", line {line}" if line is not None else ""
        raise BermoError(f"{path}{place}: {what} to be read. Rows are expected, such as {EXAMPLE}.") from None


def _rows(path: Path, value: Any) -> Iterator[Row]:
    if isinstance(value, dict):
        value = _listed(path, value)
    if not isinstance(value, list):
        raise BermoError(f"{path}: a list of rows was expected, such as [{EXAMPLE}, …].")
    for number, row in enumerate(value, start=1):
        yield _checked(path, number, row)


def _checked(path: Path, number: int, value: Any) -> Row:
    if not isinstance(value, dict):
        raise BermoError(f"{path}, row {number}: an object with named fields was expected: {EXAMPLE}.")
    return number, value


def _listed(path: Path, value: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of an object that holds columns, a list of rows, or the one row that it is."""
    if len(value) > 1 and SPLITS.issuperset(name.lower() for name in value):
        raise BermoError(_several_parts(path, value))
    columns = list(value.values())
    rows = [item for item in columns if isinstance(item, list) and item and isinstance(item[0], dict)]
    if len(rows) == 1:
        return rows[0]
    if columns and all(isinstance(item, dict) for item in columns):
        return _from_columns(path, {name: list(item.values()) for name, item in value.items()})
    if columns and all(isinstance(item, list) for item in columns):
        return _from_columns(path, value)
    return [value]


def _several_parts(path: Path, value: dict[str, Any]) -> str:
    """Say how a file of several parts becomes a file for each."""
    first, second, *_ = value
    program = (
        "import json; from pathlib import Path; [Path(part + '.json').write_text(json.dumps(rows)) for part,"
        f" rows in json.loads(Path('{path.as_posix()}').read_text('utf-8')).items()]"
    )
    return (
        f"{path} holds several parts ({', '.join(value)}), and each must be a file of its own. This writes"
        f" {first}.json, {second}.json{' and so on' if len(value) > 2 else ''} into this folder:"
        f' python -c "{program}"'
    )


def _from_columns(path: Path, columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise BermoError(f"{path}: its columns have different lengths ({found}). Each row needs all of them.")
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
