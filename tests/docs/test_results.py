"""The pages that benchmarks' scripts make hold the numbers of their JSON."""

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts.tables.scores import SEMANTIC
from tests.docs.documents import ROOT, rows_of

RESULTS = ROOT / "results"


def section(text: str, heading: str) -> str:
    """Return what stands under a heading, up to the next of its kind."""
    return text.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def table_of(text: str, title: str) -> list[dict[str, str]]:
    """Return the table under a heading of the third kind."""
    after = text.split(f"### {title}\n")[1]
    return rows_of("\n".join(line for line in after.split("\n\n")[0].splitlines() if line.startswith("|")))


def test_the_page_of_pruning_is_what_its_script_makes_of_its_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = ROOT / "benchmarks" / "gpu_tables.py"
    monkeypatch.syspath_prepend(str(script.parent))
    monkeypatch.setattr(sys, "argv", [str(script), str(RESULTS / "gpu.json"), "--out", str(tmp_path)])
    runpy.run_path(str(script), run_name="__main__")
    for made in tmp_path.iterdir():
        assert made.read_text(encoding="utf-8") == (RESULTS / made.name).read_text(encoding="utf-8"), (
            made.name
        )


def test_the_page_of_probing_is_what_its_script_makes_of_its_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, numbers = ROOT / "benchmarks" / "probe_tables.py", RESULTS / "probing-gpu.json"
    (out := tmp_path / "out").mkdir()
    (to := tmp_path / "to").mkdir()
    monkeypatch.syspath_prepend(str(script.parent))
    words = [str(script), str(out), "--beside", str(numbers), "--to", str(to)]
    monkeypatch.setattr(sys, "argv", words)
    runpy.run_path(str(script), run_name="__main__")
    assert {made.name for made in to.iterdir()} >= {"probing.md", "probing-gpu.json"}
    for made in to.iterdir():
        assert made.read_text(encoding="utf-8") == (RESULTS / made.name).read_text(encoding="utf-8"), (
            made.name
        )


@pytest.fixture(scope="module")
def probing() -> tuple[str, Any]:
    """The page of probing and its numbers."""
    numbers = json.loads((RESULTS / "probing-gpu.json").read_text(encoding="utf-8"))
    return (RESULTS / "probing.md").read_text(encoding="utf-8"), numbers


@pytest.mark.parametrize(("encoder", "name"), [("gte", "gte-small"), ("box", "the box")])
def test_the_tables_of_frozen_layers_are_those_of_the_numbers(
    encoder: str, name: str, probing: tuple[str, Any]
) -> None:
    text, numbers = probing
    shown = {row["task"]: row for row in table_of(section(text, f"Frozen layers: {name}"), "Probes by group")}
    assert shown.keys() == {task["task"] for task in numbers["frozen"][encoder]}
    for task in numbers["frozen"][encoder]:
        row, best = shown[task["task"]], max(range(len(task["dev"])), key=task["dev"].__getitem__)
        assert int(row["best layer"]) == best
        for column, value in (
            ("its test", task["accuracy"][best]),
            ("last", task["accuracy"][-1]),
            ("mix", task["mix_accuracy"]),
            ("centre", task["centre"]),
            ("largest class", task["largest_class"]),
        ):
            assert float(row[column]) == pytest.approx(value, abs=0.0051), (task["task"], column)


FINETUNED = json.loads((RESULTS / "probing-gpu.json").read_text(encoding="utf-8"))["finetuned"]
NAMES = {"gte": "gte-small", "mpnet": "mpnet-base", "minilm": "MiniLM-L6", "box": "the box"}


@pytest.mark.parametrize("case", [case for case in FINETUNED if case.count("-") == 1 and "words" not in case])
def test_the_tables_of_fine_tuned_probes_are_those_of_the_numbers(
    case: str, probing: tuple[str, Any]
) -> None:
    text, numbers = probing
    encoder, spelling = case.split("-")
    cases = {"right": "lower case, as the vocabulary has it", "wrong": "capitals kept: unknown words"}
    heading = f"Fine-tuned: {NAMES[encoder]}, {cases[spelling]}"
    for row in table_of(section(text, heading), "Fine-tuned probes"):
        plain, mix = (
            {
                run["seed"]: run["last_score"]
                for run in numbers["finetuned"][case][f"{row['task']}-{arm}"]
                if run["diverged"] is None
            }
            for arm in ("plain", "mix")
        )
        seeds = plain.keys() & mix.keys()
        assert int(row["seeds"]) == len(seeds), row["task"]
        gain = sum(mix[seed] - plain[seed] for seed in seeds) / len(seeds)
        assert float(row["difference"]) == pytest.approx(gain, abs=0.0051), row["task"]


def test_unknown_shares_are_means_over_the_tasks_that_count(probing: tuple[str, Any]) -> None:
    text, numbers = probing
    names = {name: encoder for encoder, name in NAMES.items()}
    shown = [row for row in table_of(text, "The mix on the semantic tasks") if row["unknown %"] != "–"]
    assert len(shown) == len([case for case in FINETUNED if "words" not in case])
    for row in shown:
        spelling = row["case"].partition(",")[0]
        runs = numbers["finetuned"][f"{names[row['encoder']]}-{spelling}"]
        shares = [runs[f"{task}-plain"][0]["unknown_share"] for task in SEMANTIC if f"{task}-plain" in runs]
        assert float(row["unknown %"]) == pytest.approx(100 * sum(shares) / len(shares), abs=0.051)


def test_the_table_of_the_box_is_that_of_the_numbers(probing: tuple[str, Any]) -> None:
    text, numbers = probing
    shown = table_of(text, "The box on real data")
    assert [(row["task"], row["encoder"], row["score"]) for row in shown] == [
        (row["task"], row["encoder"], row["score"]) for row in numbers["box"]
    ]
