"""Rows of a new measurement take the place of those that they repeat."""

from typing import Any

from benchmarks.sentence_rows import put_in


def test_rows_are_replaced_by_student_and_seed_and_times_apart() -> None:
    results: dict[str, Any] = {
        "encoders": {
            "a": [{"name": "dense", "spearman": 80.0}, {"name": "half", "seed": 1, "spearman": 1.0}]
        },
        "bench": {"a": [{"name": "half", "times": 2.0}]},
    }
    rows = [
        {"name": "half", "seed": 1, "spearman": 79.00049},
        {"name": "half", "seed": 2, "spearman": 78.0},
        {"name": "half, int8", "times": 6.1},
    ]
    put_in(results, "a", rows, "a processor")
    assert results["encoders"]["a"] == [
        {"name": "dense", "spearman": 80.0},
        {"name": "half", "seed": 1, "spearman": 79.0},
        {"name": "half", "seed": 2, "spearman": 78.0},
    ]
    timed = {"name": "half, int8", "times": 6.1, "machine": "a processor"}
    assert results["bench"]["a"] == [{"name": "half", "times": 2.0}, timed]
    put_in(results, "b", rows[:1], "a processor")
    assert len(results["encoders"]["b"]) == 1
