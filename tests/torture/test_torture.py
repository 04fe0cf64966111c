"""A handful of trials of the torture in the suite, and what it judges by. `make torture` makes thousands."""

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.torture.compare import differences, read_tree, torn
from tests.torture.damage import DAMAGES, damage_one
from tests.torture.faults import DISKS, KILLS, draw
from tests.torture.kinds import BY_NAME, KINDS
from tests.torture.server import Ended
from tests.torture.session import Plan, memory_folder, torture
from tests.torture.table import Results
from tests.torture.trials import Failed, Outcome, judge

NUM_TRIALS = 5


@pytest.fixture
def home() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="torture-", dir=memory_folder()))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks a process that has imported torch")
def test_a_handful_of_kills_failing_disks_and_damaged_files_leave_the_same_bytes(home: Path) -> None:
    kinds = [BY_NAME[name] for name in ("mixed", "stacked", "predict")]
    results = torture(Plan(kinds=kinds, seed=7, seconds=600, most_trials=NUM_TRIALS), home)
    assert results.is_clean, results.text()
    assert results.num_kills >= NUM_TRIALS


def _write(folder: Path, seconds: float, score: float) -> Path:
    folder.mkdir()
    (folder / "result.json").write_text(json.dumps({"seconds": seconds, "score": score}))
    return folder


def test_times_may_differ_and_nothing_else(tmp_path: Path) -> None:
    first, same, other = (
        read_tree(_write(tmp_path / name, *values))
        for name, values in (("a", (1.0, 80.0)), ("b", (2.0, 80.0)), ("c", (1.0, 80.5)))
    )
    assert differences(first, same) == []
    assert differences(first, other) == ["result.json differs"]
    assert differences(first, {}) == ["result.json is missing"]
    assert differences({}, first) == ["result.json is left over"]


def test_half_a_file_is_noticed_unless_its_name_is_temporary(tmp_path: Path) -> None:
    (tmp_path / "whole.json").write_text("{}")
    (tmp_path / "half.json").write_text('{"a": ')
    (tmp_path / "half.safetensors").write_bytes((20).to_bytes(8, "little") + b'{"a')
    (tmp_path / ".half.json.0-1-2.tmp").write_text("{")
    assert torn(tmp_path) == ["half.json is half written", "half.safetensors is half written"]


@pytest.mark.parametrize("how", DAMAGES)
def test_every_damage_changes_the_file(tmp_path: Path, how: str) -> None:
    (tmp_path / "file").write_bytes(b"some bytes")
    damaged = damage_one(tmp_path, how, Random(1))
    assert damaged is not None
    path, _ = damaged
    assert not path.exists() or path.read_bytes() != b"some bytes"


@pytest.mark.parametrize("sort", [*KILLS, *DISKS])
def test_every_fault_lies_within_the_command(sort: object) -> None:
    for seed in range(50):
        fault = draw(sort, 10, 2.0, Random(seed))  # type: ignore[arg-type]
        assert bool(fault.seconds) != bool(fault.at)
        assert fault.at <= 10
        assert all(0 <= at <= 2 for at in fault.seconds)


@pytest.mark.parametrize(
    ("ended", "said", "end"),
    [
        (Ended(code=0, seconds=1, counted=1, is_hung=True), "", "hung"),
        (Ended(code=1, seconds=1, counted=1), "Traceback (most recent call last):\n…", "tracebacks"),
        (Ended(code=-11, seconds=1, counted=1), "", "tracebacks"),
        (Ended(code=1, seconds=1, counted=1), "", "tracebacks"),
    ],
)
def test_an_end_that_no_user_should_see_is_refused(ended: Ended, said: str, end: str) -> None:
    with pytest.raises(Failed) as failed:
        judge(ended, said)
    assert failed.value.outcome.end == end


def test_a_failure_with_a_sentence_and_an_end_by_the_signal_are_as_they_should_be() -> None:
    judge(Ended(code=1, seconds=1, counted=1), "bermo: The disk is full.\n")
    fault = draw(KILLS[0], 10, 1.0, Random(1))
    judge(Ended(code=-9, seconds=1, counted=1), "", fault)


def test_the_table_counts_every_hit_and_names_what_failed() -> None:
    results = Results()
    results.add(1, "dense", Outcome(end="survived", hits=("KILL at a write", "disk full")), "")
    results.add(2, "dense", Outcome(end="lost", hits=("KILL at a write",), why="why"), "what")
    results.add(3, "dense", Outcome(end="survived", hits=("cut",)), "")
    assert not results.is_clean
    assert results.num_kills == 3
    rows = {(row["fault"]): row for row in results.to_json()["rows"]}
    assert (rows["KILL at a write"]["tries"], rows["KILL at a write"]["lost"]) == (2, 1)
    assert "trial 2, dense, lost: what" in results.text()


def test_every_kind_writes_to_the_same_place() -> None:
    for kind in KINDS:
        assert any(word.startswith("out") for word in kind.words), kind.name
