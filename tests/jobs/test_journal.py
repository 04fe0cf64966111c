"""A search's journal: lines that a kill tore do not count, lines that were changed are named."""

import json
from pathlib import Path

import pytest

from bermo.errors import BermoError
from bermo.jobs.journal import Journal

LOGS = [{"op_code": 0, "name": "é"}, {"op_code": 4, "values": [0.1, None]}, {"op_code": 5, "value": 1e-05}]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    journal = Journal(tmp_path / "journal.jsonl")
    journal.append_logs(LOGS[:1])
    journal.append_logs(LOGS[1:])
    return journal.path


def test_what_was_written_is_read_from_any_line_on(path: Path) -> None:
    assert Journal(path).read_logs(0) == LOGS
    assert Journal(path).read_logs(2) == LOGS[2:]
    assert Journal(path).read_logs(3) == []


def test_a_kill_at_any_byte_loses_the_last_line_alone(path: Path) -> None:
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        journal = Journal(path)
        kept = journal.read_logs(0)
        assert kept == LOGS[: whole[:size].count(b"\n")]
        journal.append_logs(LOGS[:1])
        assert Journal(path).read_logs(0) == [*kept, LOGS[0]]


def test_a_changed_byte_is_named(path: Path) -> None:
    whole = path.read_bytes()
    for at in range(len(whole) - 1):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(BermoError, match=r"journal\.jsonl is damaged"):
            Journal(path)


def test_a_journal_of_an_earlier_version_is_gone_on_with(path: Path) -> None:
    path.write_text("".join(json.dumps(log) + "\n" for log in LOGS))
    Journal(path).append_logs(LOGS[:1])
    assert Journal(path).read_logs(0) == [*LOGS, LOGS[0]]
