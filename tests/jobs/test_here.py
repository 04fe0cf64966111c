"""Jobs in this process: what they print is kept, what goes wrong is their own, Ctrl-C is for all."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from bermo.errors import BermoError
from bermo.interrupts import STOPPED
from bermo.jobs.drive import drive
from bermo.jobs.here import Here
from bermo.jobs.job import Job, job_state


def make(out: Path, name: str, needs: tuple[str, ...] = ()) -> Job:
    return Job(name=name, folder=out / name, words=(name,), needs=needs, makes=out / name)


def calling(out: Path, **faults: BaseException | int) -> Callable[[Sequence[str]], int]:
    def call(words: Sequence[str]) -> int:
        print(f"this is {words[0]}")
        fault = faults.get(words[0], 0)
        if isinstance(fault, BaseException):
            raise fault
        (out / words[0]).mkdir()
        return fault

    return call


def test_a_failure_is_kept_and_the_others_go_on(tmp_path: Path) -> None:
    jobs = [make(tmp_path, name) for name in ("fine", "wrong", "broken", "unmet")]
    jobs.append(make(tmp_path, "after", needs=("wrong",)))
    faults = {"wrong": BermoError("A sentence."), "broken": RuntimeError("what"), "unmet": 3}
    failed = drive(Here(calling(tmp_path, **faults)), jobs, 0, lambda text: None)
    assert {name: failure.code for name, failure in failed.items()} == {"wrong": 2, "broken": 1, "after": 2}
    assert failed["wrong"].last_lines == ("this is wrong", "bermo: A sentence.")
    assert [job_state(job) for job in jobs[:2]] == ["done", "failed"]
    assert jobs[0].log.read_text() == "this is fine\n"
    started: list[str] = []
    again = drive(Here(lambda words: started.append(words[0]) or 0), jobs[:3], 0, lambda text: None)
    assert (started, again) == (["wrong", "broken"], {})


@pytest.mark.parametrize("fault", [STOPPED, KeyboardInterrupt()])
def test_a_job_that_was_stopped_stops_the_command(tmp_path: Path, fault: BaseException | int) -> None:
    with pytest.raises(KeyboardInterrupt):
        drive(Here(calling(tmp_path, one=fault)), [make(tmp_path, "one")], 0, lambda text: None)
