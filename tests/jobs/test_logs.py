"""Logs of attempts: three are kept, whatever the number of attempts."""

from pathlib import Path

from bermo.jobs.logs import make_room


def test_the_last_attempts_are_kept_and_no_more(tmp_path: Path) -> None:
    log = tmp_path / "jobs" / "mix.seed-1.log"
    for attempt in range(5):
        make_room(log)
        log.write_text(str(attempt))
    kept = {path.name: path.read_text() for path in log.parent.iterdir()}
    assert kept == {"mix.seed-1.log": "4", "mix.seed-1.1.log": "3", "mix.seed-1.2.log": "2"}
