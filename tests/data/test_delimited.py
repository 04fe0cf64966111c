"""Columns apart by any separator, whatever the file's ending; a wrong separator is never taken."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bermo.data.read import read_blocks, read_table
from bermo.errors import BermoError
from bermo.fields import check
from bermo.spec import DataSpec

Write = Callable[[str, str], Path]
WANTED = {"text": ["one, two; three", "four | five"], "label": ["a", "b"]}


@pytest.mark.parametrize("separator", ["\t", ",", ";", "|"])
@pytest.mark.parametrize("ending", ["csv", "tsv", "txt"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_a_separator_is_recognised_whatever_the_ending(
    write: Write, separator: str, ending: str, line_end: str
) -> None:
    rows = [["text", "label"], *map(list, zip(*WANTED.values(), strict=True))]
    cells = [[f'"{cell}"' if separator in cell else cell for cell in row] for row in rows]
    table = read_table(write(f"a.{ending}", line_end.join(separator.join(row) for row in cells)))
    assert table.columns == WANTED
    assert table.lines == [2, 3]
    is_usual = separator == ("," if ending == "csv" else "\t")
    assert bool(table.notes) != is_usual


def test_the_note_names_the_separator(write: Write) -> None:
    table = read_table(write("a.csv", "text\tlabel\nx\t1\n"))
    assert table.notes == (
        "a.csv: its columns are apart by tab, as its first lines show (or name --separator)",
    )


@pytest.mark.parametrize(
    ("name", "text", "columns"),
    [
        # Commas in the text of every row, and in the header, do not hide the real separator.
        ("a.csv", "id;text, long;label\n1;a, b;x\n2;c, d;y\n", ["id", "text, long", "label"]),
        ("a.csv", "text, or title\tlabel\na, b, c\tx\nd\ty\n", ["text, or title", "label"]),
        # Separators of another kind inside quoted cells do not count.
        ("a.csv", 'text,label\n"a;b;c",x\n"d;e;f",y\n', ["text", "label"]),
        # A quoted cell may hold the separator and line ends.
        ("a.csv", 'text|label\n"a|\nb"|x\nc|y\n', ["text", "label"]),
        # A header alone in its separator: the rows that disagree are named, nothing is guessed.
        ("a.tsv", "text\tlabel\na, b\tx\nc\ty\n", ["text", "label"]),
        # Excel names its separator in a line of its own.
        ("a.csv", "sep=;\ntext;label\na;x\n", ["text", "label"]),
        ("a.csv", "sep=;\r\ntext;label\r\na;x\r\n", ["text", "label"]),
        # One column alone has no separator.
        ("a.csv", "text\none\ntwo\n", ["text"]),
        # A separator behind the last column.
        ("a.csv", "text;label;\na;x;\n", ["text", "label", "column 3"]),
    ],
)
def test_the_separator_is_the_one_by_which_all_rows_agree(
    write: Write, name: str, text: str, columns: list[str]
) -> None:
    assert list(read_table(write(name, text)).columns) == columns


def test_a_long_file_is_recognised_by_its_start(write: Write) -> None:
    rows = "".join(f"{'word ' * 200}{i}|{i % 2}\n" for i in range(200))
    table = read_table(write("a.csv", "text|label\n" + rows))
    assert len(table) == 200
    assert table.columns["label"][:2] == ["0", "1"]


def test_a_given_separator_is_taken(write: Write) -> None:
    path = write("a.csv", "text~label,x\na~b,c\n")
    assert read_table(path, separator="~").columns == {"text": ["a"], "label,x": ["b,c"]}
    assert read_table(path).columns == {"text~label": ["a~b"], "x": ["c"]}


def test_a_quotation_mark_is_text_in_tsv_but_not_in_csv_by_tabs(write: Write) -> None:
    text = 'text\tlabel\n"a ""b"""\tx\n'
    assert read_table(write("a.tsv", text)).columns["text"] == ['"a ""b"""']
    assert read_table(write("a.csv", text)).columns["text"] == ['a "b"']


def test_rows_that_do_not_fit_are_named_with_their_line(write: Write) -> None:
    with pytest.raises(BermoError, match=r"line 3: 3 columns, but 2"):
        read_table(write("a.csv", "text;label\na;x\nb;c;y\n"))
    with pytest.raises(BermoError, match=r"line 2: broken quoting.*In a \.tsv file a quotation mark is text"):
        read_table(write("b.csv", 'text\tlabel\n"open\tx\n'))


@pytest.mark.parametrize("text", [";;;\n;;;\n", ";", ",,\n", "\t\t\n\t\t\n"])
def test_a_file_of_separators_alone_is_refused(write: Write, text: str) -> None:
    with pytest.raises(BermoError, match=r"only separators|is empty"):
        read_table(write("a.csv", text))


def test_a_file_that_names_its_separator_and_nothing_more_is_refused(write: Write) -> None:
    path = write("a.csv", "sep=;\r")
    with pytest.raises(BermoError, match="has no rows"):
        read_table(path)
    with pytest.raises(BermoError, match="has no rows"):
        next(read_blocks(path, 3))


@pytest.mark.parametrize(("name", "character"), [("tab", "\t"), (r"\t", "\t"), ("pipe", "|"), ("^", "^")])
def test_a_separator_is_named_or_typed(name: str, character: str) -> None:
    assert check(DataSpec(separator=name)).separator_character == character


@pytest.mark.parametrize("name", ["||", "", "tabs", '"', "\n"])
def test_what_is_no_separator_is_refused(name: str) -> None:
    with pytest.raises(BermoError, match="separator must be tab, comma, semicolon, pipe or one character"):
        check(DataSpec(separator=name))


def test_a_separator_for_a_file_that_has_none_is_refused(write: Write) -> None:
    with pytest.raises(BermoError, match=r"--separator is for files of columns.*\.jsonl"):
        read_table(write("a.jsonl", '{"text": "a"}'), separator=",")
