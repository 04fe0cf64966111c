"""The wish that picks a model: its grammar, and what is taken."""

import math
from dataclasses import replace

import pytest

from bermo.atlas.pick import Bound, Pick, pick_from, read_pick
from bermo.atlas.rows import BASELINE_GROUP, Atlas, Row, front
from bermo.atlas.spec import AtlasSpec, read_budget
from bermo.errors import BermoError
from bermo.fields import check


def make(name: str, kept: float, ms: float, mb: float, group: str = "pruning") -> Row:
    return Row(
        name=name,
        group=group,
        summary="",
        seeds=(1,),
        scores=(kept,),
        kepts=(kept,),
        same_labels=99.0,
        same_probabilities=99.0,
        megabytes=mb,
        parameters=1,
        nonzero=1,
        seconds=1.0,
        folder="",
        milliseconds=ms,
        rows_per_second=1000 / ms,
        latency_gain=8 / ms,
        speedup=8 / ms,
    )


ROWS = (
    make("dense", 100, 8, 100),
    make("int8", 99.5, 4, 25),
    make("small", 97.5, 1, 10),
    make("tf-idf", 98.5, 0.1, 3, BASELINE_GROUP),
)
ATLAS = Atlas(title="box", metric="accuracy", num_rows=10, machine="m", gpu=None, caption="c", rows=ROWS)


@pytest.mark.parametrize(
    ("text", "bounds", "aim"),
    [
        ("98 % of the score, smallest latency", [("score", 98)], "smallest latency"),
        ("98.5% of the score,10 MB,  Best  Score", [("score", 98.5), ("size", 10)], "best score"),
        ("5ms, 4 times the throughput, smallest size", [("latency", 5), ("throughput", 4)], "smallest size"),
        ("highest throughput", [], "highest throughput"),
    ],
)
def test_a_wish_is_bounds_and_one_aim(text: str, bounds: list[tuple[str, float]], aim: str) -> None:
    known = read_pick(text)
    assert [(bound.what, bound.value) for bound in known.bounds] == bounds
    assert known.aim == aim


@pytest.mark.parametrize("text", ["", "98 % of the score", "fast, best score", "best score, smallest size"])
def test_what_cannot_be_read_is_answered_with_the_grammar(text: str) -> None:
    with pytest.raises(BermoError, match=r'such as "98 % of the score, smallest latency"\. Bounds: '):
        check(AtlasSpec(pick=text))


def test_the_best_that_keeps_all_bounds_is_picked_and_baselines_are_only_named() -> None:
    picked = pick_from(read_pick("98 % of the score, smallest latency"), ATLAS)
    assert picked.row is not None
    assert picked.row.name == "int8"
    assert "tf-idf would do too" in picked.sentence
    assert pick_from(read_pick("best score"), ATLAS).row == ROWS[0]
    none = pick_from(read_pick("1 MB, best score"), ATLAS)
    assert none.row is None
    assert "No model keeps" in none.sentence
    untimed = Pick(bounds=(Bound(what="score", value=1),), aim="smallest latency")
    assert not untimed.keeps(replace(ROWS[1], speedup=math.nan))


def test_the_front_is_what_no_other_row_beats_in_both() -> None:
    gains = [row.speedup for row in ROWS]
    slow = [
        index
        for index, row in enumerate(ROWS)
        if not any(other.kept > row.kept and other.speedup > row.speedup for other in ROWS)
    ]
    assert sorted(front(ROWS, gains)) == slow


def test_a_budget_is_a_time() -> None:
    assert [read_budget(text) for text in ("2h", "1.5 min", "90s")] == [7200, 90, 90]
    for wrong in ("two hours", "0h", "5"):
        with pytest.raises(BermoError, match="such as 2h, 30min or 90s"):
            check(AtlasSpec(budget=wrong))
