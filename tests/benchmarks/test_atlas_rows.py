"""Rows of an atlas: the last training of each method counts, and only where it has ended."""

import json
from pathlib import Path

from benchmarks.atlas_rows import arms, rows


def write(path: Path, seed: int, score: float) -> None:
    path.mkdir(parents=True)
    found = {"seeds": [{"seed": seed, "score": score, "last_score": score - 1}]}
    (path / "result.json").write_text(json.dumps(found))


def test_a_row_has_the_seeds_that_ended_the_last_training_of_a_method(tmp_path: Path) -> None:
    for seed, score in ((1, 91.744), (2, 91.0)):
        write(tmp_path / "dense" / f"seed-{seed}" / "1-train", seed, score)
        write(tmp_path / "binary" / f"seed-{seed}" / "1-train", seed, 80.0)
    write(tmp_path / "binary" / "seed-1" / "2-train", 1, 87.0)
    write(tmp_path / "structure-then-rank" / "seed-1" / "1-train", 1, 88.0)
    found = {row["method"]: (row["seeds"], row["scores"]) for row in rows(tmp_path, [])}
    assert found == {"dense": ([1, 2], [91.74, 91.0]), "binary": ([1], [87.0])}


def test_seeds_that_are_not_in_the_folder_stay_and_what_is_shipped_stands_beside_them(tmp_path: Path) -> None:
    write(tmp_path / "dense" / "seed-1" / "1-train", 1, 92.0)
    shipped = {"score": 90.707, "same_labels": 0.98624, "same_probabilities": 0.9881, "megabytes": 34.4871}
    shipped |= {"parameters": 33, "nonzero": 32}
    (tmp_path / "int8" / "seed-1").mkdir(parents=True)
    (tmp_path / "int8" / "seed-1" / "measured.json").write_text(json.dumps(shipped))
    known = [{"method": "dense", "seeds": [1, 3], "scores": [91.0, 90.0]}]
    dense, int8 = rows(tmp_path, known)
    assert (dense["seeds"], dense["scores"]) == ([1, 3], [92.0, 90.0])
    assert (int8["seeds"], int8["scores"]) == ([], [])
    (first,) = int8["shipped"]
    assert first["seed"] == 1
    assert (first["score"], first["same_labels"], first["megabytes"]) == (90.71, 98.6, 34.49)
    assert rows(tmp_path / "none", [dense, int8]) == [dense, int8]


def test_mixes_have_their_last_scores_from_folders_of_several_calls(tmp_path: Path) -> None:
    write(tmp_path / "b" / "opens", 25, 88.0)
    write(tmp_path / "a" / "opens", 9, 87.0)
    assert arms(tmp_path)["opens"] == {"9": 86.0, "25": 87.0}
