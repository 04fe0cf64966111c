"""Excel's files are read where the extra is installed, and name it where it is not."""

import datetime
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from bermo.data import packed
from bermo.data.read import read_table
from bermo.errors import BermoError


def _write(path: Path, **sheets: Sequence[Sequence[object]]) -> Path:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.remove(book.active)
    for title, rows in sheets.items():
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(list(row))
    book.save(path)
    return path


def test_a_sheet_is_read_as_text(tmp_path: Path) -> None:
    rows = [("text", "label", "day"), ("über, alles", 1, datetime.date(2020, 1, 2)), (), ("two\nlines", 0.5)]
    table = read_table(_write(tmp_path / "a.xlsx", data=rows))
    assert table.columns["text"] == ["über, alles", "two\nlines"]
    assert table.columns["label"] == ["1", "0.5"]
    assert table.columns["day"] == ["2020-01-02 00:00:00", ""]
    assert [table.place(index) for index in range(2)] == ["row 2", "row 4"]
    assert not table.notes


def test_the_first_sheet_that_holds_something_is_read_and_named(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.xlsx", empty=[], one=[("text", "label"), ("a", "b")], two=[("x",)])
    table = read_table(path)
    assert table.columns == {"text": ["a"], "label": ["b"]}
    assert table.notes == ('a.xlsx: the sheet "one" is read, not two',)


def test_sheets_that_hold_no_table_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BermoError, match="is empty"):
        read_table(_write(tmp_path / "a.xlsx", one=[]))
    with pytest.raises(BermoError, match="3 columns, but 2"):
        read_table(_write(tmp_path / "b.xlsx", one=[("text", "label"), ("a", "b", "c")]))


def test_torn_files_and_bombs_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openpyxl")
    path = tmp_path / "a.xlsx"
    path.write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(BermoError, match=r"not a whole \.xlsx file"):
        read_table(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("xl/worksheets/sheet1.xml", b"a" * (2**20 + 1))
    with pytest.raises(BermoError, match=r"not a whole \.xlsx file"):
        read_table(path)
    monkeypatch.setattr(packed, "memory_bytes", lambda: 4 * 2**20)
    with pytest.raises(BermoError, match="unpacks to more than"):
        read_table(path)


def test_without_openpyxl_the_extra_and_another_way_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    path = tmp_path / "a.xlsx"
    path.write_bytes(b"PK")
    with pytest.raises(BermoError, match=r'bermo\[xlsx\]".*save the sheet as "CSV UTF-8"'):
        read_table(path)


def test_parquet_of_other_types_becomes_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "a.parquet"
    columns = {"text": [b"caf\xc3\xa9", b"x"], "label": [["a", "b"], []], "n": [1, None], "f": [1.5, 2.0]}
    parquet.write_table(pyarrow.table(columns), path)
    table = read_table(path)
    assert table.columns == {
        "text": ["café", "x"],
        "label": ['["a", "b"]', "[]"],
        "n": ["1", ""],
        "f": ["1.5", "2.0"],
    }
    monkeypatch.setattr(packed, "memory_bytes", lambda: 1024)
    with pytest.raises(BermoError, match="unpacks to more than"):
        read_table(path)


def test_a_sheet_that_names_a_row_far_below_is_refused_at_once(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.xlsx", one=[["text", "label"], ["a", "b"]])
    with zipfile.ZipFile(path) as old:
        parts = {name: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(path, "w") as new:
        for name, part in parts.items():
            new.writestr(name, part.replace(b'<row r="2"', b'<row r="999999999"'))
    with pytest.raises(BermoError, match="after row 1 more than 10,000 are empty"):
        read_table(path)


def test_parquet_whose_texts_are_no_text_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    from pyarrow import parquet, table

    path = tmp_path / "a.parquet"
    parquet.write_table(table({"text": ["caf\u00e9"]}), path, compression="none", use_dictionary=False)
    path.write_bytes(path.read_bytes().replace("\u00e9".encode(), b"\xff\xff"))
    with pytest.raises(BermoError, match="not a whole parquet file"):
        read_table(path)


def test_parquet_that_repeats_a_long_text_is_refused_before_the_memory_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "bomb.parquet"
    rows = pyarrow.DictionaryArray.from_arrays(
        pyarrow.array([0] * 5000, "int32"), pyarrow.array(["x" * (1 << 20)])
    )
    parquet.write_table(pyarrow.table({"text": rows}), path, compression="zstd")
    assert path.stat().st_size < 1 << 16
    monkeypatch.setattr(packed, "memory_bytes", lambda: 64 << 20)
    before = pyarrow.default_memory_pool().max_memory()
    with pytest.raises(BermoError, match="unpacks to more than"):
        read_table(path)
    assert pyarrow.default_memory_pool().max_memory() - before < 64 << 20


def test_parquet_with_any_byte_of_its_schema_changed_is_read_or_refused(tmp_path: Path) -> None:
    # pyarrow 26 describes a column of such a file by std::terminate, which ends the tests too.
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": ["good", None], "tags": [["x"], []]}), path)
    whole = path.read_bytes()
    start = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    refused = 0
    for at in range(start, start + 120):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 2]) + whole[at + 1 :])
        try:
            read_table(path)
        except BermoError as error:
            refused += str(path) in str(error)
    assert refused > 60
