"""The page of students over seeds shows means, shares of their own teacher, and paired differences."""

import json
import statistics
from pathlib import Path

import pytest

from benchmarks.student_rows import page, rows
from tests.docs.documents import ROOT, rows_of

FOUR, PRUNED = (90.0, 91.0, 90.5), (91.0, 91.4, 91.8)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    def write(folder: str, seed: int, test: float) -> None:
        (tmp_path / folder / f"seed-{seed}").mkdir(parents=True)
        result = {"seed": seed, "last_score": test - 1, "steps": 10}
        (tmp_path / folder / f"seed-{seed}" / "result.json").write_text(json.dumps(result), encoding="utf-8")
        (tmp_path / "test").mkdir(exist_ok=True)
        scored = {"values": {"accuracy": test}}
        (tmp_path / "test" / f"{folder}-seed-{seed}.json").write_text(json.dumps(scored), encoding="utf-8")

    write("teacher", 9, 92.0)
    for seed, (whole, pruned) in enumerate(zip(FOUR, PRUNED, strict=True)):
        write("four", seed, whole)
        write(f"four-60.{seed}", seed, pruned)
    return tmp_path


def test_every_scored_seed_becomes_a_row(out: Path) -> None:
    (out / "test" / "four-seed-2.json").unlink()
    found = rows(out)
    assert [(row["name"], row["seed"], row["test"]) for row in found] == [
        ("teacher", 9, 92.0),
        *(("four-60", seed, score) for seed, score in enumerate(PRUNED)),
        *(("four", seed, score) for seed, score in enumerate(FOUR[:2])),
    ]
    assert found[0]["dev"] == 91.0


def test_means_shares_and_differences_are_those_of_the_rows(out: Path) -> None:
    text = page(rows(out))
    table = "\n".join(line for line in text.splitlines() if line.startswith("|"))
    shown = {row[""]: row for row in rows_of(table)}
    whole = shown["first 4 layers whole, taught alike"]
    assert whole["test (95 %)"].startswith(f"{statistics.fmean(FOUR):.2f} (")
    assert whole["of the teacher's test"] == f"{100 * statistics.fmean(FOUR) / 92:.1f} %"
    assert whole["seeds"] == "3"
    gaps = [one - other for one, other in zip(PRUNED, FOUR, strict=True)]
    assert f"{statistics.fmean(gaps):+.2f} (" in text
    assert "no difference shown" in text


def test_a_committed_page_is_what_its_numbers_give() -> None:
    numbers = ROOT / "results" / "students.json"
    if numbers.exists():
        made = page(json.loads(numbers.read_text(encoding="utf-8")))
        assert (ROOT / "results" / "students.md").read_text(encoding="utf-8") == made
