"""What is doubtful about a file is said with examples and their lines; a good file gets no sentence."""

from pathlib import Path

import pytest

from bermo.data.doubts import Source, find_doubts
from bermo.data.rows import TextRows
from bermo.data.table import Table

Cells = list[tuple[str, str]]


def _source(name: str, cells: Cells) -> Source:
    texts, labels = [a for a, _ in cells], [b for _, b in cells]
    table = Table(Path(name), {"text": texts, "label": labels}, list(range(2, len(cells) + 2)))
    return Source(table, TextRows(texts, None, labels))


GOOD = [("one", "a"), ("two", "b"), ("three", "a"), ("One\nline\tmore", "b")]


@pytest.mark.parametrize(
    ("train", "valid", "sentences"),
    [
        (GOOD, [("four", "a")], []),
        (GOOD, None, []),
        (
            [("one", "Pos"), ("two", "neg"), ("three", "pos"), ("four", "pos ")],
            None,
            ['t.csv: the labels "Pos" (line 2), "pos" (line 4), "pos " (line 5) differ only in capitals or'],
        ),
        ([("one", "very good"), ("two", "verygood")], None, ["differ only in capitals or blanks, but are 2"]),
        (
            [("one", "a"), ("two", "b"), ("One ", "b"), ("one", "a")],
            None,
            ['t.csv: 1 text has several labels (\'one\' is "a" in line 2, "b" in line 4).'],
        ),
        (
            [(f"t{i}", label) for i in range(5) for label in "ab"],
            None,
            ["t.csv: 5 texts have several labels ('t0' is \"a\" in line 2, \"b\" in line 3; 't1' "],
        ),
        (
            GOOD,
            [("TWO", "b"), ("new", "a")],
            ["v.csv: 1 of 2 texts is also in t.csv ('TWO', line 2 and line 3)"],
        ),
        (
            GOOD,
            GOOD,
            ["v.csv: all 4 validation texts are also in t.csv, so the score says how well they are"],
        ),
        (
            [("a\x00b", "a"), ("fine", "b")],
            [("c\x1b[31m", "a")],
            [
                "t.csv: 1 of 2 texts holds control characters, which no word has (line 2: 'a\\x00b')",
                "v.csv: 1 of 1 texts holds control characters, which no word has (line 2: 'c\\x1b[31m')",
            ],
        ),
        ([("caf\ufffd", "a"), ("b", "b")], None, ['1 of 2 texts holds "\ufffd", a lost character (line 2']),
        (
            [(f"t{i}", str(i)) for i in range(12)],
            None,
            ["t.csv: the labels are 12 different numbers and are"],
        ),
        ([(f"t{i}", str(i % 10)) for i in range(30)], None, []),
        (
            [*GOOD, ("five", "nan"), ("six", "N/A"), ("seven", "nan"), ("eight", "N/A")],
            None,
            ['t.csv: 4 labels are "nan" or "N/A" (line 6, line 7, line 8, …), which are learned as classes'],
        ),
        ([*GOOD, ("five", "none"), ("six", "none")], None, []),
        ([*GOOD, ("nan", "a"), ("NULL", "a")], None, ['t.csv: 2 texts are "nan" or "NULL" (line 6, line 7)']),
        (
            [("one", "a, b"), ("two", "b"), ("three", "a"), ("four", "b"), ("five", "a, b")],
            None,
            ['t.csv: the label "a, b" (line 2) is learned as one class. If it is several labels, pass'],
        ),
        ([("one", "Bonn, DE"), ("two", "Rome, IT"), ("three", "Bonn, DE"), ("four", "Rome, IT")], None, []),
        (
            [*((f"t{i}", "ab"[i % 2]) for i in range(14)), ("last", "rare")],
            [("six", "a"), ("seven", "a"), ("eight", "a")],
            [
                't.csv: 1 class has a single row ("rare" in line 16): too few to be learned',
                'v.csv: all 3 validation rows have the label "a"',
            ],
        ),
        (
            [('{"body": "one"}', "a"), ('["two"]', "b"), ('{"body": "three"}', "a"), ("{}", "b")],
            None,
            ['t.csv: every text is an object or a list of JSON (line 2: \'{"body": "one"}\')'],
        ),
    ],
)
def test_doubts_are_said_with_examples(train: Cells, valid: Cells | None, sentences: list[str]) -> None:
    found = find_doubts(_source("t.csv", train), valid and _source("v.csv", valid), "label")
    assert len(found) == len(sentences)
    for sentence, start in zip(found, sentences, strict=True):
        assert start in sentence


def test_few_numbers_are_a_scale_where_the_column_is_called_so() -> None:
    stars = _source("t.csv", [(f"t{i}", str(i % 5)) for i in range(30)])
    assert not find_doubts(stars, None, "label")
    assert "pass --task own/regression" in find_doubts(stars, None, "Stars")[0]


def test_numbers_are_not_held_against_each_other() -> None:
    source = Source(_source("t.csv", GOOD).table, TextRows(["one", "one"], None, [0.5, 0.7]))
    assert not find_doubts(source, None, "score")
