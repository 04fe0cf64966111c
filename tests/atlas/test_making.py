"""Which methods begin: the dense one first, then what fits the budget; what fails is noted once."""

from collections import deque
from pathlib import Path

import pytest

from bermo.atlas import making as module
from bermo.atlas.chain import Base, Chain, make_chain
from bermo.atlas.making import Making, Plan
from bermo.atlas.methods import METHODS
from bermo.jobs import drive
from bermo.jobs.executor import Ended
from bermo.jobs.job import Job
from bermo.spec import RunSpec


class Clocked:
    """An executor whose jobs take as many seconds as is written down, and leave their folders."""

    def __init__(self, room: int = 1, failing: str = "") -> None:
        self.room, self.failing, self.now = room, failing, 0.0
        self.queue: deque[Job] = deque()
        self.started: list[str] = []

    def submit(self, job: Job) -> None:
        self.queue.append(job)

    def wait(self, seconds: float) -> Ended | None:
        if not self.queue:
            return None
        job = self.queue.popleft()
        self.started.append(job.name)
        self.now += 100
        job.log.parent.mkdir(parents=True, exist_ok=True)
        job.log.write_text("bermo: No room.\n")
        if job.name == self.failing:
            return Ended(job=job, code=2)
        job.folder.mkdir(parents=True)
        return Ended(job=job, code=0)

    def stop(self, job: Job) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def chains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Chain]]:
    monkeypatch.setattr(Making, "_dense_seconds", lambda self: 100.0)
    monkeypatch.setattr(module, "has_ended", lambda job: job.folder.exists())
    monkeypatch.setattr(drive, "job_state", lambda job: "done" if job.folder.exists() else "to do")
    base = Base(
        spec=RunSpec(),
        num_layers=6,
        out=tmp_path,
        valid=tmp_path,
        judged=tmp_path,
        train=tmp_path,
        texts=tmp_path,
    )
    names = ("dense", "int8", "structured", "first-layers")
    return {name: [make_chain(METHODS[name], seed, base) for seed in (1, 2)] for name in names}


def test_what_does_not_fit_the_budget_is_left_out_and_what_comes_after_it_may_fit(
    chains: dict[str, list[Chain]],
) -> None:
    engine = Clocked()
    told: list[str] = []
    plan = Plan(chains=chains, seconds=690, measuring=10)
    made = Making(plan, engine, 0, told.append, lambda: engine.now).run()
    # 200 s for dense and 200 for int8 leave 270. structured: 2 · (180 + 30) + 10, first-layers: 2 · 65 + 10.
    assert made.left_out == ["structured"]
    assert engine.started[:2] == ["dense/seed-1/1-train", "dense/seed-2/1-train"]
    assert {name.split("/")[0] for name in engine.started} == {"dense", "int8", "first-layers"}
    assert any("structured is left out: about" in text for text in told)
    assert made.failed == {}


def test_what_is_made_and_measured_needs_no_budget(chains: dict[str, list[Chain]]) -> None:
    for name in ("dense", "int8", "first-layers"):
        for chain in chains[name]:
            for job in chain.jobs:
                job.folder.mkdir(parents=True)
    engine, told = Clocked(), list[str]()
    plan = Plan(chains=chains, seconds=1, measuring=10, measured={"dense", "int8"})
    made = Making(plan, engine, 0, told.append, lambda: engine.now + 3).run()
    assert made.left_out == ["structured", "first-layers"]
    assert engine.started == []
    assert "first-layers is left out: about 10 s, and 1 s are left." in told
    plan = Plan(chains=chains, seconds=20, measuring=10)
    assert Making(plan, engine, 0, told.append, lambda: engine.now).run().left_out != []
    assert told[-1].endswith(", and nothing is left.")


def test_a_training_that_reads_texts_without_labels_takes_as_much_longer(
    chains: dict[str, list[Chain]], tmp_path: Path
) -> None:
    base = Base(
        spec=RunSpec(),
        num_layers=6,
        out=tmp_path,
        valid=tmp_path,
        judged=tmp_path,
        train=tmp_path,
        texts=tmp_path,
        unlabelled="more.txt",
    )
    chains |= {"structured": [make_chain(METHODS["structured"], seed, base) for seed in (1, 2)]}
    making = Making(Plan(chains=chains, taught_rows=3.0), Clocked(), 0, lambda text: None)
    # structured: 2 · (3 · 180 + 30); first-layers has no teacher.
    assert making.estimate("structured") == pytest.approx(2 * (3 * 180 + 30))
    assert making.estimate("first-layers") == pytest.approx(2 * 65)


def test_a_command_that_fails_stops_its_own_seed_alone(chains: dict[str, list[Chain]]) -> None:
    engine = Clocked(room=4, failing="structured/seed-1/1-train")
    made = Making(Plan(chains=chains), engine, 0, lambda text: None).run()
    assert made.failed == {"structured": "structured/seed-1/1-train ended with 2: No room."}
    assert "structured/seed-2/3-export" in engine.started
    assert "structured/seed-1/2-shrink" not in engine.started
    assert len(engine.started) == 2 * (1 + 1 + 3 + 2) - 2


def test_only_the_trainings_are_made_where_that_is_asked_for(chains: dict[str, list[Chain]]) -> None:
    engine = Clocked()
    Making(Plan(chains=chains, only_train=True), engine, 0, lambda text: None).run()
    assert {name.rpartition("/")[2] for name in engine.started} == {"1-train"}
    assert len(engine.started) == 6
