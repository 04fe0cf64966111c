"""A student learns from probabilities in a file as it does from the teacher that gave them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bermo.data.load import load_task
from bermo.data.rows import TaggedRows, TextRows
from bermo.data.teacher_answers import read_answers
from bermo.errors import BermoError
from bermo.fields import check
from bermo.methods.answers import AnsweredLoss
from bermo.methods.assemble import LabelLoss
from bermo.methods.checks import check_methods
from bermo.methods.distill import DistilledLoss
from bermo.methods.teacher import LOGITS, Teacher
from bermo.runs.task_file import TrainedTask
from bermo.ship.runtimes.written import answer_writer
from bermo.spec import DistillSpec, PruneSpec, RunSpec, replace_in
from tests import tiny
from tests.methods.resumed import check_resumes_to_the_bit
from tests.ship.folders import make_model
from tests.specs import TINY

ROWS = TextRows(first=["good", "bad, really"], labels=["1", "0"])
LINES = 'text,0,1\n"bad, really",0.75,0.25\nmore,0.5,0.5\ngood,0.1,0.9\n'


def written(folder: Path, text: str) -> Path:
    (folder / "answers.csv").write_text(text, encoding="utf-8")
    return folder / "answers.csv"


def test_rows_are_found_by_their_texts_and_become_logarithms(tmp_path: Path) -> None:
    answers = read_answers(written(tmp_path, LINES), ROWS, ["0", "1"])
    np.testing.assert_allclose(np.exp(answers), [[0.1, 0.9], [0.75, 0.25]], rtol=1e-5)
    objects = '{"text": "good", "0": 0, "1": 1}\n{"text": "bad, really", "0": 0.75, "1": 0.25}\n'
    (tmp_path / "answers.jsonl").write_text(objects, encoding="utf-8")
    answers = read_answers(tmp_path / "answers.jsonl", ROWS, ["0", "1"])
    assert np.isfinite(answers).all()
    written_by_predict = "sentence,label,probability,probability_0,probability_1\n"
    lines = written_by_predict + 'good,1,0.9,0.1,0.9\n"bad, really",0,0.75,0.75,0.25\n'
    answers = read_answers(written(tmp_path, lines), ROWS, ["0", "1"])
    np.testing.assert_allclose(np.exp(answers), [[0.1, 0.9], [0.75, 0.25]], rtol=1e-5)


@pytest.mark.parametrize("name", ["answers.csv", "answers.tsv", "answers.jsonl"])
def test_answers_that_predict_wrote_are_found_though_a_spreadsheet_would_compute_their_texts(
    name: str, tmp_path: Path
) -> None:
    texts = ["-- that you should never forget ", "=1+1", "'@a", "'tis", "a\tb", "-5", "\nfirst"]
    with (tmp_path / name).open("w", encoding="utf-8", newline="") as file:
        write = answer_writer(file, tmp_path / name)
        for number, text in enumerate(texts):
            share = number / 10
            write({"text": text, "label": "1", "probabilities": {"0": share, "1": 1 - share}})
    answers = read_answers(tmp_path / name, TextRows(first=texts[::-1], labels=["1"] * 7), ["0", "1"])
    np.testing.assert_allclose(np.exp(answers[:, 0]), [0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 1e-6], rtol=1e-5)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("text,0\ngood,1\n", 'has no column "1"'),
        ("text,0,1\ngood,0.5,0.5\n", "no answer to 1 of 2 training texts"),
        ("text,0,1\ngood,0.5,0.1\nbad,0.5,0.5\n", "line 2: the probabilities of a row must"),
        ("text,0,1\ngood,yes,0.1\n", 'a probability of "0" was expected, but got "yes"'),
        ('text,probabilities\ngood,"[1]"\n', 'an object such as {"good": 0.9'),
        ("question,sentence,0,1\ngood,a,0.5,0.5\n", "must have 1 columns of texts"),
    ],
)
def test_a_file_that_cannot_teach_is_refused(text: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(BermoError, match=sentence):
        read_answers(written(tmp_path, text), ROWS, ["0", "1"])
    with pytest.raises(BermoError, match="each have one class"):
        read_answers(tmp_path / "answers.csv", TaggedRows(words=[["a"]]), ["0"])


def test_the_loss_is_that_of_a_teacher_who_gives_these_answers(tmp_path: Path) -> None:
    model, batch, spec = make_model(), tiny.make_batch("bert"), DistillSpec(teacher="x")
    labels = torch.tensor([0, 1, 0])
    logits = torch.randn(3, 2)
    task = load_task(TINY.data)
    teacher = Teacher(
        tmp_path,
        make_model(),
        TrainedTask(task=task.task, labels=("0", "1"), text=(), max_length=8, stride=8),
    )
    full = batch | {"labels": labels, LOGITS: logits}
    outputs = model(**batch)
    hard = LabelLoss(model)
    asked = DistilledLoss(hard, teacher, model, spec)(outputs, full)
    # Softmax does not feel a constant that is added to all logits.
    read = AnsweredLoss(hard, "classification", spec)(outputs, full | {LOGITS: logits.log_softmax(-1)})
    torch.testing.assert_close(read, asked)


@pytest.mark.usefixtures("shallow_box")
def test_a_run_resumes_to_the_bit(tmp_path: Path) -> None:
    task = load_task(TINY.data)
    generator = np.random.default_rng(0)
    lines = ["\t".join(["text", *task.labels])]
    for text in task.train.first:
        share = generator.random()
        lines.append("\t".join([text, f"{share:.3f}", f"{1 - share:.3f}"]))
    (tmp_path / "answers.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    plain = replace_in(replace(TINY, prune=PruneSpec()), train={"epochs": 2})
    check_resumes_to_the_bit(
        replace_in(plain, distill={"answers": str(tmp_path / "answers.tsv")}), tmp_path, 2
    )


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"distill": {"answers": "a.csv", "teacher": "runs/dense"}}, "probabilities and no model"),
        ({"distill": {"answers": "a.csv", "hidden": 1.0}}, "probabilities and no model"),
        ({"distill": {"answers": "a.csv", "soft": 0.0}}, "distill-soft and temperature over 0"),
    ],
)
def test_options_that_cannot_work_are_refused(changes: dict[str, dict[str, object]], sentence: str) -> None:
    with pytest.raises(BermoError, match=sentence):
        check_methods(check(replace_in(RunSpec(), **changes)))
