"""The rows and the table of fine-tuned boxes are those of the runs."""

import json
from pathlib import Path

from benchmarks.box_rows import rows, table


def test_a_row_for_each_seed_and_the_mean_of_best_and_last(tmp_path: Path) -> None:
    for name, scores in (("now-rte", [(56.0, 55.0), (58.0, 54.0)]), ("gte-sst2", [(86.5, 86.25)])):
        (tmp_path / name).mkdir()
        seeds = [
            {"seed": k, "score": best, "last_score": last, "frozen_score": 70.0004 if k else None}
            for k, (best, last) in enumerate(scores)
        ]
        (tmp_path / name / "result.json").write_text(json.dumps({"seeds": seeds}))
    (tmp_path / "text-mr").mkdir()
    (tmp_path / "text-mr" / "result.json").write_text(json.dumps({"steps": 5}))
    found = rows(tmp_path)
    assert found[0] == {"encoder": "gte", "task": "sst2", "seed": 0, "score": 86.5, "last": 86.25}
    assert found[-1] == {
        "encoder": "now",
        "task": "rte",
        "seed": 1,
        "score": 58.0,
        "last": 54.0,
        "frozen": 70.0,
    }
    assert len(found) == 3
    head, taught, now = table(found).splitlines()
    assert head.split() == ["encoder", "sst2", "rte"]
    assert taught.split() == ["gte", "86.50", "86.25", "–"]
    assert now.split() == ["now", "–", "57.00", "54.50"]
