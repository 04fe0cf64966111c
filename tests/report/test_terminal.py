"""What the terminal shows: an estimate, the spread over seeds, a bar for each layer."""

import io
import math
import re
from dataclasses import replace

import pytest
from rich.console import Console

from bermo.report import terminal
from bermo.report.terminal import (
    TerminalDisplay,
    about_chance,
    about_choice,
    about_frozen,
    duration,
    results_table,
    seeds_table,
    weight_bars,
)
from bermo.runs.statistics import summarise
from tests.results import seed_result


def printed(thing: object) -> str:
    console = Console(file=io.StringIO(), width=80)
    console.print(thing)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_results_show_mean_deviation_interval_and_divergence() -> None:
    result = summarise([seed_result(1, 90.0), seed_result(2, 92.0), seed_result(3, 50.0, "stuck")])
    text = printed(results_table({"mix": result}))
    for part in ("91.00", "1.41", "78.29 … 100.00", "±", "diverged"):
        assert part in text
    assert "diverged" in printed(seeds_table(result))
    assert "…" not in text.replace("78.29 … 100.00", ""), "nothing is cut off at 80 columns"


def test_the_last_evaluations_stand_beside_those_that_were_chosen() -> None:
    seeds = [replace(seed_result(seed, 90.0 + seed), last_score=89.0 + seed) for seed in (1, 2, 3)]
    said = about_choice({"mix": summarise(seeds)})
    assert said.endswith("Last evaluations: mix 91.00 (88.52 … 93.48).")
    assert about_choice({"one": summarise([seed_result(1, 90.0)])}) == ""
    assert about_choice({"same": summarise([seed_result(1, 90.0), seed_result(2, 92.0)])}) == ""


def test_a_pruned_arm_shows_what_was_kept() -> None:
    pruned = replace(seed_result(1, 80.0), encoder_density=0.10127)
    text = printed(results_table({"l0-plain": summarise([pruned])}))
    assert "kept" in text
    assert "10.1%" in text
    assert "10.1%" in printed(seeds_table(summarise([pruned])))


def test_seeds_that_never_beat_the_frozen_encoder_are_named() -> None:
    kept = replace(seed_result(1, 65.0), frozen_score=65.0, best_step=0)
    better = replace(kept, seed=2, best_step=7)
    assert about_frozen(summarise([kept])).startswith("Seed 1: no evaluation was above the frozen encoder's")
    assert about_frozen(summarise([kept, better, replace(kept, seed=3)])).startswith("Seeds 1, 3: no eval")
    assert about_frozen(summarise([better])) == ""
    assert about_frozen(summarise([replace(kept, frozen_score=math.nan)])) == ""


def test_seeds_whose_answers_are_no_better_than_guessing_are_named() -> None:
    lost = replace(seed_result(1, 45.0), values={"accuracy": 45.0, "matthews": -15.0})
    assert about_chance(summarise([lost])).startswith("Seed 1: on the validation rows the answers are no b")
    assert "(Matthews -15.00)" in about_chance(summarise([lost]))
    assert about_chance(summarise([replace(lost, undertrained="the loss is that of guessing")])) == ""
    assert about_chance(summarise([replace(lost, values={"accuracy": 70.0, "matthews": 40.0})])) == ""
    assert about_chance(summarise([replace(lost, values={"pearson": -3.0})])) == ""


def test_kept_is_the_share_that_density_asks_for_and_seeds_together_share_their_seconds() -> None:
    pair = [
        replace(seed_result(seed, 80.0), encoder_density=0.104, density=0.1, seconds=600.0, together=2)
        for seed in (1, 2)
    ]
    text = printed(results_table({"mix": summarise(pair)}))
    assert "10.0%" in text
    assert text.split()[-2] == "600"


def test_the_longest_bar_is_the_largest_weight() -> None:
    lines = weight_bars([0, 3, 12], [0.2, 0.5, 0.3]).splitlines()
    lengths = [line.count("█") for line in lines]
    assert lengths == [16, 40, 24]
    assert "embeddings" in lines[0]
    assert "layer 12" in lines[2]


def test_a_pipe_gets_lines_with_an_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 10.0, 40.0])
    monkeypatch.setattr(terminal.time, "monotonic", lambda: next(clock))
    console = Console(file=io.StringIO(), width=120)
    display = TerminalDisplay(console)
    display.start("training", 100, 0)
    display.step(5, 0.7)
    display.step(20, 0.6)
    display.close()
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert text == "training 20 of 100 loss 0.6000 about 3 min left\n"


def test_a_terminal_shows_which_of_the_two_times_is_left() -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True, no_color=True)
    display = TerminalDisplay(console)
    display.start("training", 100, 0)
    display.step(20, 0.6)
    display.close()
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert re.search(r"0:00:0\d · -:--:-- left", text), text


def test_durations_read_as_a_person_says_them() -> None:
    assert [duration(s) for s in (7, 150, 7200)] == ["7 s", "2 min", "2.0 h"]
