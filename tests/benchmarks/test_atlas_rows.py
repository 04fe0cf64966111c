"""Rows of an atlas: the last training of each method counts, and only where it has ended."""

import json
from pathlib import Path

import pytest

from benchmarks.atlas_rows import arms, rows, speeds, with_speeds
from bermo.files import write_sealed
from bermo.ship.bench.measured import Bench, Measured, Timing
from bermo.ship.bench.run import write_bench
from bermo.ship.bench.spec import BenchSpec


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


def test_a_method_that_is_left_stays_as_the_file_has_it(tmp_path: Path) -> None:
    write(tmp_path / "dense" / "seed-1" / "1-train", 1, 92.0)
    write(tmp_path / "theseus" / "seed-1" / "1-train", 1, 90.0)
    known = [{"method": "dense", "seeds": [1], "scores": [91.0]}]
    dense, theseus = rows(tmp_path, known, ["dense"])
    assert dense is known[0]
    assert theseus["scores"] == [90.0]
    assert [row["method"] for row in rows(tmp_path, [], ["dense"])] == ["theseus"]


def test_the_model_that_compress_chose_is_named(tmp_path: Path) -> None:
    seed = tmp_path / "compress" / "seed-1"
    (seed / "1-compress").mkdir(parents=True)
    shipped = {"score": 80.0, "same_labels": 0.8, "same_probabilities": 0.7, "megabytes": 2.0}
    (seed / "measured.json").write_text(json.dumps(shipped | {"parameters": 3, "nonzero": 3}))
    (seed / "1-compress" / "result.json").write_text(json.dumps({"picked": "3 layers openvino-int8"}))
    (row,) = rows(tmp_path, [])
    assert row["shipped"][0]["picked"] == "3 layers openvino-int8"


def test_mixes_have_their_last_scores_from_folders_of_several_calls(tmp_path: Path) -> None:
    write(tmp_path / "b" / "opens", 25, 88.0)
    write(tmp_path / "a" / "opens", 9, 87.0)
    assert arms(tmp_path)["opens"] == {"9": 86.0, "25": 87.0}


def test_speeds_are_those_of_the_methods_that_were_timed(tmp_path: Path) -> None:
    def measured(name: str, short: float, rows_per_second: float) -> Measured:
        shapes = ((1, 32, short, 1000 / short), (32, 128, 90.0, rows_per_second))
        timings = tuple(
            Timing(
                batch=batch,
                length=length,
                calls=9,
                p50=p50,
                p95=p50,
                p99=p50,
                rows_per_second=speed,
                rounds=(p50,),
            )
            for batch, length, p50, speed in shapes
        )
        return Measured(
            name=name,
            form="onnx",
            precision="int8",
            device="cpu",
            megabytes=1.0,
            peak_memory_mb=1.0,
            score=None,
            timings=timings,
        )

    spec = BenchSpec(batches=(1, 32), lengths=(32, 128), rounds=1)
    rows = (measured("dense", 20.0, 10.0), measured("int8", 4.0, 30.5))
    known = Bench(spec=spec, metric=None, threads=2, machine="two cores", versions={}, rows=rows)
    (tmp_path / "int8").mkdir()
    write_bench(tmp_path / "int8" / "bench.json", known)
    found = speeds(tmp_path)
    assert found["machine"] == "two cores"
    assert list(found["rows"]) == ["int8"]
    assert found["rows"]["int8"]["throughput"] == 3.05
    assert (found["rows"]["int8"]["latency"], found["rows"]["int8"]["ms"]) == (5.0, 4.0)


def test_a_baseline_has_one_row_of_scores_and_a_student_one_for_each_seed(tmp_path: Path) -> None:
    shipped = {"score": 80.0, "same_labels": 0.8, "same_probabilities": 0.7, "megabytes": 2.0}
    for name in ("tf-idf", "bilstm"):
        for seed in (1, 2):
            (tmp_path / name / f"seed-{seed}").mkdir(parents=True)
            content = json.dumps(shipped | {"parameters": 3, "nonzero": 3})
            (tmp_path / name / f"seed-{seed}" / "measured.json").write_text(content)
    found = {row["method"]: row for row in rows(tmp_path, [])}
    assert {name: [one["seed"] for one in row["shipped"]] for name, row in found.items()} == {
        "bilstm": [1, 2],
        "tf-idf": [1],
    }
    assert {row["group"] for row in found.values()} == {"baselines"}


def test_speeds_of_baselines_say_that_they_are_on_texts_and_others_stay(tmp_path: Path) -> None:
    speed = {
        "milliseconds": 0.5,
        "speedup": 2000.04,
        "speedup_spread": [1900.0, 2100.0],
        "latency_gain": 99.0,
    }
    (tmp_path / "tf-idf").mkdir()
    write_sealed(tmp_path / "tf-idf" / "bench.json", {"machine": "two cores", "threads": 2, "speed": speed})
    found = speeds(tmp_path)
    row = {"throughput": 2000.04, "least_most": [1900.0, 2100.0], "latency": 99.0, "ms": 0.5, "on": "texts"}
    assert found == {"machine": "two cores", "threads": 2, "rows": {"tf-idf": row}}
    known = {"machine": "two cores", "threads": 2, "rows": {"int8": {"throughput": 3.0}}}
    assert with_speeds(known, found)["rows"] == {"int8": {"throughput": 3.0}, "tf-idf": row}
    with pytest.raises(SystemExit, match="machine was two cores, now four cores"):
        with_speeds(known, found | {"machine": "four cores"})
