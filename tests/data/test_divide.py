"""One file is divided by the same share of each class, always in the same way, equal texts on one side."""

from collections import Counter
from random import Random

import pytest

from bermo.data.divide import divide
from bermo.data.rows import TextRows, pick
from bermo.errors import BermoError


def _rows(**counts: int) -> TextRows:
    pairs = [(f"text {i} of {label}", label) for label, count in counts.items() for i in range(count)]
    return TextRows([text for text, _ in pairs], None, [label for _, label in pairs])


@pytest.mark.parametrize("share", [0.05, 0.1, 0.25, 0.5, 0.8])
def test_each_class_gives_its_share_to_within_a_row(share: float) -> None:
    rows = _rows(a=700, b=250, c=47, d=3)
    parts = divide(rows, share, "x.csv")
    assert sorted(parts.train + parts.valid) == list(range(1000))
    assert abs(len(parts.valid) - 1000 * share) <= 2
    held = Counter(rows.labels[i] for i in parts.valid)  # type: ignore[index]
    for label, count in (("a", 700), ("b", 250), ("c", 47), ("d", 3)):
        assert abs(held[label] - count * share) <= 1.5


def test_a_class_of_few_rows_keeps_one_for_training() -> None:
    rows = _rows(a=300, **{f"rare{i}": 1 for i in range(50)}, **{f"pair{i}": 2 for i in range(50)})
    parts = divide(rows, 0.5, "x.csv")
    trained = {rows.labels[i] for i in parts.train}  # type: ignore[index]
    assert trained == set(rows.labels or ())


def test_many_small_classes_still_give_their_share_together() -> None:
    assert len(divide(_rows(**{f"c{i}": 5 for i in range(100)}), 0.1, "x.csv").valid) == 50


def test_the_division_depends_on_the_texts_alone() -> None:
    rows = _rows(a=60, b=60)
    order = list(range(120))
    Random(0).shuffle(order)
    shuffled = pick(rows, order)
    assert isinstance(shuffled, TextRows)
    held = {rows.first[i] for i in divide(rows, 0.2, "x").valid}
    assert held == {shuffled.first[i] for i in divide(shuffled, 0.2, "x").valid}
    assert held != set(rows.first[:24])


def test_equal_texts_stay_on_one_side() -> None:
    generator = Random(0)
    texts = [f"Text {generator.randrange(80)}" + " " * generator.randrange(3) for _ in range(400)]
    texts = [text.upper() if i % 3 else text for i, text in enumerate(texts)]
    rows = TextRows(texts, None, [str(i % 3) for i in range(400)])
    parts = divide(rows, 0.2, "x.csv")
    sides = [{texts[i].lower().strip() for i in part} for part in (parts.train, parts.valid)]
    assert not sides[0] & sides[1]
    assert 40 <= len(parts.valid) <= 120


def test_a_text_that_fills_a_class_does_not_move_other_classes() -> None:
    rows = TextRows(["spam"] * 500 + [f"ham {i}" for i in range(100)], None, ["s"] * 500 + ["h"] * 100)
    parts = divide(rows, 0.1, "x.csv")
    assert all(i >= 500 for i in parts.valid)
    assert 9 <= len(parts.valid) <= 12


def test_pairs_and_numbers_are_divided_too() -> None:
    rows = TextRows(["same"] * 100, [f"other {i}" for i in range(100)], [i / 7 for i in range(100)])
    parts = divide(rows, None, "x.csv")
    assert (len(parts.train), len(parts.valid)) == (90, 10)


@pytest.mark.parametrize("count", [24, 30, 60, 90])
def test_of_few_rows_as_many_validate_as_a_score_needs(count: int) -> None:
    rows = _rows(a=count // 2, b=count // 2)
    parts = divide(rows, None, "x.csv")
    assert 10 <= len(parts.valid) <= 12
    assert {rows.labels[i] for i in parts.valid} == {"a", "b"}  # type: ignore[index]
    assert parts.share > 0.1


def test_too_few_rows_are_refused_with_what_to_do() -> None:
    with pytest.raises(BermoError, match=r"x\.csv: --split 0\.1 gives \d of 16 rows to validation"):
        divide(_rows(a=8, b=8), None, "x.csv")
    with pytest.raises(BermoError, match=r"--split 0\.1 gives 6 of 60 rows .* a larger --split"):
        divide(_rows(a=30, b=30), 0.1, "x.csv")


def test_too_few_different_texts_are_told_as_the_reason() -> None:
    texts = [f"text {i % 4}" for i in range(100)]
    with pytest.raises(
        BermoError, match=r"Only 4 of the texts are different, and equal ones stay on one side"
    ):
        divide(TextRows(texts, None, ["a", "b", "c", "d"] * 25), None, "x.csv")
