"""Goals are read as people write them, and the pick is the best that meets one, or the nearest."""

from dataclasses import replace

import pytest

from bermo.errors import BermoError
from bermo.report.bench import bench_findings, points
from bermo.ship.bench.measured import Bench, Measured, Timing
from bermo.ship.bench.run import front
from bermo.ship.bench.spec import BenchSpec
from bermo.ship.compress.goal import Goal, passed_over, pick, read_goal


def make_row(name: str, megabytes: float, score: float, milliseconds: float) -> Measured:
    timing = Timing(
        batch=1,
        length=8,
        calls=3,
        p50=milliseconds,
        p95=milliseconds,
        p99=milliseconds,
        rows_per_second=1000 / milliseconds,
        rounds=(milliseconds,),
    )
    return Measured(
        name=name,
        form="onnxruntime",
        precision="int8",
        device="cpu",
        megabytes=megabytes,
        peak_memory_mb=1,
        score=score,
        timings=(timing,),
    )


@pytest.fixture
def found() -> Bench:
    rows = (
        make_row("dense", 100, 91, 10),
        make_row("int8", 30, 90, 5),
        make_row("half", 20, 88, 3),
        make_row("worse", 19, 80, 4),
        make_row("tenth", 9, 70, 1),
    )
    spec = BenchSpec(batches=(1,), lengths=(8,))
    return Bench(spec=spec, metric="accuracy", threads=1, machine="m", versions={}, rows=rows)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("5ms", None, None), Goal(what="latency", value=5)),
        (("0.5 s", None, None), Goal(what="latency", value=500)),
        ((None, "4x", None), Goal(what="speedup", value=4)),
        ((None, "2.5", None), Goal(what="speedup", value=2.5)),
        ((None, None, "10MB"), Goal(what="size", value=10)),
        ((None, None, "500 kB"), Goal(what="size", value=0.5)),
    ],
)
def test_a_goal_is_read(given: tuple[str | None, ...], expected: Goal) -> None:
    assert read_goal(*given) == expected


@pytest.mark.parametrize(
    "given",
    [(None, None, None), ("5ms", "4", None), ("5", None, None), (None, "-1", None), (None, None, "1.2.3MB")],
)
def test_a_goal_that_is_none_or_two_or_unclear_is_an_error(given: tuple[str | None, ...]) -> None:
    with pytest.raises(BermoError, match=r"--(latency|speedup|size)"):
        read_goal(*given)


@pytest.mark.parametrize(
    ("goal", "name", "is_met"),
    [
        (Goal(what="latency", value=4), "half", True),
        (Goal(what="speedup", value=2), "int8", True),
        (Goal(what="size", value=19.5), "worse", True),
        (Goal(what="size", value=5), "tenth", False),
        (Goal(what="speedup", value=20), "tenth", False),
    ],
)
def test_the_best_that_meets_the_goal_is_picked(found: Bench, goal: Goal, name: str, is_met: bool) -> None:
    row, met = pick(goal, found)
    assert (row.name, met) == (name, is_met)


@pytest.mark.parametrize(
    ("num_scored", "name"), [(120, "small onnx-int8"), (2000, "small onnx"), (0, "small onnx")]
)
def test_a_row_or_two_do_not_decide_between_forms_of_one_model(num_scored: int, name: str) -> None:
    rows = (
        make_row("dense", 100, 91, 10),
        make_row("small onnx", 20, 90, 5),
        make_row("small onnx-int8", 20, 88.5, 2),
        make_row("smaller onnx-int8", 10, 89, 1),
    )
    spec = BenchSpec(batches=(1,), lengths=(8,))
    found = Bench(
        spec=spec,
        metric="accuracy",
        threads=1,
        machine="m",
        versions={},
        rows=rows,
        num_scored=num_scored,
    )
    goal = Goal(what="size", value=30)
    row, _ = pick(goal, found)
    assert row.name == name
    other = passed_over(goal, found, row)
    assert (other is not None and other.name) == ("small onnx" if num_scored == 120 else False)


def test_the_front_holds_what_nobody_beats(found: Bench) -> None:
    assert [found.rows[place].name for place in front(found)] == ["tenth", "half", "int8", "dense"]


def test_ratios_are_against_the_first(found: Bench) -> None:
    assert found.speedup(found.rows[1]) == pytest.approx(2)
    assert found.latency_gain(found.rows[4]) == pytest.approx(10)
    assert found.size_gain(found.rows[2]) == pytest.approx(5)


def test_findings_hold_the_table_and_the_front(found: Bench) -> None:
    sections = {section.title: section for section in bench_findings(found, "Bench").sections}
    assert sections["Score against latency"].figures[0].front == front(found)
    table = sections["Side by side"].figures[0]
    assert len(table.rows) == 5
    # Every column has a name to sort by, and numbers are sorted by value.
    assert all(table.columns)
    assert all(not isinstance(cell, str) for row in table.rows for cell in row[1:])


def test_latencies_far_apart_are_drawn_on_a_logarithmic_axis(found: Bench) -> None:
    assert not points(found).is_log
    wide = replace(found, rows=(make_row("slow", 100, 91, 10.1), *found.rows[1:]))
    assert points(wide).is_log
