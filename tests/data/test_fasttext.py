"""fastText's lines are read as labels and texts, also where a .txt file would be one text a line."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bermo.data.inputs import text_blocks
from bermo.data.load import own_task
from bermo.data.read import read_table

Write = Callable[[str, str], Path]


@pytest.mark.parametrize("ending", ["txt", "csv", "tsv"])
def test_lines_with_labels_of_fasttext_are_labels_and_texts(write: Write, ending: str) -> None:
    lines = "__label__good a fine, long film\n\n__label__bad  worse\tthan that\n__label__bad\nno label\n"
    table = read_table(write(f"a.{ending}", lines))
    assert table.columns == {
        "label": ["good", "bad", "bad", ""],
        "text": ["a fine, long film", "worse\tthan that", "", "no label"],
    }
    assert table.lines == [1, 3, 4, 5]
    assert "fastText" in table.notes[0]


def test_several_labels_of_fasttext_are_a_list(write: Write) -> None:
    table = read_table(write("a.txt", "__label__a __label__b one\n__label__a two\n"))
    assert table.columns == {"label": ['["a", "b"]', "a"], "text": ["one", "two"]}


def test_labels_of_fasttext_are_no_part_of_the_text_to_answer(write: Write) -> None:
    path = write("a.txt", "__label__good a fine film\n__label__bad worse\n")
    (block,) = text_blocks(path, own_task("classification"), ("text",), 9)
    assert block.columns["text"] == ["a fine film", "worse"]
