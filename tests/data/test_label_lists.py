"""Several labels in a row are told from names that only look like them."""

import pytest

from bermo.data.label_lists import split_labels


@pytest.mark.parametrize(
    ("cells", "rows"),
    [
        (["a", "b"], None),
        (['["a", "b"]', '["a"]', "[]"], [("a", "b"), ("a",), ()]),
        (["['a', 'b']", "['b']"], [("a", "b"), ("b",)]),
        (['["a", "b"]', "b"], [("a", "b"), ("b",)]),
        (["[1, 2]", "[true]"], [("1", "2"), ("true",)]),
        (["a|b", "a", "b | c", "c"], [("a", "b"), ("a",), ("b", "c"), ("c",)]),
        (["a|b", "c|d"], None),
        (["[PAD]", "x"], None),
        (["[[1]]", "x"], None),
        (["[" * 10_000, "x"], None),
    ],
)
def test_lists_and_pipes_are_split(cells: list[str], rows: list[tuple[str, ...]] | None) -> None:
    assert split_labels(cells) == rows
