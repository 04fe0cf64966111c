"""Text files of columns apart by a separator: which one it is, and the cells of each line.

The separator is the one by which the header and the first rows have the same count of columns, the most if
there are several; the ending of the file's name decides between equals, and where nothing fits. In a .tsv or
.txt file apart by tabs a quotation mark is text, as in GLUE; everywhere else a cell may stand in "…".
"""

import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from bermo.choices import SEPARATORS
from bermo.data.fasttext import fasttext_lines, is_fasttext
from bermo.data.packed import kind_of
from bermo.data.table import Table
from bermo.data.text import Sample, read_lines, read_sample
from bermo.errors import BermoError

DELIMITED = (".tsv", ".txt", ".csv")
SNIFFED_ROWS = 20
Line = tuple[int, list[str]]
"""The number of a line and its cells."""
# A cell may be longer than the module's limit of 128 KiB, which guards against nothing here. The limit is a C
# long, which has 32 bits on Windows.
csv.field_size_limit(2**31 - 1)


@dataclass(frozen=True)
class _Form:
    """How a file's lines become cells; `skipped` lines come before the header."""

    separator: str
    has_quotes: bool
    skipped: int = 0


@dataclass(frozen=True, kw_only=True)
class Cells:
    """What may be said of a delimited file beside its path; `header` names the columns where no line does."""

    header: Sequence[str] | None = None
    separator: str | None = None
    skips_ragged: bool = False
    drops_extra: bool = False


def read_delimited(path: Path, known: Cells) -> Table:
    """Read a delimited file line by line."""
    cells, notes = _open(path, known)
    return replace(table_of_cells(path, cells, known), notes=notes)


def delimited_blocks(path: Path, known: Cells, size: int) -> Iterator[Table]:
    """Yield a delimited file as tables of at most `size` rows."""
    cells, notes = _open(path, known)
    header = known.header or next(cells, (0, []))[1]
    while block := list(islice(cells, size)):
        yield replace(table_of_cells(path, iter(block), replace(known, header=header)), notes=notes)


def _open(path: Path, known: Cells) -> tuple[Iterator[Line], tuple[str, ...]]:
    """Return the lines of a file as cells, and what is to be said of its separator."""
    sample = read_sample(path)
    if not sample.text.strip("".join(SEPARATORS.values()) + " \r\n"):
        raise BermoError(f"{path} holds only separators. Its first line must name the columns.")
    if is_fasttext(sample) and not known.header and not known.separator:
        note = f"{path.name}: its lines start with __label__, so they are read as fastText's"
        return fasttext_lines(path, sample), (note,)
    form = _form(sample, kind_of(path), known)
    cells = _quoted(path, sample, form) if form.has_quotes else _plain(path, sample, form)
    return islice(cells, form.skipped, None), () if known.separator else _note(path, form.separator)


def _usual(kind: str) -> str:
    return "," if kind == ".csv" else "\t"


def _has_quotes(separator: str, kind: str) -> bool:
    return separator != "\t" or kind == ".csv"


def _form(sample: Sample, kind: str, known: Cells) -> _Form:
    first = sample.text.split(sample.line_end, 1)[0].rstrip("\r")
    # Excel names the separator in a line of its own.
    is_named = len(first) == len("sep=;") and first.startswith("sep=")
    separator = known.separator or (first[-1] if is_named else None)
    if separator is None:
        separator = _usual(kind) if known.header else sniff(sample, kind)
    return _Form(separator, _has_quotes(separator, kind), int(is_named))


def sniff(sample: Sample, kind: str) -> str:
    """Return the separator by which the first rows have the same count of columns."""
    usual = _usual(kind)
    counts = {item: _counts(sample, item, kind) for item in (usual, *SEPARATORS.values())}
    split = [item for item, widths in counts.items() if widths and widths[0] > 1]
    fits = [item for item in split if len(set(counts[item])) == 1]
    if fits:
        return max(fits, key=lambda item: (counts[item][0], item == usual))
    if not split or usual in split:
        return usual
    return max(split, key=lambda item: counts[item].count(counts[item][0]))


def _counts(sample: Sample, separator: str, kind: str) -> list[int]:
    """Return the count of columns of each of the first rows."""
    rows: Iterator[list[str]]
    if _has_quotes(separator, kind):
        rows = csv.reader(io.StringIO(sample.text, newline=""), delimiter=separator)
    else:
        rows = (line.split(separator) for line in sample.text.split(sample.line_end))
    filled = (row for row in rows if any(cell.strip() for cell in row))
    widths = [len(row) for row in islice(filled, SNIFFED_ROWS + 1)]
    # The last row may be cut off where the sample ends.
    return widths if sample.is_whole or len(widths) < 2 else widths[:-1]


def _note(path: Path, separator: str) -> tuple[str, ...]:
    if separator == _usual(kind_of(path)):
        return ()
    name = next((name for name, known in SEPARATORS.items() if known == separator), f'"{separator}"')
    return (f"{path.name}: its columns are apart by {name}, as its first lines show (or name --separator)",)


def _plain(path: Path, sample: Sample, form: _Form) -> Iterator[Line]:
    for number, line in enumerate(read_lines(path, sample), start=1):
        if line.strip("\r\n "):
            yield number, line.rstrip("\r\n").split(form.separator)


def _quoted(path: Path, sample: Sample, form: _Form) -> Iterator[Line]:
    reader = csv.reader(read_lines(path, sample, newline=""), delimiter=form.separator, strict=True)
    start = 1
    try:
        for cells in reader:
            if any(cells):
                yield start, cells
            start = reader.line_num + 1
    except csv.Error as error:
        more = " In a .tsv file a quotation mark is text." if form.separator == "\t" else ""
        raise BermoError(
            f"{path}, line {start}: broken quoting ({error}). A cell with a separator, a line break"
            f' or a quotation mark stands in "…", and a quotation mark inside it is written twice.{more}'
        ) from None


def table_of_cells(path: Path, cells: Iterator[Line], known: Cells) -> Table:
    """Build a table from the line and the cells of each row, the first of which names the columns."""
    names = _check_header(path, list(known.header) if known.header else next(cells, (0, []))[1])
    columns: list[list[str]] = [[] for _ in names]
    lines, skipped = [], 0
    for line, row in cells:
        if len(row) == len(names) or (known.drops_extra and len(row) > len(names)):
            for column, cell in zip(columns, row, strict=False):
                column.append(cell)
            lines.append(line)
        elif known.skips_ragged:
            skipped += 1
        else:
            raise BermoError(
                f"{path}, line {line}: {len(row)} columns, but {len(names)} were expected"
                f" ({', '.join(names)}). Correct this line."
            )
    return Table(path, dict(zip(names, columns, strict=True)), lines, skipped)


def _check_header(path: Path, cells: list[str]) -> list[str]:
    if not cells:
        raise BermoError(f"{path} has no rows. Its first line must name the columns.")
    names = [cell.strip() or f"column {number}" for number, cell in enumerate(cells, start=1)]
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise BermoError(f'{path}: two columns are called "{twice}". The first line must name the columns.')
    return names
