"""The tables of benchmarks/gpu_tables.py show the numbers of a gathered JSON, and nothing else."""

import importlib
import json
import math
import statistics
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from bermo.recipes import gpu
from bermo.recipes.core import PAPER_SEEDS
from bermo.spec import RunSpec, replace_in

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
# From a printed table of Student's t, 97.5 %.
T_OF_4 = 2.776445
PLAIN, MIX = (85.0, 86.0, 84.0, 85.5, 84.5), (86.0, 86.5, 85.5, 86.0, 86.5)


@pytest.fixture(scope="module")
def tables() -> Iterator[ModuleType]:
    sys.path.insert(0, str(BENCHMARKS))
    yield importlib.import_module("gpu_tables")
    sys.path.remove(str(BENCHMARKS))


def test_a_gathered_seed_says_why_it_failed_in_whichever_way(tables: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "arm" / "seed-9").mkdir(parents=True)
    reason = 'every prediction is "1" after 8 steps'
    result = {"seed": 9, "last_score": 50.9, "diverged": None, "undertrained": reason}
    (tmp_path / "arm" / "spec.json").write_text("{}", encoding="utf-8")
    (tmp_path / "arm" / "seed-9" / "result.json").write_text(json.dumps(result), encoding="utf-8")
    (seed,) = importlib.import_module("gather").run(tmp_path / "arm")["seeds"]
    assert seed["diverged"] == reason


def run(spec: RunSpec, scores: tuple[float | None, ...]) -> dict[str, Any]:
    """A run as gather.py writes it; a score of None is a seed that has not ended."""
    is_mix = spec.model.mix.kind != "none"
    seeds = []
    for seed, score in zip(PAPER_SEEDS, scores, strict=False):
        made: dict[str, Any] = {"name": f"seed-{seed}"}
        if score is not None:
            evaluations = [
                [10, 0.6, 1.0, 2.0, None],
                [10, None, None, None, score - 1],
                [20, 0.5, 0.1, 1.0, None],
                [20, None, None, None, score],
            ]
            made |= {
                "seed": seed,
                "score": score,
                "values": {"matthews": 2 * (score - 50.0)},
                "last_score": score,
                "steps": 20,
                "seconds": 1.0,
                "together": 5,
                "diverged": 'every prediction is "1"' if score == 50.0 else None,
                "curve": evaluations,
                "mix_weights": [0.25] * 4 if is_mix else [1.0],
                "encoder_density": 0.1,
                "encoder_kept": 1234,
            }
        seeds.append(made)
    fixed = json.loads(json.dumps(asdict(spec)))
    return {"spec": fixed, "over_seeds": {}, "seeds": seeds}


def gathered(stability: tuple[float | None, ...]) -> dict[str, Any]:
    methods, lengths = gpu.pruning_methods().arms, gpu.convergence().arms
    dense, baselines = gpu.dense().arms, gpu.baselines().arms
    rte = replace_in(methods["score-plain"], data={"task": "rte"}, train={"epochs": 10.0})
    return {
        "ten": run(gpu.stability().arms["size-mix"], stability),
        "score": run(methods["score-plain"], (50.0,) * 5),
        "three-plain": run(methods["size-plain"], PLAIN),
        "three-mix": run(methods["size-mix"], MIX),
        "one-plain": run(lengths["1-epochs-plain"], tuple(s - 4 for s in PLAIN)),
        "one-mix": run(lengths["1-epochs-mix"], tuple(s - 4 for s in MIX)),
        "dense": run(dense["plain"], (91.0, 91.2, 91.4, 91.6, 91.8)),
        "cut": run(baselines["first-2-plain"], tuple(s - 3 for s in PLAIN)),
        "rte": run(rte, (53.0, 53.5, 60.0, 61.0, 47.0)),
        "cola": run(replace_in(methods["soft-mix"], data={"task": "cola"}), MIX),
        "begun": run(methods["l0-mix"], (None,) * 5),
        "other": run(replace_in(methods["soft-mix"], train={"lr": 1e-4}), MIX),
    }


def written(tables: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch, content: object) -> str:
    (folder / "gpu.json").write_text(json.dumps(content))
    monkeypatch.setattr(sys, "argv", ["gpu_tables", str(folder / "gpu.json"), "--out", str(folder / "out")])
    tables.main()
    return (folder / "out" / "gpu.md").read_text(encoding="utf-8").replace("\n  ", " ")


@pytest.fixture
def text(tables: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    return written(tables, tmp_path, monkeypatch, gathered((88.0,) * 5 + (89.0,) * 5))


def interval(values: list[float]) -> str:
    mean, half = statistics.mean(values), T_OF_4 * statistics.stdev(values) / math.sqrt(5)
    return f"{mean - half:.2f} … {mean + half:.2f}"


def test_means_and_intervals_are_those_of_the_seeds(text: str) -> None:
    gaps = [mix - plain for mix, plain in zip(MIX, PLAIN, strict=True)]
    half = T_OF_4 * statistics.stdev(gaps) / math.sqrt(5)
    plain, mix = f"85.00 ({interval(list(PLAIN))})", f"86.10 ({interval(list(MIX))})"
    assert f"{plain} | 70.0 | 10.0 % | 0 of 5 | {mix} | 72.2 | 10.0 %" in text
    assert f"+1.10 ({1.1 - half:+.2f} … {1.1 + half:+.2f}, 5 pairs" in text
    # 2 of 3 layers, a tenth of each.
    assert "first 2 layers, plain, 3 epochs | 1,234 | 6.7 %" in text
    assert "against first 2 layers, plain, 3 epochs: +3.00 (+3.00 … +3.00" in text


def test_seeds_that_were_given_up_are_told_with_the_density_they_stopped_at(
    tables: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = replace_in(gpu.stability().arms["score-plain"], train={"give_up": 3})
    content = gathered((88.0,) * 10) | {"given": run(spec, (50.0,) * 9 + (80.0,))}
    text = written(tables, tmp_path, monkeypatch, content)
    sentence = (
        "movement, by score, plain, 10 epochs: 9 seeds were given up after 3 evaluations in a row"
        " at one answer to everything: 10.0 % kept, step 20."
    )
    assert sentence in text


@pytest.mark.parametrize(
    ("scores", "shown"),
    [
        ((88.0,) * 5 + (89.0,) * 5, "10 of 10 | 88.50"),
        ((91.0,) * 9 + (50.0,), "9 of 10 | 91.00"),
        ((91.0,) * 9 + (51.8,), "10 of 10 | 87.08"),
        ((88.0,) * 9, "9 of 9 | 88.00"),
    ],
)
def test_the_row_on_stability_counts_the_seeds_that_survive(
    tables: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    scores: tuple[float, ...],
    shown: str,
) -> None:
    text = written(tables, tmp_path, monkeypatch, gathered(scores))
    (row,) = (
        line
        for line in text.splitlines()
        if line.startswith("| movement, by size · σ(score), mix, 10")
        and " of " in line
        and "…" not in line.split("|")[2]
        and line.count("|") > 12
    )
    assert f"| {shown} |" in row


def test_seeds_are_dead_whose_answers_are_all_the_same(text: str) -> None:
    (row,) = (line for line in text.splitlines() if line.startswith("| movement, by score | 54.90"))
    # RTE: 47.0 is under the most common answer's 52.71, and yet not one answer; Matthews is told beside.
    assert "| 9.8 |" in row
    assert "| 0 of 5 |" in row
    assert "50.00 †" in text
    assert "(Table 4)" in text


def test_epochs_for_the_same_score_lie_on_straight_lines_between_means(text: str) -> None:
    # Plain reaches its best, 85.0, at three epochs; the mix has 82.1 after one and 86.1 after three: 1 + 2 ·
    # 2.9 / 4 = 2.45.
    assert "To 85.00, the best mean that both reach, plain needs 3.00 epochs and the mix 2.45: 1.22 ×" in text


def test_what_is_unfinished_missing_or_otherwise_set_is_named(text: str) -> None:
    assert "- begun: seed-9, seed-25, seed-39, seed-52, seed-59" in text
    assert "- no finished run: sst2, L0, mix, 3 epochs" in text
    assert "- no finished run: sst2, movement, by size · σ(score), plain, taught, 10 epochs" in text
    assert "| other | train.lr=0.0001 | 5 of 5 | 86.10 |" in text
    assert "| cola | task cola | 5 of 5 | 86.10 |" in text
    assert "No task has both arms finished" in text
    assert "| L0 |" not in text
    # Its only run has another rate.
    assert "| soft movement |" not in text


def test_figures_are_drawn_and_linked_where_their_runs_are(text: str, tmp_path: Path) -> None:
    drawn = {path.name for path in (tmp_path / "out").glob("*.svg")}
    assert drawn == {
        "gpu-stability-size.svg",
        "gpu-stability-score.svg",
        "gpu-methods.svg",
        "gpu-mix.svg",
        "gpu-epochs.svg",
    }
    assert all(f"]({name})" in text for name in drawn)
    curves = (tmp_path / "out" / "gpu-stability-size.svg").read_text(encoding="utf-8")
    # Score, loss and gradient norm of ten seeds.
    assert curves.count('class="thin"') == 3 * 10


def test_a_file_of_something_else_is_refused_in_a_sentence(
    tables: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        written(tables, tmp_path, monkeypatch, {"a": 1})
    assert "is not what benchmarks/gather.py writes" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
