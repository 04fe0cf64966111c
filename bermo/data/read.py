"""Files to tables of named text columns, by their endings: TSV, CSV, text, JSON, JSONL, parquet, Excel.

Every kind of text may be packed (my.csv.gz, .bz2, .xz). Text is read line by line.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from bermo.data.delimited import DELIMITED, Cells, delimited_blocks, read_delimited
from bermo.data.objects import JSON, object_blocks, read_objects
from bermo.data.packed import PACKED, check_file, kind_of
from bermo.data.sheets import read_parquet, read_xlsx
from bermo.data.table import Table
from bermo.errors import BermoError

BINARY = {".parquet": read_parquet, ".xlsx": read_xlsx}
FORMATS = (*DELIMITED, *JSON, *BINARY)
INSTEAD = {
    ".xls": "Save it as .xlsx or as CSV UTF-8.",
    ".ods": "Save it as .xlsx or as CSV UTF-8.",
    ".zip": "Unpack it and give the file that is in it.",
    ".zst": "Unpack it, or pack it with gzip.",
    ".pkl": "Files of pickle are never opened, since they can run code: save it as CSV or parquet.",
}
"""What to do with files that people have and that are not read."""


def read_table(
    path: Path,
    header: Sequence[str] | None = None,
    skips_ragged: bool = False,
    drops_extra: bool = False,
    separator: str | None = None,
) -> Table:
    """Read a file by its ending; `header` names the columns of a file that has no header line."""
    kind = _check(path, separator)
    if kind in BINARY:
        table = BINARY[kind](check_file(path))
    elif kind in JSON:
        table = read_objects(path)
    else:
        known = Cells(header=header, separator=separator, skips_ragged=skips_ragged, drops_extra=drops_extra)
        table = read_delimited(path, known)
    if not len(table):
        raise BermoError(f"{path} has no rows" + (", only a header." if table.columns else "."))
    return table


def read_blocks(path: Path, size: int, separator: str | None = None) -> Iterator[Table]:
    """Yield a file as tables of at most `size` rows; one of text is never held whole."""
    kind = _check(path, separator)
    if kind in BINARY:
        found = read_table(path).blocks(size)
    elif kind in JSON:
        found = object_blocks(path, size)
    else:
        found = delimited_blocks(path, Cells(separator=separator), size)
    first = next(found, None)
    if first is None:
        raise BermoError(f"{path} has no rows, only a header.")
    yield from chain([first], found)


def _check(path: Path, separator: str | None) -> str:
    """Return the format of a file by its ending, or refuse it."""
    kind = kind_of(path)
    if kind not in FORMATS or (kind in BINARY and path.suffix.lower() in PACKED):
        if not path.suffix:
            check_file(path)
        ending = f'ends in "{path.suffix}", which is not a known format' if path.suffix else "has no ending"
        raise BermoError(
            f"{path} {ending}."
            f" {INSTEAD.get(kind, 'Known: ' + ', '.join(FORMATS) + '; text also packed: .gz .bz2 .xz.')}"
        )
    if separator is not None and kind not in DELIMITED:
        raise BermoError(
            f"--separator is for files of columns apart by a character ({', '.join(DELIMITED)}), but {path}"
            f' ends in "{kind}". Leave it out.'
        )
    return kind
