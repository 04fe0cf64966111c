"""The timer: several methods in one bench, each with its own row beside dense; what is known is not timed."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bermo.atlas import speed as module
from bermo.atlas.chain import Base, Chain, make_chain
from bermo.atlas.methods import METHODS
from bermo.atlas.speed import Timer
from bermo.progress import Quiet
from bermo.ship.bench.worker import Entry
from bermo.spec import RunSpec
from tests.ship.rows import make_bench

TIMES = {"dense": 8.0, "int8": 2.0, "structured": 1.0}


@pytest.fixture
def benches(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The benches that were made: their folders and how they were lined up."""
    made: list[dict[str, Any]] = []

    def line_up(folders: Sequence[str], spec: object, **how: Any) -> list[Entry]:
        made.append({"folders": list(folders), **how})
        return [Entry(name=name, folder=Path(name), threads=1) for name in folders]

    def bench(entries: Sequence[Entry], spec: Any, display: object) -> Any:
        known = make_bench({entry.name: TIMES[entry.name] for entry in entries})
        return replace(known, spec=spec, machine=f"a {made[-1]['device']}")

    monkeypatch.setattr(module, "line_up", line_up)
    monkeypatch.setattr(module, "bench", bench)
    monkeypatch.setattr(module, "machine", lambda devices: f"a {''.join(devices)}")
    return made


@pytest.fixture
def chains(tmp_path: Path) -> list[Chain]:
    base = Base(
        spec=RunSpec(),
        num_layers=6,
        out=tmp_path,
        valid=tmp_path,
        judged=tmp_path,
        train=tmp_path,
        texts=tmp_path,
    )
    return [make_chain(METHODS[name], 1, base) for name in TIMES]


def make_timer(out: Path, device: Any = "cpu") -> Timer:
    base = Base(spec=RunSpec(), num_layers=6, out=out, valid=out, judged=out, train=out, texts=out)
    return Timer(base, make_bench(TIMES).spec, 1, Quiet(), device)


def test_what_is_timed_is_kept_and_not_timed_again(
    tmp_path: Path, chains: list[Chain], benches: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    timer = make_timer(tmp_path)
    timer.time(chains[:2])
    timer.time(chains)
    timer.time(chains)
    assert [made["folders"] for made in benches] == [
        [str(chains[0].shipped), str(chains[1].shipped)],
        [str(chains[0].shipped), str(chains[2].shipped)],
    ]
    assert [timer.speed(chain).speedup for chain in chains] == [1, 4, 8]
    monkeypatch.setattr(module, "machine", lambda devices: "another")
    assert timer.known(chains[1]) is None


def test_a_gpu_times_the_torch_models_in_half_precision_beside_the_cpu(
    tmp_path: Path, chains: list[Chain], benches: list[dict[str, Any]]
) -> None:
    assert [chain.changes_model for chain in chains] == [True, False, True]
    timer = make_timer(tmp_path, "cuda")
    timer.time([chains[0], chains[2]])
    assert benches[0]["folders"] == [str(chains[0].shipped), str(chains[2].jobs[1].folder)]
    assert (benches[0]["device"], benches[0]["precisions"]) == ("cuda", ("fp16",))
    assert timer.speed(chains[2]).latency_gain == 8
    assert make_timer(tmp_path).known(chains[2]) is None
