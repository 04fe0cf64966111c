"""The page of benchmarks/probe_tables.py shows a folder's runs: means, paired differences, the verdict."""

import importlib
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType

import pytest

from bermo.recipes.core import beside_plain
from bermo.runs.results import write_result
from bermo.runs.rows import METRICS_FILE, write_rows
from bermo.spec import DataSpec, RunSpec
from scripts.tables.numbers import read
from tests.results import make_result

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PLAIN = {9: 90.0, 39: 91.0, 63: 92.0, 77: 91.5, 96: 90.5}


@pytest.fixture(scope="module")
def tables() -> Iterator[ModuleType]:
    sys.path.insert(0, str(BENCHMARKS))
    yield importlib.import_module("probe_tables")
    sys.path.remove(str(BENCHMARKS))


@pytest.fixture
def xprobe(tmp_path: Path) -> Path:
    folder = tmp_path / "xprobe"
    folder.mkdir()
    rows = [
        f"{part}\t{label}\t{label} {part} {k}"
        for part in ("tr", "va", "te")
        for k in range(4)
        for label in ("PAST", "PRES")
    ]
    (folder / "past_present.txt").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return folder


def write_run(folder: Path, spec: RunSpec, scores: dict[int, float], mix: list[float]) -> None:
    folder.mkdir(parents=True)
    made = make_result(scores)
    seeds = [replace(one, mix_weights=mix, mix_layers=list(range(len(mix)))) for one in made.seeds]
    fixed = json.loads(json.dumps(asdict(spec)))
    (folder / "spec.json").write_text(json.dumps({"spec": fixed, "data": "0"}), encoding="utf-8")
    write_result(folder / "result.json", replace(made, seeds=seeds))
    for one in seeds:
        (folder / f"seed-{one.seed}").mkdir()
        write_result(folder / f"seed-{one.seed}" / "result.json", one)
        write_rows(folder / f"seed-{one.seed}" / METRICS_FILE, [{"step": one.steps}])


def ask(tables: ModuleType, monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", ["probe_tables.py", *map(str, arguments)])
    tables.main()


def test_the_gain_of_a_mix_and_of_unknown_words_is_told(
    tables: ModuleType, xprobe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, to = tmp_path / "out", tmp_path / "to"
    to.mkdir()
    arms = beside_plain(RunSpec(data=DataSpec(task="probe/tense", folder="xprobe"))).arms
    gains = {"right": (0.1, 0.3, 0.2, 0.2, 0.2), "wrong": (1.2, 1.4, 1.3, 1.3, 1.3)}
    for case, more in gains.items():
        mixed = {seed: PLAIN[seed] + gain for seed, gain in zip(PLAIN, more, strict=True)}
        write_run(out / f"gte-{case}" / "tense-plain", arms["plain"], PLAIN, [1.0])
        write_run(out / f"gte-{case}" / "tense-mix", arms["mix"], mixed, [0.25, 0.75])
    ask(tables, monkeypatch, out, "--xprobe", xprobe, "--to", to)
    page = (to / "probing.md").read_text(encoding="utf-8")
    assert "| gte-small | right | 0.00 | 91.00 | 91.20 | 0.20 | 0.11 | 0.29 | 0.06 | 5 |" in page
    assert "| gte-small | wrong less right | – | – | – | 1.10 |" in page
    assert "the mix gains +0.20 points" in page
    assert "lies outside this interval" in page
    assert "![Share of each layer in the trained mix](probing-tuned-mix.svg)" in page
    assert (to / "probing-tuned-mix.svg").exists()
    kept = json.loads((to / "probing-gpu.json").read_text(encoding="utf-8"))
    assert [one["last_score"] for one in kept["finetuned"]["gte-right"]["tense-plain"]] == [*PLAIN.values()]


def test_a_later_sitting_adds_a_reading_of_the_norm_and_many_epochs_of_words(
    tables: ModuleType, xprobe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, later, to = tmp_path / "first", tmp_path / "later", tmp_path / "to"
    to.mkdir()
    arms = beside_plain(RunSpec(data=DataSpec(task="probe/tense", folder="xprobe"))).arms
    mixed = {seed: score + 0.2 for seed, score in PLAIN.items()}
    write_run(first / "gte-right" / "tense-plain", arms["plain"], PLAIN, [1.0])
    write_run(first / "gte-right" / "tense-mix", arms["mix"], mixed, [0.25, 0.75])
    ask(tables, monkeypatch, first, "--xprobe", xprobe, "--to", to)
    better = {seed: score + 0.5 for seed, score in PLAIN.items()}
    write_run(later / "gte-tensor-right" / "tense-mix", arms["mix"], better, [0.5, 0.5])
    for arm, scores in (("plain", PLAIN), ("mix", {9: 40.0, 39: 42.0})):
        write_run(later / "box-words" / f"word-content-{arm}", arms[arm], scores, [1.0])
    kept = to / "probing-gpu.json"
    ask(tables, monkeypatch, later, "--xprobe", xprobe, "--to", to, "--beside", kept)
    page = (to / "probing.md").read_text(encoding="utf-8")
    assert "| gte-small | right | 0.00 | 91.00 | 91.20 | 0.20 |" in page
    assert "| gte-small | right, norm tensor | 0.00 | 91.00 | 91.50 | 0.50 |" in page
    assert "\n## Fine-tuned: gte-small, lower case, as the vocabulary has it, norm: each layer over" in page
    assert "| the box | mix | 1 | 2 of 2 | 41.00 |" in page
    finetuned = json.loads(kept.read_text(encoding="utf-8"))["finetuned"]
    assert list(finetuned) == ["gte-right", "gte-tensor-right", "box-words"]
    assert list(finetuned["gte-tensor-right"]) == ["tense-mix"]


def test_a_control_without_a_memoriser_is_doubted(tables: ModuleType) -> None:
    rows = read("probing-gpu.json")["frozen"]["gte"]
    (first, *_) = tables._frozen({"frozen": {"gte": rows}}, "gte")
    old, new = replace(first, memoriser=None), replace(first, memoriser=50.0)
    assert "say little" in tables.doubt_of([old, new])
    assert tables.doubt_of([new]) == ""
    assert tables.doubt_of([replace(old, control=())]) == ""


def test_a_folder_without_results_is_refused(
    tables: ModuleType, xprobe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit):
        ask(tables, monkeypatch, tmp_path, "--xprobe", xprobe, "--to", tmp_path)
    assert not (tmp_path / "probing.md").exists()
