"""Files to tables of named text columns: TSV, CSV, JSON, JSONL, parquet.

A table keeps the line of each row, so that every complaint about a row names file and line; libraries of
tables do not keep it, so the files are read by hand. TSV has no quoting, as in GLUE: a quotation mark is
text. CSV has. JSON holds a list of objects, JSONL one a line.
"""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bermo.errors import BermoError, nearest

FORMATS = (".tsv", ".txt", ".csv", ".jsonl", ".json", ".parquet")


@dataclass(frozen=True)
class Table:
    """Columns of equal length by name, and the line of the file that each row came from."""

    path: Path
    columns: dict[str, list[str]]
    lines: list[int]
    skipped: int = 0

    def __len__(self) -> int:
        return len(self.lines)

    def has(self, name: str) -> bool:
        """Tell whether there is a column called `name`, whatever its capitals."""
        return name.lower() in (known.lower() for known in self.columns)

    def column(self, name: str) -> list[str]:
        """Return the column called `name`, whatever its capitals; an unknown name is an error."""
        for known, values in self.columns.items():
            if known.lower() == name.lower():
                return values
        there = ", ".join(f'"{known}"' for known in self.columns)
        raise BermoError(
            f'{self.path} has no column "{name}".{nearest(name, self.columns)} Its columns: {there}.'
            " If its first line is a row of data, add a line with the columns' names above it."
        )


def read_table(
    path: Path,
    header: Sequence[str] | None = None,
    skips_ragged: bool = False,
    drops_extra: bool = False,
) -> Table:
    """Read a file by its ending; `header` names the columns of a file that has no header line."""
    kind = path.suffix.lower()
    if kind not in FORMATS:
        raise BermoError(
            f'{path} ends in "{kind}", which is not a known format. Known: {", ".join(FORMATS)}.'
        )
    if kind == ".parquet":
        return _filled(_read_parquet(check_file(path)))
    text = read_text(path)
    if kind in (".json", ".jsonl"):
        return _filled(_from_objects(path, _json_objects(path, text)))
    cells = _csv_cells(path, text) if kind == ".csv" else _tsv_cells(text)
    return _filled(_from_cells(path, cells, header, skips_ragged, drops_extra))


def check_file(path: Path) -> Path:
    """Return `path`, or fail with the nearest file name of its folder."""
    if path.is_file():
        return path
    if path.is_dir():
        raise BermoError(f"{path} is a folder, but a file was expected.")
    if not path.parent.is_dir():
        raise BermoError(f"There is no file {path}: the folder {path.parent} does not exist.")
    names = [item.name for item in path.parent.iterdir() if item.is_file()]
    hint = nearest(path.name, names) if names else " The folder is empty."
    raise BermoError(f"There is no file {path}.{hint}")


def read_text(path: Path) -> str:
    """Read a file as UTF-8 with or without a byte-order mark; a wrong byte is an error with its line."""
    content = check_file(path).read_bytes()
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise BermoError(f"{path} is UTF-16, but UTF-8 was expected. Save it as UTF-8.")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BermoError(
            f"{path}, line {line}: byte 0x{content[error.start]:02x} is not UTF-8. Save the file as"
            " UTF-8 (it may be in an older encoding such as Latin-1)."
        ) from None
    if not text.strip():
        raise BermoError(f"{path} is empty.")
    return text


def _tsv_cells(text: str) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip("\r "):
            yield number, line.rstrip("\r").split("\t")


def _csv_cells(path: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    first = text.split("\n", 1)[0]
    delimiter = ";" if ";" in first and "," not in first else ","
    # The module's limit of 128 KiB a cell guards against nothing here, and real articles pass it.
    # The limit is a C long, which has 32 bits on Windows.
    csv.field_size_limit(2**31 - 1)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    start = 1
    try:
        for cells in reader:
            if any(cells):
                yield start, cells
            start = reader.line_num + 1
    except csv.Error as error:
        raise BermoError(
            f"{path}, line {start}: broken quoting ({error}). In CSV a cell with a comma, a line break"
            ' or a quotation mark stands in "…", and a quotation mark inside it is written twice.'
        ) from None


def _from_cells(
    path: Path,
    cells: Iterator[tuple[int, list[str]]],
    header: Sequence[str] | None,
    skips_ragged: bool,
    drops_extra: bool,
) -> Table:
    names = _check_header(path, list(header) if header else next(cells)[1])
    rows, lines, skipped = [], [], 0
    for line, row in cells:
        if len(row) == len(names) or (drops_extra and len(row) > len(names)):
            rows.append(row[: len(names)])
            lines.append(line)
        elif skips_ragged:
            skipped += 1
        else:
            raise BermoError(
                f"{path}, line {line}: {len(row)} columns, but {len(names)} were expected"
                f" ({', '.join(names)}). Correct this line."
            )
    return Table(path, _transpose(names, rows), lines, skipped)


def _check_header(path: Path, cells: list[str]) -> list[str]:
    names = [cell.strip() or f"column {number}" for number, cell in enumerate(cells, start=1)]
    for name in names:
        if names.count(name) > 1:
            raise BermoError(
                f'{path}: two columns are called "{name}". The first line must name the columns.'
            )
    return names


def _transpose(names: list[str], rows: list[list[str]]) -> dict[str, list[str]]:
    columns = zip(*rows, strict=True) if rows else ([] for _ in names)
    return {name: list(column) for name, column in zip(names, columns, strict=True)}


def _json_objects(path: Path, text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the line or number and the value of each object of a JSON or JSONL file."""
    if path.suffix.lower() == ".json" and text.lstrip().startswith("["):
        items = list(enumerate(parse_json(path, text), start=1))
    else:
        lines = enumerate(text.split("\n"), start=1)
        items = [(number, parse_json(path, line, number)) for number, line in lines if line.strip()]
    for number, value in items:
        if not isinstance(value, dict):
            raise BermoError(f"{path}, row {number}: an object with named fields was expected.")
        yield number, value


def parse_json(path: Path, text: str, line: int | None = None) -> Any:
    """Parse JSON; a mistake is an error that names file and line."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        number = line if line is not None else error.lineno
        raise BermoError(f"{path}, line {number}: not JSON ({error.msg}).") from None


def _from_objects(path: Path, objects: Iterator[tuple[int, dict[str, Any]]]) -> Table:
    columns: dict[str, list[str]] = {}
    lines: list[int] = []
    for line, fields in objects:
        columns = columns or {name: [] for name in fields}
        if fields.keys() != columns.keys():
            odd = ", ".join(sorted(fields.keys() ^ columns.keys()))
            raise BermoError(f"{path}, row {line}: its fields differ from the first row's in: {odd}.")
        for name, value in fields.items():
            columns[name].append(as_text(value))
        lines.append(line)
    return Table(path, columns, lines)


def as_text(value: Any) -> str:
    """Return a JSON or parquet value as the text a TSV would hold; nothing is the empty text."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False, default=str)


def _read_parquet(path: Path) -> Table:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise BermoError(
            f'Reading {path} needs pyarrow. Install the extra: pip install "bermo[parquet]".'
        ) from None
    try:
        # One file, not a dataset: a folder named key=value must not become a column.
        table = parquet.ParquetFile(path).read()
    except (ArrowException, OSError) as error:
        raise BermoError(f"{path} is not a whole parquet file: {error}") from None
    columns = {
        name: [as_text(value) for value in table.column(name).to_pylist()] for name in table.column_names
    }
    return Table(path, columns, list(range(1, table.num_rows + 1)))


def _filled(table: Table) -> Table:
    if not len(table):
        raise BermoError(f"{table.path} has no rows" + (", only a header." if table.columns else "."))
    return table
