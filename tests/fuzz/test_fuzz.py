"""A few hundred changed files for every reader, the same each time. `make fuzz` tries millions.

What was found once has a test of its own beside the reader.
"""

import json
import os
import pickle
import socket
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

if sys.platform == "win32":
    pytest.skip("Windows has neither limits nor timers for a process", allow_module_level=True)

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bermo.errors import BermoError
from bermo.fields import check, leaves
from bermo.spec import RunSpec
from bermo.values import from_dict, override, to_dict
from tests.fuzz import guard
from tests.fuzz.guard import guarded
from tests.fuzz.mutate import BYTE_CHANGES, INSIDE, mutate
from tests.fuzz.readers import READERS
from tests.fuzz.session import CORPUS, Results, input_of, seeds_of, try_input
from tests.sittings import sit

SAME = settings(
    derandomize=True, deadline=None, max_examples=40, suppress_health_check=list(HealthCheck), database=None
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in memory where there is one, as the working folder of a reader."""
    place = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=place) as home:
        monkeypatch.chdir(home)
        yield Path(home) / "input"


@pytest.mark.parametrize("reader", READERS)
def test_every_seed_of_the_corpus_is_valid(reader: str, folder: Path) -> None:
    for files in seeds_of(reader):
        outcome = try_input(reader, files, folder)
        assert outcome.end == "accepted", f"{list(files)}: {outcome.reason}\n{outcome.trace}"


@pytest.mark.parametrize("reader", READERS)
def test_a_changed_file_is_read_or_refused_by_a_sentence(reader: str, folder: Path) -> None:
    results = Results()
    for number in range(READERS[reader].in_suite):
        results.add_(reader, 7, number, try_input(reader, input_of(reader, 7, number), folder))
    assert not results.faults, results.text()
    assert results.ends[reader, "refused"]


def test_the_corpus_is_small_and_belongs_to_the_readers() -> None:
    assert {item.name for item in CORPUS.iterdir()} == set(READERS)
    assert sum(path.stat().st_size for path in CORPUS.rglob("*") if path.is_file()) < 1 << 18


def test_the_same_trial_gives_the_same_input() -> None:
    assert input_of("objects", 1, 5) == input_of("objects", 1, 5)
    assert len({tuple(input_of("objects", 1, number).items()) for number in range(20)}) > 10


@pytest.mark.parametrize("ending", INSIDE)
def test_files_are_changed_behind_what_packs_them(ending: str) -> None:
    found = next(CORPUS.rglob(f"*.{ending}"))
    changed = {mutate(found.read_bytes(), found.name, [b"other"], Random(seed)) for seed in range(20)}
    assert len(changed) > 10
    assert len(BYTE_CHANGES) > 8


@SAME
@given(dotted=st.sampled_from([leaf.dotted for leaf in leaves(RunSpec())]), text=st.text(max_size=30))
def test_any_text_of_a_field_is_a_value_or_a_sentence(dotted: str, text: str) -> None:
    outcome = guarded(lambda: check(override(RunSpec(), dotted, text)))
    assert outcome.end != "fault", outcome.trace


@SAME
@given(name=st.sampled_from([item.name for item in fields(RunSpec)]), value=JSON)
def test_any_json_in_a_spec_is_a_value_or_a_sentence(name: str, value: Any) -> None:
    outcome = guarded(lambda: check(from_dict(RunSpec, to_dict(RunSpec()) | {name: value})))
    assert outcome.end != "fault", outcome.trace


@SAME
@given(text=st.text(max_size=200), reader=st.sampled_from(["tables", "conll", "documents", "overrides"]))
def test_any_text_in_a_file_is_read_or_refused(text: str, reader: str) -> None:
    with tempfile.TemporaryDirectory() as home:
        data = text.encode("utf-8", "surrogatepass")
        outcome = try_input(reader, {"file.txt": data}, Path(home) / "input")
    assert outcome.end != "fault", outcome.trace


def _connect() -> None:
    with socket.socket() as opened:
        opened.settimeout(0.01)
        opened.connect(("127.0.0.1", 1))


def _spin() -> None:
    while True:
        pass


def _refuse_silently() -> None:
    raise BermoError(" ")


@pytest.mark.parametrize(
    ("read", "reason"),
    [
        (lambda: 1 // 0, "ZeroDivisionError"),
        (_refuse_silently, "without a sentence"),
        (_spin, "processor time"),
        (lambda: pickle.loads(pickle.dumps(Path())), "pickle.find_class"),
        (lambda: os.system("true"), "os.system"),
        (_connect, "socket.connect"),
        (lambda: Path("mark").write_text("here"), "mark was opened for writing"),
        (lambda: Path("mark").mkdir(), "os.mkdir"),
        (lambda: len(b"x" * guard.peak()), "MiB of memory"),
    ],
)
def test_whatever_a_reader_must_not_do_is_a_fault(
    read: Any, reason: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As much again as this process ever had may take seconds.
    monkeypatch.setattr(guard, "SECONDS", 60.0 if reason == "MiB of memory" else 1.0)
    monkeypatch.setattr(guard, "MEMORY", 1 << 20)
    outcome = guarded(read)
    assert outcome.end == "fault"
    assert reason in outcome.reason


def test_the_table_counts_every_end_and_names_each_fault_once() -> None:
    results, other = Results(), Results()
    for number in range(3):
        results.add_("conll", 1, number, guarded(lambda: 1 // 0))
    other.add_("conll", 1, 3, guarded(lambda: None))
    results.join_(other)
    assert results.num_inputs == 4
    assert results.rows() == [{"reader": "conll", "inputs": 4, "refused": 0, "accepted": 1, "fault": 3}]
    assert len(results.to_json()["faults"]) == 1
    assert "--only conll --seed 1 --trial 0: 'ZeroDivisionError" in results.text()


def test_counts_are_kept_gone_on_with_and_added_by_their_seeds() -> None:
    results, other = Results(), Results()
    for seed, kept in ((1, results), (2, other)):
        kept.sittings[seed] = replace(sit({}, seed, 4), last=9, seconds=60.0)
        kept.add_("conll", seed, 5, guarded(lambda: 1 // 0))
    again = Results.from_json(json.loads(json.dumps(results.to_json())))
    assert again == results
    assert sit(again.sittings, 1, 2).last == 9
    again.join_(other)
    assert (again.num_inputs, list(again.sittings)) == (2, [1, 2])
    with pytest.raises(SystemExit, match="--seed 2"):
        again.join_(other)
