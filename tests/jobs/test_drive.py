"""What is done with jobs that end, fail, are stopped or wait for each other, whatever the engine."""

from collections import deque
from dataclasses import replace
from pathlib import Path

import pytest

from bermo.errors import BermoError
from bermo.fields import check
from bermo.interrupts import STOPPED
from bermo.jobs.drive import drive, failures_text
from bermo.jobs.engines import check_installed
from bermo.jobs.executor import KILLED, Ended
from bermo.jobs.job import Job, job_state
from bermo.jobs.local import worker_environments
from bermo.jobs.spec import SpreadSpec
from bermo.runs.folder import locked


class Scripted:
    """An executor whose jobs end at once, with the codes that are written down for them."""

    def __init__(self, codes: dict[str, list[int]]) -> None:
        self.codes = {name: deque(known) for name, known in codes.items()}
        self.queue: deque[Job] = deque()
        self.started: list[str] = []
        self.is_closed = False

    def submit(self, job: Job) -> None:
        self.queue.append(job)

    def wait(self, seconds: float) -> Ended | None:
        if not self.queue:
            return None
        job = self.queue.popleft()
        self.started.append(job.name)
        code = self.codes[job.name].popleft()
        if code == -1:
            raise KeyboardInterrupt
        job.log.parent.mkdir(exist_ok=True)
        job.log.write_text(f"the end of {job.name}\n")
        return Ended(job=job, code=code)

    def stop(self, job: Job) -> None: ...

    def close(self) -> None:
        self.is_closed = True


def make(out: Path, *names: str) -> list[Job]:
    return [Job(name=name, folder=out / name, words=("train",), seeds=(1,)) for name in names]


def test_failures_are_called_again_up_to_a_limit_and_mistakes_are_not(tmp_path: Path) -> None:
    jobs = make(tmp_path, "fine", "killed", "stopped", "mistake", "broken")
    codes = {"fine": [0], "killed": [KILLED, 0], "stopped": [STOPPED] * 3 + [0], "mistake": [2]}
    engine = Scripted({**codes, "broken": [1, 1]})
    told: list[str] = []
    failed = drive(engine, jobs, 1, told.append)
    assert {name: engine.started.count(name) for name in codes} == {
        "fine": 1,
        "killed": 2,
        "stopped": 4,
        "mistake": 1,
    }
    assert {name: failure.code for name, failure in failed.items()} == {"mistake": 2, "broken": 1}
    assert job_state(jobs[4]) == "failed"
    assert "    the end of broken" in failures_text(failed, tmp_path)
    assert told[-1].startswith("3 of 5 are done")
    # Called again, it begins anew.
    assert drive(Scripted({job.name: [0] for job in jobs}), jobs, 0, told.append) == {}


def test_a_student_waits_for_its_teacher_and_falls_with_it(tmp_path: Path) -> None:
    student, teacher = make(tmp_path, "student", "teacher")
    jobs = [replace(student, needs=("teacher",)), teacher]
    engine = Scripted({"student": [0], "teacher": [0]})
    assert drive(engine, jobs, 0, lambda text: None) == {}
    assert engine.started == ["teacher", "student"]
    failed = drive(Scripted({"teacher": [1]}), jobs, 0, lambda text: None)
    assert failed["student"].last_lines == ("teacher failed, which it needs.",)


def test_ctrl_c_closes_the_engine_and_goes_on_its_way(tmp_path: Path) -> None:
    engine = Scripted({"one": [-1]})
    with pytest.raises(KeyboardInterrupt):
        drive(engine, make(tmp_path, "one"), 0, lambda text: None)
    assert engine.is_closed


def test_a_folder_that_another_process_holds_is_waited_for(tmp_path: Path) -> None:
    (job,) = make(tmp_path, "one")
    engine, told = Scripted({"one": [0]}), list[str]()
    hold = locked(job.folder)
    hold.__enter__()

    def tell(text: str) -> None:
        told.append(text)
        if "another process is at work" in text:
            assert engine.started == []
            hold.__exit__(None, None, None)

    drive(engine, [job], 0, tell)
    assert "another process is at work" in told[0]
    assert engine.started == ["one"]


def test_workers_share_the_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    cards = [item["CUDA_VISIBLE_DEVICES"] for item in worker_environments(3, (0, 5))]
    assert cards == ["0", "5", "0"]
    assert len(worker_environments(None, (1, 2))) == 2


def test_options_of_another_engine_and_missing_packages_are_one_sentence() -> None:
    with pytest.raises(BermoError, match="--hours belongs to --on slurm"):
        check(SpreadSpec(on="ray", hours=1.0))
    with pytest.raises(BermoError, match="needs --partition and --hours"):
        check(SpreadSpec(on="slurm"))
    with pytest.raises(BermoError, match=r'pip install "bermo\[ray\]"'):
        check_installed("ray", "no_such_package")
