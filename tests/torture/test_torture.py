"""A handful of trials of the torture in the suite, and what it judges by. `make torture` makes thousands."""

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.torture.client import compile_shim
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
    hit = [row["example"]["what"] for row in results.to_json()["rows"] if "at a write" in row["fault"]]
    assert all(" out" in what or " cache" in what for what in hit), hit


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


def test_what_an_earlier_attempt_printed_is_no_difference(tmp_path: Path) -> None:
    jobs = tmp_path / "out" / "jobs"
    jobs.mkdir(parents=True)
    for name in ("plain.log", "plain.1.log"):
        (jobs / name).write_text("stopped")
    assert set(read_tree(tmp_path)) == {"out", "out/jobs", "out/jobs/plain.log"}


def test_a_file_may_name_the_folder_that_it_is_in(tmp_path: Path) -> None:
    for name in ("a", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "spec.json").write_text(json.dumps({"place": str(tmp_path / name / "model")}))
    assert differences(read_tree(tmp_path / "a"), read_tree(tmp_path / "other")) == []


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
    judge(Ended(code=3, seconds=1, counted=1), "Seed 1 diverged.\n", usual=3)
    fault = draw(KILLS[0], 10, 1.0, Random(1))
    judge(Ended(code=-9, seconds=1, counted=1), "", fault)


def test_the_table_counts_every_hit_and_names_what_failed() -> None:
    results = _sitting(1)
    results.add(1, 1, "dense", Outcome(end="survived", hits=("KILL at a write", "disk full")))
    lost = Outcome(end="lost", hits=("KILL at a write",), what="what", why="in /a/traceback-1")
    results.add(1, 2, "dense", lost)
    results.add(1, 3, "dense", Outcome(end="survived", hits=("cut",)))
    assert not results.is_clean
    assert results.num_kills == 3
    row = results.to_json()["by_fault"]["KILL at a write"]
    assert (row["tries"], row["lost"]) == (2, 1)
    assert "--seed 1 --trial 2, dense, lost: what\n    in traceback-1" in results.text()


def _sitting(seed: int) -> Results:
    results = Results()
    results.sit(seed, 4)
    return results


def test_counts_are_kept_gone_on_with_and_added_by_their_seeds() -> None:
    results = _sitting(1)
    results.add(1, 1, "dense", Outcome(end="survived", hits=("KILL at a write", "cut"), what="what"))
    results.add(1, 3, "layers", Outcome(end="different", hits=("disk full",), why="why"))
    again = Results.from_json(json.loads(json.dumps(results.to_json())))
    assert again == results
    assert again.sit(1, 2).last == 3
    other = _sitting(2)
    other.add(2, 4, "layers", Outcome(end="survived", hits=("disk full",)))
    again.join(other)
    assert again.to_json()["by_kind"]["layers"]["tries"] == 2
    assert [sitting.last for sitting in again.sittings.values()] == [3, 4]
    with pytest.raises(SystemExit, match="--seed 2"):
        again.join(other)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="LD_PRELOAD")
def test_without_a_compiler_the_compiled_library_that_was_carried_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = tmp_path / "shim.so"
    if compile_shim(tmp_path, beside) is None:
        pytest.skip("no compiler here")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert compile_shim(tmp_path, beside) == beside
    assert compile_shim(tmp_path, tmp_path / "absent.so") is None


def test_every_kind_writes_to_the_same_place() -> None:
    for kind in KINDS:
        assert any(word.startswith("out") for word in kind.words), kind.name
