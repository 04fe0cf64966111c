"""Pretrainings side by side: every command is a right one, a tiny form runs to the page, and goes on."""

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import pretraining_rows, stages
from benchmarks.pretraining_tables import page, verdict
from benchmarks.pretrainings import OBJECTIVES, SETS, Settings, pace
from bermo.cli import build_parser, main
from bermo.data.sentences import generate
from bermo.jobs.here import Here
from bermo.methods.pretraining.pace import TRIAL_STEPS
from bermo.methods.probing import fitting
from bermo.nn.probes import Settings as ProbeSettings
from bermo.verbs import VERBS
from bermo.verbs.options import read_options

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text, and SST-2's two files."""
    folder = tmp_path_factory.mktemp("world")
    lines = [item.text for item in generate("tense", 300, seed=1)]
    documents = ["\n".join(lines[k : k + 10]) for k in range(0, 300, 10)]
    (folder / "text.txt").write_text("\n\n".join(documents))
    (folder / "data" / "sst2").mkdir(parents=True)
    rows = "sentence\tlabel\n" + "".join(f"{line}\t{k % 2}\n" for k, line in enumerate(lines[:16]))
    for name in ("train.tsv", "dev.tsv"):
        (folder / "data" / "sst2" / name).write_text(rows)
    return folder


def settings_of(world: Path, out: Path, *arms: str) -> Settings:
    return Settings(
        texts=(str(world / "text.txt"),),
        minutes=1e-5,
        out=out,
        seeds=(1,),
        data=world / "data",
        senses=None,
        arms=arms,
        tasks=("sst2",),
        is_tiny=True,
    )


def few_steps(classes: int, rows: int, spec: fitting.ProbeSpec) -> ProbeSettings:
    return ProbeSettings(penalties=(1e-3,), evaluations=2, mix_steps=20, seed=spec.seed)


def run_here(
    name: str, settings: Settings, monkeypatch: pytest.MonkeyPatch, leaves_out: tuple[str, ...] = ("none",)
) -> None:
    """Run the waves of a set in this process, so that nothing is imported again."""
    monkeypatch.setattr(stages, "_executor", lambda out, workers: Here(main))
    monkeypatch.setattr(fitting, "settings_for", few_steps)
    monkeypatch.setitem(TRIAL_STEPS, "cpu", (1, 2))
    monkeypatch.setenv("BERMO_CACHE", str(settings.out / "cache"))
    for wave in SETS[name](settings):
        kept = [stage for stage in wave() if not stage.name.startswith(leaves_out)]
        assert stages.run(kept, settings.out, workers=1) == []


def script(name: str, *words: Any, python: Path) -> str:
    """Run a script of the benchmarks in its tiny form, and return what it printed."""
    ended = subprocess.run(
        ["bash", str(ROOT / "benchmarks" / name), *map(str, words)],
        env=os.environ | {"TINY": "1", "PYTHON": str(python), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.parametrize("is_tiny", [True, False])
@pytest.mark.parametrize("name", SETS)
def test_every_command_of_a_set_is_a_right_one(name: str, is_tiny: bool, world: Path, tmp_path: Path) -> None:
    settings = replace(settings_of(world, tmp_path), is_tiny=is_tiny, minutes=10.0)
    first, *later = SETS[name](settings)
    parser, _ = build_parser()
    names = set()
    for stage in first():
        (tmp_path / stage.name).mkdir(parents=True)
        (tmp_path / stage.name / "plan.json").write_text('{"seconds_a_step": 0.01}')
    for stage in [stage for wave in (first, *later) for stage in wave()]:
        assert stage.name not in names
        names.add(stage.name)
        # On a machine without a GPU.
        words = [word.replace("bf16", "fp32") for word in stage.words]
        parsed, rest = parser.parse_known_args(words)
        assert not [word for word in rest if word.startswith("-")]
        read_options(VERBS[parsed.verb].options, parsed)
    arms = {row.partition("/")[2] for row in names if row.startswith("pace/")}
    assert {f"{arm}-1" for arm in arms} <= names


def test_every_objective_gets_the_steps_that_fit_at_its_own_pace(world: Path, tmp_path: Path) -> None:
    settings = replace(settings_of(world, tmp_path), minutes=1.0, is_tiny=False)
    for number, name in enumerate(OBJECTIVES, 1):
        (tmp_path / "pace" / name).mkdir(parents=True)
        (tmp_path / "pace" / name / "plan.json").write_text(json.dumps({"seconds_a_step": 0.01 * number}))
    assert len(pace(settings, OBJECTIVES)) == 9
    stages_of_all = SETS["objectives"](replace(settings, seeds=(1, 2, 3)))[1]()
    trained = [stage for stage in stages_of_all if not stage.needs]
    assert len(trained) == 27
    words = {stage.name: stage.words for stage in trained}
    steps = [int(words[f"{name}-3"][words[f"{name}-3"].index("--steps") + 1]) for name in OBJECTIVES]
    assert steps == [int(60 / (0.01 * number)) for number in range(1, 10)]


@pytest.mark.parametrize("name", SETS)
def test_an_arm_whose_trial_failed_does_not_stop_the_others(name: str, world: Path, tmp_path: Path) -> None:
    first, *later = SETS[name](settings_of(world, tmp_path))
    trials = first()
    for stage in trials[:-1]:
        (tmp_path / stage.name).mkdir(parents=True)
        (tmp_path / stage.name / "plan.json").write_text('{"seconds_a_step": 0.01}')
    lost = trials[-1].name.removeprefix("pace/")
    names = {stage.name for wave in later for stage in wave()}
    assert f"{lost}-1" not in names
    assert f"{trials[0].name.removeprefix('pace/')}-1" in names


def test_objectives_run_to_their_page(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warm_python: Path
) -> None:
    run_here("objectives", settings_of(world, tmp_path, "xlnet"), monkeypatch)
    words = (world / "text.txt", world / "data", 1e-5, tmp_path, "--seeds", "1", "--arms", "xlnet")
    # All that has ended is left as it is.
    said = script("objectives_gpu.sh", *words, "--tasks", "sst2", python=warm_python / "python")
    assert "1 encoders in" in said
    (row,) = json.loads((tmp_path / "objectives.json").read_text())
    assert (row["arm"], row["seed"]) == ("xlnet", 1)
    assert row["masked"] == row["likelihood"] < 0
    assert set(row["tasks"]) == {"sst2"}
    assert set(row["probes"]) == {"tree-depth", "tense"}
    assert "| xlnet | 2 |" in (tmp_path / "objectives.md").read_text()


def test_masks_of_another_kind_are_scored_by_single_tokens_too(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_here("objectives", settings_of(world, tmp_path, "span"), monkeypatch, ("tuned", "probe"))
    (row,) = pretraining_rows.rows(tmp_path)
    assert row["masked"] != row["likelihood"]
    # A rate of 0 has left the weights as they were.
    files = [tmp_path / name / "model" / "model.safetensors" for name in ("span-1", "masked/span-1")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_habits_run_to_their_page(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warm_python: Path
) -> None:
    arms = ("plain", "short-first", "stacked")
    run_here("habits", settings_of(world, tmp_path, *arms), monkeypatch)
    words = (world / "text.txt", 1e-5, tmp_path, "--seeds", "1", "--arms", ",".join(arms))
    script("habits_gpu.sh", *words, python=warm_python / "python")
    rows = json.loads((tmp_path / "habits.json").read_text())
    assert [row["arm"] for row in rows] == sorted(arms)
    # Two short steps and two whole ones.
    assert [row["steps"] for row in rows] == [2, 4, 2]
    assert (
        "- stacked against plain: not measured in likelihood (one seed)."
        in (tmp_path / "habits.md").read_text()
    )


def test_elmo_and_a_transformer_run_to_their_page(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warm_python: Path
) -> None:
    run_here("elmo", settings_of(world, tmp_path), monkeypatch)
    words = (world / "text.txt", "", 1e-5, tmp_path, "--seeds", "1")
    script("elmo_gpu.sh", *words, python=warm_python / "python")
    rows = json.loads((tmp_path / "elmo.json").read_text())
    assert [(row["arm"], len(row["probes"]["tense"]["layers"])) for row in rows] == [
        ("elmo", 3),
        ("transformer", 4),
    ]
    text = (tmp_path / "elmo.md").read_text()
    assert "| tense | elmo |" in text
    assert "| tense | transformer |" in text
    assert "best tense (one seed)" in text
    assert (tmp_path / "look" / "figures.json").exists()
    # Senses stand where an analysis puts its parts.
    assert (tmp_path / "look" / "parts" / "elmo-1-model.geometry.json").exists()
    senses = {"names": ["0", "1", "2", "mix"], "f1": [50.0, 60.0, 61.5, 62.0]}
    (tmp_path / "look" / "parts" / "elmo-1-model.senses.json").write_text(json.dumps({"facts": senses}))
    measured, without = pretraining_rows.rows(tmp_path)
    assert without["senses"] is None
    assert list(measured["anisotropy"]) == ["0", "1", "2"]
    assert "| senses | elmo | 50.00 | 60.00 | 61.50 | – | 62.00 |" in page("elmo", [measured, without])


def test_a_stage_that_fails_is_named_and_begun_again(
    tmp_path: Path, warm_python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    wrong = stages.Stage("wrong", ("pretrain", "--text", "nowhere.txt"))
    assert stages.run([wrong], tmp_path, workers=2) == ["wrong"]
    assert "There is no file nowhere.txt" in (tmp_path / "jobs" / "wrong.log").read_text()
    (tmp_path / "wrong").mkdir(exist_ok=True)
    (tmp_path / "wrong" / "result.json").write_text("{}")
    assert stages.run([wrong], tmp_path, workers=2) == []


def row(arm: str, seed: int, masked: float | None, **tasks: float) -> dict[str, Any]:
    nothing: dict[str, Any] = {"probes": {}, "senses": None, "likelihood": -3.0, "steps": 7, "diverged": None}
    return {"arm": arm, "seed": seed, "masked": masked, "tasks": tasks} | nothing


def test_a_verdict_is_of_differences_beyond_chance() -> None:
    rows = [row("mlm", seed, -3.0 + 0.1 * seed, sst2=80.0 + seed, cola=10.0 * seed) for seed in (1, 2, 3)]
    rows += [
        row("xlnet", seed, -3.5 + 0.1 * seed + 0.01 * seed, sst2=82.0 + seed + 0.1 * seed, cola=20.0)
        for seed in (1, 2, 3)
    ]
    rows += [row("elmo", 1, None, sst2=70.0)]
    text = page("objectives", rows)
    assert all(len(line) <= 120 for line in text.splitlines() if not line.startswith("|"))
    lines = text.replace("\n  ", " ").splitlines()
    assert "Of 6 differences about 0 would leave 0 out by chance alone." in lines
    assert "| arm | steps | single tokens | sst2 | cola |" in lines
    assert next(line for line in lines if line.startswith("| mlm |")).startswith(
        "| mlm | 7 | -2.80 (-3.05 to"
    )
    said = next(line for line in lines if line.startswith("- xlnet"))
    assert "better in sst2 (+2.20, 1.95 to 2.45); worse in single tokens (-0.48" in said
    assert "no difference shown in cola (+0.00" in said
    said = next(line for line in lines if line.startswith("- elmo"))
    assert "not measured in single tokens, sst2 (one seed), cola" in said
    assert "of every word, from either side" in said
    assert verdict("mlm", rows, "mlm", {}) == "mlm against mlm: ."


def test_packed_texts_give_lines(tmp_path: Path) -> None:
    import lzma

    with lzma.open(tmp_path / "a.txt.xz", "wt", encoding="utf-8") as opened:
        opened.write("short\n" + "a line that is long enough\n" * 3)
    pretraining_rows.write_lines([str(tmp_path / "a.txt.xz")], tmp_path / "lines.txt", 2)
    assert (tmp_path / "lines.txt").read_text() == "a line that is long enough\n" * 2


def test_rows_of_an_earlier_sitting_are_kept_unless_a_new_one_replaces_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "earlier.json").write_text(json.dumps([row("mlm", 1, -3.0), row("xlnet", 1, -4.0)]))
    monkeypatch.setattr(pretraining_rows, "rows", lambda out: [row("mlm", 1, -2.0), row("elmo", 1, None)])
    pretraining_rows.write("objectives", tmp_path, tmp_path / "earlier.json")
    found = json.loads((tmp_path / "objectives.json").read_text())
    assert [(one["arm"], one["masked"]) for one in found] == [("elmo", None), ("mlm", -2.0), ("xlnet", -4.0)]


def test_the_committed_page_is_that_of_its_rows() -> None:
    results = Path(__file__).parents[2] / "results"
    rows = json.loads((results / "objectives.json").read_text(encoding="utf-8"))
    written = (results / "objectives.md").read_text(encoding="utf-8")
    assert page("objectives", rows) == written
    assert "electra: 3 runs are marked as diverged: replaced tokens are not told" in written
