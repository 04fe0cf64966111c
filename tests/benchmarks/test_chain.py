"""The chain on SST-2: all seeds come home, words that are rare are cut, the table has shares and factors."""

import json
import lzma
from pathlib import Path

import torch
from transformers import AutoModel

from benchmarks.chain_cpu import large_scores, merged, models, row_bytes, write_texts, write_words
from benchmarks.ship_pack import pack_seeds, unpack
from bermo.data.load import load_task
from bermo.encoders.backbone import load_tokenizer
from bermo.methods.student import student_from_teacher
from bermo.models.tasks import BermoForSequenceClassification
from bermo.runs.task_file import trained_task, write_task
from bermo.spec import DataSpec
from scripts.tables.chain import chain
from tests.tiny import make_batch, save_backbone


def _leave_seed(runs: Path, name: str, seed: int, encoder: Path, heads: float) -> Path:
    """Write a seed's model like chain_gpu.sh, with a share of the heads, and return its folder."""
    whole = BermoForSequenceClassification.from_backbone(str(encoder), mix=None, num_labels=2)
    folder = runs / name / f"seed-{seed}"
    student_from_teacher(whole, [1], None, heads, heads).save_pretrained(folder / "model")
    (runs / name / "spec.json").write_text(json.dumps({"spec": {"name": name}}))
    (folder / "result.json").write_text(json.dumps({"seed": seed, "score": 90.0 + seed, "seconds": 1.0}))
    return folder / "model"


def test_every_seed_of_a_student_comes_home_and_of_the_dense_model_the_first(tmp_path: Path) -> None:
    torch.manual_seed(0)
    encoder, runs = save_backbone("bert", tmp_path / "encoder"), tmp_path / "runs"
    there = {
        f"{name}-seed-{seed}": _leave_seed(runs, name, seed, encoder, heads)
        for name, heads in (
            ("dense", 1.0),
            ("one-50", 0.5),
            ("tokens", 1.0),
            ("one-50-start", 0.5),
            ("mpnet", 1.0),
        )
        for seed in (1, 2)
    }
    (runs / "mpnet-dev.json").write_text(json.dumps({"values": {"accuracy": 93.456}}))
    state = AutoModel.from_pretrained(encoder).state_dict()
    known = {f"bermo.backbone.{key}": value.float() for key, value in state.items()}
    pack_seeds(runs, tmp_path / "packed-1", known)
    unpack(tmp_path / "packed-1", tmp_path / "home", known, encoder)
    came = [(name, seed) for name, seed, _ in models(tmp_path / "home", ".")]
    assert came == [("dense", 1), ("one-50", 1), ("one-50", 2)]
    for name in ("dense-seed-1", "one-50-seed-2"):
        before = BermoForSequenceClassification.from_pretrained(there[name])
        after = BermoForSequenceClassification.from_pretrained(tmp_path / "home" / name)
        with torch.no_grad():
            wanted, got = (model(**make_batch("bert")).logits for model in (before, after))
        torch.testing.assert_close(got, wanted, rtol=1e-2, atol=1e-3)
    facts = json.loads((tmp_path / "packed-1" / "chain.json").read_text())
    assert facts["runs"]["one-50"]["scores"] == [91.0, 92.0]
    assert large_scores(facts) == {"dev": 93.46}


def test_the_frequent_words_of_training_are_kept_first_and_as_many_as_there_is_room_for(
    tmp_path: Path, small_encoder: Path
) -> None:
    (tmp_path / "train.tsv").write_text("sentence\tlabel\n" + "the cat\t1\n" * 3 + "the dog\t0\n")
    with lzma.open(tmp_path / "more.xz", "wt") as file:
        file.write("The house , the house\n")
    texts = write_texts(tmp_path, tmp_path, tmp_path / "more.xz")
    assert texts.words == ("the", "cat", "dog", "house")
    assert texts.calibrate.read_text().strip()
    model = BermoForSequenceClassification.from_backbone(str(small_encoder), mix=None, num_labels=2)
    model.save_pretrained(tmp_path / "model")
    load_tokenizer(str(small_encoder)).save_pretrained(tmp_path / "model")
    task = load_task(DataSpec(task="box/tense"))
    write_task(tmp_path / "model", trained_task(task, DataSpec(task="box/tense")))
    for room, kept in ((0.0, []), (1e12, ["the", "cat", "dog", "house"])):
        written = write_words(texts.words, tmp_path / "model", room, tmp_path / "words.txt")
        assert written.read_text().split() == kept


def test_the_table_has_shares_of_the_own_teacher_and_both_factors() -> None:
    def timed(name: str, times: float, megabytes: float) -> dict[str, object]:
        return {
            "name": name,
            "times": times,
            "spread": [times, times],
            "latency": times,
            "megabytes": megabytes,
        }

    known = {
        "scored": [
            {"student": "dense", "seed": 1, "form": "torch", "dev": 92.0, "test": 92.0},
            {"student": "dense", "seed": 1, "form": "int8", "dev": 91.0, "test": 91.0},
            {"student": "three-50", "seed": 1, "form": "torch", "dev": 50.0, "test": 50.0},
            *(
                {"student": "three-50", "seed": n, "form": "int8", "dev": 90.0 + n, "test": 90.16}
                for n in (1, 2)
            ),
            {"student": "four-67-mpnet", "seed": 1, "form": "int8", "dev": 92.0, "test": 92.0},
        ],
        "mpnet": {"dev": 94.0, "test": 94.0},
        "bench": [
            timed("dense, torch", 1.0, 160.0),
            timed("dense, int8", 2.5, 40.0),
            timed("three-50, torch", 8.0, 80.0),
            timed("three-50, int8", 20.0, 10.0),
            timed("four-67-mpnet, torch", 5.0, 80.0),
            timed("four-67-mpnet, int8", 12.0, 20.0),
            timed("mpnet, torch", 0.25, 400.0),
        ],
    }
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in chain(known).splitlines()[2:]]
    rows = {line[0]: line[1:] for line in lines}
    assert rows["dense (the teacher)"][5:] == ["1.0 ×", "1 × 1", "1.0 ×", "160.0", "1"]
    assert rows["dense, int8"][5:7] == ["2.5 ×", "1.0 × 2.5"]
    student = rows["first 3 layers, half of heads and neurons"]
    assert (student[0], student[2], student[4]) == ("2", "99.5 %", "98.0 %")
    assert student[5:] == ["20.0 ×", "8.0 × 2.5", "20.0 ×", "10.0", "1/16.0"]
    taught = rows["gte-small's first 4 layers, two thirds of heads and neurons, taught by mpnet-base"]
    assert (taught[2], taught[5], taught[6], taught[9]) == ("97.9 %", "48.0 ×", "20.0 × 2.4", "1/20.0")


def test_rows_of_other_students_join_a_file_and_the_same_ones_are_replaced() -> None:
    def found(student: str, dev: float) -> dict[str, object]:
        row = {"student": student, "seed": 1, "form": "int8", "dev": dev}
        return {
            "trained": {student: {"seeds": [1]}},
            "mpnet": {},
            "scored": [row],
            "bench": [{"name": student, "times": dev}],
        }

    first = merged({}, found("three-50", 90.0) | {"mpnet": {"dev": 94.0}})
    both = merged(first, found("int4-three-50", 91.0))
    assert [row["student"] for row in both["scored"]] == ["three-50", "int4-three-50"]
    assert set(both["trained"]) == {"three-50", "int4-three-50"}
    assert both["mpnet"] == {"dev": 94.0}
    again = merged(both, found("three-50", 92.0))
    assert [row["dev"] for row in again["scored"]] == [92.0, 91.0]
    assert [row["times"] for row in again["bench"]] == [92.0, 91.0]


def test_a_word_of_four_bits_takes_its_half_bytes_scales_and_zeros() -> None:
    assert row_bytes(384, "int8") == 388
    assert row_bytes(384, "int4") == 192 + 12 * 2.5
