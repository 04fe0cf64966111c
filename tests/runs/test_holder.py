"""A folder has one holder: the living are respected on every machine, the dead are replaced."""

import json
import os
import time
from dataclasses import asdict, replace
from pathlib import Path
from threading import Event

import pytest

from bermo.errors import BermoError
from bermo.runs import holder
from bermo.runs.holder import DEAD_SECONDS, HOLDER, Holder, held, read_holder, this_holder


def leave(folder: Path, other: Holder, age: float = 0.0) -> None:
    """Write the file of another holder, touched so many seconds ago."""
    path = folder / HOLDER
    path.write_text(json.dumps(asdict(other)), encoding="utf-8")
    os.utime(path, (time.time() - age,) * 2)


def elsewhere(process: int = 1) -> Holder:
    return replace(this_holder(), machine="another-machine", process=process, name="other")


def test_a_living_holder_on_another_machine_is_respected_whatever_its_number(tmp_path: Path) -> None:
    """Process 1 of two containers, or a number that is free here: the lock of the system knows neither."""
    leave(tmp_path, elsewhere(), age=DEAD_SECONDS / 2)
    with (
        pytest.raises(BermoError, match=r"at work in .*process 1 on another-machine.*3 minutes"),
        held(tmp_path),
    ):
        pass
    assert {item.name for item in tmp_path.iterdir()} == {".lock", HOLDER}


def test_a_holder_that_gave_no_sign_for_minutes_is_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holder, "RACE_SECONDS", 0.0)
    leave(tmp_path, elsewhere(), age=DEAD_SECONDS + 5)
    with held(tmp_path):
        assert json.loads((tmp_path / HOLDER).read_text())["process"] == os.getpid()
    assert not (tmp_path / HOLDER).exists()


def test_of_two_that_replace_a_dead_holder_one_gives_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(tmp_path, elsewhere(), age=DEAD_SECONDS + 5)
    winner = elsewhere(process=2)
    monkeypatch.setattr(holder.time, "sleep", lambda seconds: leave(tmp_path, winner))
    with pytest.raises(BermoError, match="process 2 on another-machine"), held(tmp_path):
        pass
    assert holder.read_holder(tmp_path / HOLDER) == winner, "the winner's file stays"


def test_a_process_of_this_machine_is_known_by_number_and_start(tmp_path: Path) -> None:
    parent = replace(this_holder(), process=os.getppid(), started=holder._start_of(os.getppid()), name="p")
    leave(tmp_path, parent)
    with pytest.raises(BermoError, match=f"process {os.getppid()} on"), held(tmp_path):
        pass
    # The same number, given to another process since.
    leave(tmp_path, replace(parent, started=parent.started - 100))
    with held(tmp_path):
        pass
    (tmp_path / HOLDER).write_text('{"mach')  # killed while it was written
    with held(tmp_path):
        pass


def test_the_file_is_touched_while_the_folder_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holder, "BEAT_SECONDS", 0.01)
    with held(tmp_path):
        os.utime(tmp_path / HOLDER, (0, 0))
        ends = time.monotonic() + 20
        while (tmp_path / HOLDER).stat().st_mtime == 0 and time.monotonic() < ends:
            time.sleep(0.01)
        assert (tmp_path / HOLDER).stat().st_mtime > 0


def test_a_holder_whose_place_was_taken_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Ended(Exception):
        pass

    def end(code: int) -> None:
        raise Ended(code)

    monkeypatch.setattr(holder, "BEAT_SECONDS", 0.0)
    monkeypatch.setattr(holder.os, "_exit", end)
    leave(tmp_path, elsewhere())
    with pytest.raises(Ended):
        holder._beat(tmp_path / HOLDER, this_holder(), Event())


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[" * 100_000, '{"machine": 1, "process": 2, "started": 3.0, "name": "a"}']
    + [f'{{"machine": "m", "process": {n}, "started": 1.0, "name": "a"}}' for n in (-1, 0, 2**70, '"x"')]
    + ['{"machine": "m", "process": 5, "started": null, "name": "a"}'],
    ids=range(9),
)
def test_a_damaged_holder_is_nobody(tmp_path: Path, text: str) -> None:
    (tmp_path / HOLDER).write_text(text)
    assert read_holder(tmp_path / HOLDER) is None
