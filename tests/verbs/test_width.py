"""Lists, helps and tables fit a terminal of 80 columns; tests/report/test_evaluation.py has evaluate's."""

import io
import math
import re
from contextlib import suppress
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console

from bermo.cli import main
from bermo.recipes import RECIPES
from bermo.report.bench import print_bench
from bermo.report.terminal import results_table, seeds_table, weight_bars
from bermo.runs.statistics import summarise
from bermo.verbs import VERBS
from tests.results import seed_result
from tests.ship.rows import make_bench

WIDTH = 80
LONG = "paper/a-name-of-an-arm"


def widest(text: str) -> str:
    return max(text.splitlines(), key=cell_len)


def printed(thing: object) -> str:
    console = Console(file=io.StringIO(), width=WIDTH)
    console.print(thing)
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "words", [["--help"], ["list"], *([verb, "--help"] for verb in VERBS)], ids=lambda words: " ".join(words)
)
def test_helps_and_lists_fit(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    with suppress(SystemExit):  # argparse ends a help by itself
        main(words)
    assert cell_len(widest(capsys.readouterr().out)) <= WIDTH


def test_the_columns_of_the_lists_are_straight(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["list"]) == 0
    for part in capsys.readouterr().out.split("\n\n"):
        starts = {len(row.group()) for row in re.finditer(r"^  \S+ +", part, re.MULTILINE)}
        assert len(starts) == 1, part


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_fit(name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    assert main(["show", name]) == 0
    text = capsys.readouterr().out
    assert cell_len(widest(text)) <= WIDTH
    assert " ".join(text.split()).startswith(" ".join((RECIPES[name].__doc__ or "").split()))


@pytest.mark.parametrize("density", [math.nan, 0.1])
@pytest.mark.parametrize("fate", ["fine", "diverged", "undertrained"])
def test_results_of_seeds_fit_and_nothing_is_cut(density: float, fate: str) -> None:
    values = {"accuracy": 90.0, "macro_f1": 88.123, "matthews": 77.77, "f1": 91.5, "mean": 90.75}
    seed = replace(
        seed_result(10, 100.0),
        values=values,
        frozen_score=88.88,
        best_step=12_345,
        steps=25_000,
        encoder_density=0.2 if density < 1 else 1.0,
        density=density,
    )
    if fate != "fine":
        seed = replace(seed, **{fate: "every answer is the same label, positive"})
    text = printed(seeds_table(summarise([seed])))
    assert cell_len(widest(text)) <= WIDTH
    for part in (*list(values)[:4], "88.88", "12345 of 25000", "seed", "frozen", "best step", fate):
        assert part in text, text


def test_the_table_of_arms_fits() -> None:
    seeds = [
        replace(seed_result(k, 100.0 - k), seconds=123456.0, rows_per_second=9999.0) for k in range(1, 6)
    ]
    text = printed(results_table({LONG: summarise(seeds)}))
    assert cell_len(widest(text)) <= WIDTH
    assert "…" not in text.replace(" … ", "")


def test_the_table_of_a_bench_fits_and_cuts_no_number() -> None:
    result = make_bench({"runs/a-long-name-onnx-int8": 1234.5, LONG: 0.37}, {LONG: 1340.2}, batch=32)
    console = Console(file=io.StringIO(), width=WIDTH, highlight=False)
    print_bench(result, console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert cell_len(widest(text)) <= WIDTH
    for part in ("1340.2", "1234.50", "3336.49×", "86486.5", "accuracy", "rows/s"):
        assert part in text, text


def test_bars_of_a_deep_encoder_fit() -> None:
    assert cell_len(widest(weight_bars(list(range(100)), [0.01] * 100))) <= WIDTH
