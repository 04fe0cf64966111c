"""The bench: candidates in processes of their own, a table, JSON and figures."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

from bermo.cli import main
from bermo.errors import BermoError
from bermo.figures.data import read_findings
from bermo.ship.bench.entries import line_up
from bermo.ship.bench.run import _quantile, _timing, bench
from bermo.ship.bench.spec import BenchSpec
from bermo.ship.bench.worker import Entry, Worker
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


@pytest.mark.usefixtures("warm_python")
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
    written = json.loads((out / "bench.json").read_text())
    first, second = written["rows"]
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
        ("bench model --device cuda", "needs a GPU"),
        ("bench model --device tpu", '--device cannot be "tpu"'),
        ("bench model --precision fp8", '--precision cannot be "fp8"'),
        ("bench model --rounds 0", "rounds must be at least 1, but got 0"),
        ("bench model --threads 0", "threads must be at least 1 and at most 1,024, but got 0"),
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


@pytest.mark.skipif(os.name == "nt", reason="sends signals as Unix does")
def test_ctrl_c_does_not_reach_a_worker_and_ends_it_at_once_through_the_bench(
    folders: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    entries = [Entry(name=name, folder=folders / name, threads=1) for name in ("model", "sparse")]
    workers: list[Worker] = []

    def interrupt(worker: Worker, what: str, *arguments: object) -> None:
        for _ in range(5):
            assert worker.process.pid is not None
            os.kill(worker.process.pid, signal.SIGINT)
            time.sleep(0.1)
        assert worker.process.is_alive()
        workers.append(worker)
        raise KeyboardInterrupt

    monkeypatch.setattr(Worker, "ask", interrupt)
    with pytest.raises(KeyboardInterrupt):
        bench(entries, BenchSpec())
    assert [worker.process.exitcode for worker in workers] == [-signal.SIGTERM], "it was not waited for"
    assert capfd.readouterr().err == ""


def test_quantiles_are_those_of_the_sorted_calls() -> None:
    ordered = [float(value) for value in range(1, 101)]
    assert [_quantile(ordered, share) for share in (0.5, 0.95, 0.99, 1.0)] == [50, 95, 99, 100]
    timing = _timing((4, 8), [[0.002, 0.001, 0.003], [0.004]])
    assert (timing.p50, timing.calls, timing.rounds) == (2.5, 4, (2.0, 4.0))
    assert timing.rows_per_second == 1600
