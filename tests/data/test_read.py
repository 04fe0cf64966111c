"""Every format comes out as the same table; every broken file is named with its line."""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bermo.data.read import read_table
from bermo.errors import BermoError

Write = Callable[[str, str], Path]
COLUMNS = {"text": ['He said "no", twice', "über\u2028alles"], "label": ["1", "0"]}


def _as(kind: str, folder: Path) -> Path:
    """Write COLUMNS in one of the formats, with care for its own rules."""
    path = folder / f"rows.{kind}"
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in zip(*COLUMNS.values(), strict=True)]
    match kind:
        case "tsv":
            path.write_text("text\tlabel\n" + "".join("\t".join(r.values()) + "\n" for r in rows))
        case "csv":
            lines = ['"{}",{}'.format(r["text"].replace('"', '""'), r["label"]) for r in rows]
            path.write_text("text,label\n" + "\n".join(lines))
        case "jsonl":
            path.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows))
        case "json":
            path.write_text(json.dumps(rows))
        case "parquet":
            pyarrow = pytest.importorskip("pyarrow")
            from pyarrow import parquet

            parquet.write_table(pyarrow.table(COLUMNS), path)
    return path


@pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl", "json", "parquet"])
def test_all_formats_give_the_same_table(kind: str, tmp_path: Path) -> None:
    assert read_table(_as(kind, tmp_path)).columns == COLUMNS


def test_byte_order_mark_and_windows_line_ends_leave_no_trace(write: Write) -> None:
    table = read_table(write("a.tsv", "\ufefftext\tlabel\r\none\t1\r\n\r\ntwo\t0\r\n"))
    assert table.columns == {"text": ["one", "two"], "label": ["1", "0"]}
    assert table.lines == [2, 4]


def test_a_quotation_mark_in_tsv_is_text(write: Write) -> None:
    table = read_table(write("a.tsv", 'text\tlabel\n"an open quote\t1\nnext\t0\n'))
    assert table.columns["text"] == ['"an open quote', "next"]


def test_csv_cells_may_hold_line_breaks_and_lines_are_still_counted(write: Write) -> None:
    table = read_table(write("a.csv", 'text,label\n"one\ntwo",1\nthree,0\n'))
    assert table.columns["text"] == ["one\ntwo", "three"]
    assert table.lines == [2, 4]


def test_a_cell_longer_than_the_csv_modules_limit_is_read(write: Write) -> None:
    table = read_table(write("a.csv", "text,label\n" + "x" * 200_000 + ",1\n"))
    assert len(table.columns["text"][0]) == 200_000


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.tsv", "text\tlabel\none\t1\ntwo\n", r"a\.tsv, line 3: 1 columns, but 2 were expected"),
        ("a.csv", "text,label\none,1\na,b,c\n", r"a\.csv, line 3: 3 columns, but 2"),
        ("a.csv", 'text,label\none,1\n"open,0\n', r"a\.csv, line 3: broken quoting"),
        ("a.jsonl", '{"text": "a"}\n{"text": \n', r"a\.jsonl, line 2: not JSON"),
        ("a.json", '["a"]', r"row 1: an object"),
        ("a.tsv", "", r"a\.tsv is empty"),
        ("a.tsv", " \n\n", r"a\.tsv is empty"),
        ("a.tsv", "text\tlabel\n", r"has no rows, only a header"),
        ("a.json", "[]", r"has no rows"),
        ("a.tsv", "text\ttext\na\tb\n", r'two columns are called "text"'),
        ("a.doc", "x", r'ends in ".doc".*Known: .tsv.*packed: .gz .bz2 .xz'),
        ("a.xls", "x", r'ends in ".xls".*Save it as .xlsx or as CSV'),
        ("a.csv.zip", "x", r'ends in ".zip".*Unpack it'),
        ("a.parquet.gz", "x", r'ends in ".gz".*Known'),
        ("a.gz", "x", r'ends in ".gz".*Known'),
        ("a.pkl", "x", r"pickle are never opened"),
    ],
)
def test_a_broken_file_is_named_with_its_line(write: Write, name: str, text: str, message: str) -> None:
    with pytest.raises(BermoError, match=message):
        read_table(write(name, text))


def test_a_header_of_very_many_columns_is_checked_at_once(write: Write) -> None:
    names = [f"c{number}" for number in range(60_000)]
    path = write("a.csv", ",".join([*names, "c7"]) + "\n")
    began = time.process_time()
    with pytest.raises(BermoError, match='two columns are called "c7"'):
        read_table(path)
    # One by one it would take a minute.
    assert time.process_time() - began < 4


def test_a_missing_file_gets_the_nearest_name(write: Write, tmp_path: Path) -> None:
    write("train.tsv", "x")
    with pytest.raises(BermoError, match=r'Did you mean "train\.tsv"\?'):
        read_table(tmp_path / "trian.tsv")
    with pytest.raises(BermoError, match=r"the folder .* does not exist"):
        read_table(tmp_path / "nowhere" / "train.tsv")
    (tmp_path / "b.tsv").mkdir()
    with pytest.raises(BermoError, match="is a folder"):
        read_table(tmp_path / "b.tsv")
    (tmp_path / "folder").mkdir()
    with pytest.raises(BermoError, match="is a folder"):
        read_table(tmp_path / "folder")
    with pytest.raises(BermoError, match=r"plain has no ending\. Known: \.tsv"):
        read_table(write("plain", "text\tlabel\n"))


def test_a_missing_column_gets_the_nearest_name_and_all_that_are_there(write: Write) -> None:
    table = read_table(write("a.tsv", "sentence\tlabel\na\t1\n"))
    with pytest.raises(BermoError, match=r'no column "sentense".*"sentence".*Its columns: "sentence", "lab'):
        table.column("sentense")
    with pytest.raises(BermoError, match=r'no column "zq"\. Its columns'):
        table.column("zq")


def test_parquet_without_pyarrow_names_the_extra(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(BermoError, match=r"bermo\[parquet\]"):
        read_table(write("a.parquet", "x"))


def test_a_torn_parquet_file_is_named(write: Write) -> None:
    pytest.importorskip("pyarrow")
    with pytest.raises(BermoError, match="not a whole parquet file"):
        read_table(write("a.parquet", "PAR1 and no more"))


def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(BermoError, match="is a pipe or a device, not a file"):
        read_table(tmp_path / "pipe.csv")
