"""Students without a Transformer: they learn their teacher's answers, and answer from their files."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bermo.atlas import students
from bermo.atlas.baselines import ARRAYS, num_parameters
from bermo.atlas.chain import Base
from bermo.atlas.checks import Rows
from bermo.atlas.joining import device_of_students
from bermo.atlas.students import STUDENTS, fit_student, read_student, training_seconds
from bermo.data.load import load_task
from bermo.data.rows import TextRows
from bermo.errors import BermoError
from bermo.spec import DataSpec, RunSpec, replace_in

WORDS = ("the good film", "a bad film", "good fun", "no fun", "a dull thing", "the dog and the cat sees")


def make_rows(has_pairs: bool) -> TextRows:
    first = [f"{text} {WORDS[k % 5]}" for k, text in enumerate(WORDS * 5)]
    return TextRows(first, first[::-1] if has_pairs else None)


def logits_of(rows: TextRows) -> np.ndarray:
    """A teacher that reads one word."""
    is_good = np.array(["good" in text for text in rows.first])
    return np.where(is_good, 2.0, -2.0)[:, None] * np.array([[-1.0, 1.0]])


@pytest.mark.parametrize("name", STUDENTS)
@pytest.mark.parametrize("has_pairs", [False, True])
def test_a_student_learns_its_teachers_answers_and_keeps_them_on_disk(
    name: str, has_pairs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(students, "RATE", 5e-3)
    rows, kind = make_rows(has_pairs), STUDENTS[name]
    teacher = logits_of(rows)
    fit_student(kind, rows, teacher, "box", 1, tmp_path / "model")
    answers = read_student(tmp_path / "model", "box")(rows)
    assert answers.shape == (30, 2)
    np.testing.assert_allclose(answers.sum(1), 1, rtol=1e-5)
    assert (answers.argmax(1) == teacher.argmax(1)).mean() > 0.9
    assert training_seconds(tmp_path / "model") > 0
    assert num_parameters(tmp_path / "model") > 2282 * 32
    # A call again trains nothing, and one text alone is answered as beside others.
    before = (tmp_path / "model" / ARRAYS).stat().st_mtime_ns
    fit_student(kind, rows, -teacher, "box", 1, tmp_path / "model")
    assert (tmp_path / "model" / ARRAYS).stat().st_mtime_ns == before
    one = TextRows(rows.first[:1], None if rows.second is None else rows.second[:1])
    np.testing.assert_allclose(read_student(tmp_path / "model", "box")(one), answers[:1], atol=1e-5)


def test_the_seed_decides_the_arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(students, "EPOCHS", 2)
    rows = make_rows(has_pairs=False)
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        fit_student(STUDENTS["bilstm"], rows, logits_of(rows), "box", seed, tmp_path / name)
    a, b, c = (dict(np.load(tmp_path / name / ARRAYS)) for name in "abc")
    assert [key for key in a if not np.array_equal(a[key], b[key])] == []
    assert not np.array_equal(a["dense.weight"], c["dense.weight"])


def test_a_damaged_student_is_named_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(students, "EPOCHS", 1)
    rows = make_rows(has_pairs=False)
    fit_student(STUDENTS["static-mlp"], rows, logits_of(rows), "box", 1, tmp_path / "model")
    (tmp_path / "model" / ARRAYS).write_bytes(b"PK")
    with pytest.raises(BermoError, match=r"arrays\.npz.*Delete its folder"):
        read_student(tmp_path / "model", "box")


@pytest.mark.parametrize("has_pairs", [False, True])
def test_a_teacher_is_asked_about_texts_without_labels_after_those_with(has_pairs: bool) -> None:
    train, more = (replace(make_rows(has_pairs), labels=labels) for labels in (("1",) * 30, None))
    rows = Rows(data=load_task(DataSpec(task="box/object-number", limit=8)), train=train, valid=train)
    assert list(rows.taught.first) == list(train.first)
    taught = replace(rows, unlabelled=more).taught
    assert list(taught.first) == [*train.first, *more.first]
    assert taught.labels is None
    assert (taught.second is not None) == has_pairs
    assert not has_pairs or list(taught.second or ()) == [*(train.second or ()), *(more.second or ())]


def test_students_are_trained_on_a_gpu_unless_another_device_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = dict.fromkeys(("out", "valid", "judged", "train", "texts"), tmp_path)
    devices: dict[tuple[bool, str], str] = {}
    for has_gpu in (False, True):
        monkeypatch.setattr(torch.cuda, "is_available", lambda has_gpu=has_gpu: has_gpu)
        for asked in ("auto", "cuda", "cpu", "mps"):
            spec = replace_in(RunSpec(), train={"device": asked})
            devices[has_gpu, asked] = device_of_students(Base(spec=spec, num_layers=3, **paths))
    assert [key for key, device in devices.items() if device == "cuda"] == [(True, "auto"), (True, "cuda")]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("name", STUDENTS)
def test_a_student_that_a_gpu_trained_answers_on_a_cpu(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(students, "RATE", 5e-3)
    rows = make_rows(has_pairs=False)
    teacher = logits_of(rows)
    fit_student(STUDENTS[name], rows, teacher, "box", 1, tmp_path / "model", "cuda")
    answers = read_student(tmp_path / "model", "box")(rows)
    assert (answers.argmax(1) == teacher.argmax(1)).mean() > 0.9
