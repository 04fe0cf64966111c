"""Binary tables: parquet (the extra `parquet`) and Excel's .xlsx (the extra `xlsx`)."""

import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bermo.data.delimited import Cells, table_of_cells
from bermo.data.packed import check_size, most_bytes
from bermo.data.table import Table, as_text, table_of
from bermo.errors import BermoError
from bermo.files import DAMAGED

CELL_BYTES = 64
"""What a cell takes in memory at least."""

BATCH_ROWS = 1024
MOST_EMPTY_ROWS = 10_000
"""Empty rows in a row; a few bytes can name a row with billions of them before it."""


def read_parquet(path: Path) -> Table:
    """Read a parquet file, one batch of rows after the other."""
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise BermoError(
            f'Reading {path} needs pyarrow. Install the extra: pip install "bermo[parquet]".'
        ) from None
    try:
        # One file, not a dataset: a folder named key=value must not become a column.
        file = parquet.ParquetFile(path)
        check_size(path, file.metadata.num_rows * file.metadata.num_columns * CELL_BYTES)
        return table_of(path, enumerate(_parquet_rows(path, file), start=1))
    except (ArrowException, OSError, *DAMAGED) as error:
        raise BermoError(f"{path} is not a whole parquet file: {error}") from None


def _parquet_rows(path: Path, file: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows; their bytes are counted, since a text of a file's dictionary may stand in every row."""
    # Not of each column: pyarrow ends the whole process where it cannot describe a damaged one.
    groups = range(file.metadata.num_row_groups)
    longest = max((file.metadata.row_group(group).total_byte_size for group in groups), default=0)
    size = 0
    # No batch is larger than what may be read in all, though every row held the whole of a group.
    for batch in file.iter_batches(max(1, min(BATCH_ROWS, most_bytes() // max(longest, 1)))):
        size += batch.nbytes
        check_size(path, size)
        yield from batch.to_pylist()


def read_xlsx(path: Path) -> Table:
    """Read the first sheet of an Excel file that is not empty, by the values that Excel computed."""
    try:
        import openpyxl
    except ImportError:
        raise BermoError(
            f'Reading {path} needs openpyxl. Install the extra: pip install "bermo[xlsx]", or save the sheet'
            ' as "CSV UTF-8" and give that file.'
        ) from None
    try:
        with zipfile.ZipFile(path) as packed:
            check_size(path, sum(item.file_size for item in packed.infolist()))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what Excel can draw and openpyxl cannot
            book = openpyxl.load_workbook(path, read_only=True, data_only=True)
            sheets = {sheet.title: list(_rows(sheet)) for sheet in book.worksheets}
            book.close()
    except BermoError:
        raise
    except Exception as error:  # openpyxl lets every error of its parsers through
        raise BermoError(f"{path} is not a whole .xlsx file: {error}") from None
    return _first_filled(path, sheets)


def _rows(sheet: Any) -> Iterator[tuple[int, list[str]]]:
    sheet.reset_dimensions()  # some programs write wrong ones
    last = 0
    for number, row in enumerate(sheet.iter_rows(values_only=True), start=1):
        cells = [as_text(value) for value in row]
        if any(cell.strip() for cell in cells):
            last = number
            yield number, cells
        elif number - last > MOST_EMPTY_ROWS:
            raise ValueError(f"after row {last} more than {MOST_EMPTY_ROWS:,} are empty")


def _first_filled(path: Path, sheets: dict[str, list[tuple[int, list[str]]]]) -> Table:
    filled = {title: rows for title, rows in sheets.items() if rows}
    if not filled:
        raise BermoError(f"{path} is empty.")
    title, rows = next(iter(filled.items()))
    width = max(number for number, cell in enumerate(rows[0][1], start=1) if cell.strip())
    cells = ((number, (row + [""] * width)[:width] if not any(row[width:]) else row) for number, row in rows)
    table = table_of_cells(path, iter(cells), Cells())
    others = [name for name in filled if name != title]
    note = f'{path.name}: the sheet "{title}" is read, not {", ".join(others)}'
    return table if not others else Table(path, table.columns, table.lines, notes=(note,))
