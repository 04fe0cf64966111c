"""The bench: candidates in processes of their own, a table, JSON and figures; and compress on top of it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bermo.cli import main
from bermo.errors import BermoError
from bermo.figures.data import read_findings
from bermo.progress import Display, Quiet
from bermo.ship.bench.entries import line_up
from bermo.ship.bench.run import Bench, Measured, _quantile, _timing, machine
from bermo.ship.bench.spec import BenchSpec
from bermo.ship.bench.worker import Entry, Served, Worker
from bermo.ship.compress import plan as planning
from bermo.ship.compress import run as compressing
from bermo.ship.compress.run import compress
from bermo.ship.compress.spec import CompressSpec
from bermo.ship.export.run import ExportSpec, export
from tests.ship.folders import make_model, prune_randomly_, save, write_rows

SMALL = "--rounds 1 --batch 1,2 --lengths 8 --threads 1"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, the same in a sparse container, and rows for both."""
    root = tmp_path_factory.mktemp("bench")
    model = make_model(layers=2)
    prune_randomly_(model, 0.5)
    save(model, root / "model")
    export(root / "model", root / "sparse", ExportSpec(to="sparse", values="fp32"))
    write_rows(root / "dev.tsv")
    return root


def test_a_bench_compares_processes_and_writes_what_it_found(
    folders: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folders)
    out = tmp_path / "bench"
    assert main(f"bench model sparse --data dev.tsv --out {out} {SMALL}".split()) == 0
    assert "accuracy" in capsys.readouterr().out
    found = json.loads((out / "bench.json").read_text())
    first, second = found["rows"]
    assert (first["form"], second["form"]) == ("torch", "sparse")
    assert first["score"] == second["score"]
    assert second["megabytes"] < first["megabytes"]
    assert first["peak_memory_mb"] > 0
    assert first["speedup"] == first["latency_gain"] == 1
    assert [(t["batch"], t["length"]) for t in second["timings"]] == [(1, 8), (2, 8)]
    assert all(t["calls"] >= 1 and 0 < t["p50"] <= t["p95"] <= t["p99"] for t in first["timings"])
    assert read_findings(out / "figures.json").sections
    assert (out / "front.svg").read_text().startswith("<svg")
    assert main(f"bench model --out {out} {SMALL}".split()) == 2
    assert "not overwritten" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("bench nothing", "There is no folder"),
        ("bench model --batch 1,x", '--batch must be a whole number, but got "x"'),
        ("bench model --lengths 500", "reads 64 tokens at most"),
        ("bench model --device cuda", "no GPU"),
        ("bench model --device tpu", '--device cannot be "tpu"'),
        ("bench model --precision fp8", '--precision cannot be "fp8"'),
        ("bench model --rounds 0", "rounds must be at least 1, but got 0"),
        ("bench model --threads 0", "threads must be at least 1, but got 0"),
        ("bench model --data nothing.tsv", "There is no file"),
        ("compress model", "No goals were given"),
        ("compress model --latency fast", "--latency 5ms"),
    ],
)
def test_every_mistake_gets_its_sentence_before_a_process_starts(
    command: str,
    sentence: str,
    folders: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import torch

    monkeypatch.chdir(folders)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    default = "" if "--lengths" in command or "compress" in command else " --lengths 8"
    assert main((command + default).split()) == 2
    assert sentence in capsys.readouterr().err


def test_models_of_different_tasks_are_not_compared(folders: Path, tmp_path: Path) -> None:
    other = save(make_model(kind="tagging"), tmp_path / "tagger", "tagging")
    with pytest.raises(BermoError, match="answers another question"):
        line_up([str(folders / "model"), str(other)], BenchSpec(lengths=(8,)))


def test_a_worker_that_dies_is_told(folders: Path) -> None:
    worker = Worker(Entry(name="model", folder=folders / "model", threads=1))
    worker.process.kill()
    with pytest.raises(BermoError, match="The process of model died"):
        worker.ask("facts")
    worker.close()


def test_quantiles_are_those_of_the_sorted_calls() -> None:
    ordered = [float(value) for value in range(1, 101)]
    assert [_quantile(ordered, share) for share in (0.5, 0.95, 0.99, 1.0)] == [50, 95, 99, 100]
    timing = _timing((4, 8), [0.002, 0.001, 0.003])
    assert (timing.p50, timing.rows_per_second) == (2.0, 2000.0)


def in_one_process(entries: list[Entry], spec: BenchSpec, display: Display) -> Bench:
    """Measure as the bench does, but here: seven imports of torch would take longer than the test."""
    rows = []
    for entry in entries:
        served = Served(entry)
        facts = served.facts()
        timings = tuple(_timing(shape, served.time(*shape, 2)) for shape in spec.shapes)
        score = served.score(spec.data)[1] if spec.data else None
        rows.append(
            Measured(
                name=entry.name,
                form=facts.form,
                precision=facts.precision,
                device="cpu",
                megabytes=facts.num_bytes / 1e6,
                peak_memory_mb=1,
                score=score,
                timings=timings,
            )
        )
    return Bench(
        spec=spec,
        metric="accuracy",
        threads=1,
        machine=machine(["cpu"]),
        versions={},
        rows=tuple(rows),
    )


def test_compress_goes_the_whole_way_and_takes_up_where_it_stopped(
    folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compressing, "bench", in_one_process)
    monkeypatch.setattr(planning, "AROUND", (1.0,))
    rows = str(folders / "dev.tsv")
    spec = CompressSpec(
        run=folders / "model",
        size="0.1kB",
        train=rows,
        valid=rows,
        is_quick=True,
        max_loss=100,
        batches=(1,),
        lengths=(8,),
        rounds=1,
    )
    out = tmp_path / "small"
    told: list[str] = []
    display = Quiet()
    monkeypatch.setattr(display, "tell", told.append)
    made = compress(spec, out, display)
    assert any("--vocabulary" in sentence for sentence in told)
    assert not made.is_met
    assert "Nothing met the goal" in made.sentence
    assert {row.name for row in made.found.rows} == {"dense", "dense int8", "2 layers at 0.05 int8"}
    for name in ("model/model.onnx", "torch/model.safetensors", "bench.json", "README.md"):
        assert (out / name).is_file()
    assert made.sentence in (out / "README.md").read_text()

    def never(*_: object) -> None:
        raise AssertionError("a finished stage ran again")

    monkeypatch.setattr(compressing, "export", never)
    monkeypatch.setattr(compressing, "make_small", never)
    again = compress(spec, out, Quiet())
    assert again.picked.name == made.picked.name
    with pytest.raises(BermoError, match="other options"):
        compress(replace(spec, max_loss=5), out, Quiet())


def test_models_made_elsewhere_take_part_and_nothing_is_trained(
    folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compressing, "bench", in_one_process)
    monkeypatch.setattr(compressing, "finetune", None)
    elsewhere = save(make_model(layers=1), tmp_path / "elsewhere")
    rows = str(folders / "dev.tsv")
    spec = CompressSpec(
        run=folders / "model",
        size="30kB",
        train=rows,
        valid=rows,
        candidates=(elsewhere,),
        with_training=False,
        max_loss=100,
        batches=(1,),
        lengths=(8,),
        rounds=1,
    )
    made = compress(spec, tmp_path / "small", Quiet())
    assert [row.name for row in made.found.rows] == ["dense", "dense int8", "elsewhere int8"]
    assert made.picked.name == "elsewhere int8"
    for wrong, sentence in (
        ((), "leaves nothing to choose from"),
        ((elsewhere, elsewhere), "Two candidates are called"),
        ((tmp_path / "small" / "model",), "is an export already"),
    ):
        with pytest.raises(BermoError, match=sentence):
            compress(replace(spec, candidates=wrong), tmp_path / "other", Quiet())
    assert not (tmp_path / "other").exists()
