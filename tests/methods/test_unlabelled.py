"""Texts without labels: the teacher's part of the loss counts for them, a label's never."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional

from bermo.data.features import make_features
from bermo.data.load import load_task
from bermo.data.rows import TextRows
from bermo.data.unlabelled import join_features, read_unlabelled
from bermo.errors import BermoError
from bermo.methods.assemble import LabelLoss, TaskBatches
from bermo.methods.checks import check_methods
from bermo.methods.contrast import ContrastLoss
from bermo.methods.distill import DistilledLoss, answer_distance, counts_of
from bermo.methods.finetune import finetune
from bermo.methods.prepare import notes, prepare
from bermo.methods.teacher import LOGITS, TaughtBatches, load_teacher, teacher_logits
from bermo.methods.unlabelled import HAS_LABEL, PartlyLabelled
from bermo.nn.contrast import contrast
from bermo.nn.losses import mean_over
from bermo.progress import Quiet
from bermo.spec import DataSpec, DistillSpec, PruneSpec, RunSpec, TrainSpec, replace_in
from bermo.training.devices import make_accelerator
from bermo.training.job import Batch, compute_loss
from tests.methods.resumed import check_resumes_to_the_bit
from tests.methods.world import World
from tests.specs import TINY

TEXTS = ["the dog sees a cat", "a cat", "the dogs saw the cats and the dog", "no dog is a cat"]
SPEC = DataSpec(max_length=40, max_unknown=1.0)


def file_of(folder: Path, texts: list[str] = TEXTS) -> Path:
    (folder / "bare.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    return folder / "bare.txt"


def mixed_batches(world: World, folder: Path) -> TaughtBatches:
    """The labelled rows of a world, then texts without labels, with the teacher's answers."""
    rows = read_unlabelled(file_of(folder), world.data)
    cache = replace(SPEC, cache=str(folder / "cache"))
    bare = make_features(rows, world.data.task, world.data.labels, world.tokenizer, cache, has_segments=True)
    accelerator = make_accelerator(TrainSpec(batch_size=8, device="cpu"), folder)
    teacher, joined = load_teacher(world.folder), join_features(world.train, bare)
    parts = [teacher_logits(teacher, part, 16, accelerator, Quiet()) for part in (world.train, bare)]
    batches = PartlyLabelled(TaskBatches(joined, world.rows().plan), len(world.train))
    return TaughtBatches(batches, joined, np.concatenate(parts))


kinds = pytest.mark.parametrize(
    "world", ["classification", "multi-label", "regression", "tagging"], indirect=True
)


@kinds
def test_a_batch_is_its_labelled_rows_plus_the_teacher_on_all(world: World, tmp_path: Path) -> None:
    taught = mixed_batches(world, tmp_path)
    labelled, bare = np.arange(4), np.arange(len(world.train), len(world.train) + 3)
    student = world.student().eval()
    loss = DistilledLoss(LabelLoss(student), load_teacher(world.folder), student, DistillSpec())
    whole = taught.collate(np.concatenate([labelled, bare]))
    assert loss.count(whole) == int(counts_of(whole).sum())
    plain = world.rows().collate(labelled)
    hard, hard_rows = LabelLoss(student), LabelLoss(student).count(plain)
    soft = answer_distance(
        world.data.task.kind, student(**loss.call.arguments(whole)).logits, whole[LOGITS], whole, 2.0
    )
    expected = 0.1 * compute_loss(student, hard, plain) * hard_rows / loss.count(whole)
    expected = expected + 0.9 * mean_over(soft, counts_of(whole))
    torch.testing.assert_close(compute_loss(student, loss, whole), expected)


@kinds
def test_what_stands_in_place_of_a_label_changes_nothing(world: World, tmp_path: Path) -> None:
    taught = mixed_batches(world, tmp_path)
    student = world.student().eval()
    loss = DistilledLoss(LabelLoss(student), load_teacher(world.folder), student, DistillSpec())
    batch = taught.collate(np.array([1, len(world.train), len(world.train) + 1]))
    labels = batch["labels"].clone()
    labels[1:][labels[1:] == 0] = 1
    other = batch | {"labels": labels}
    assert not torch.equal(labels, batch["labels"])
    torch.testing.assert_close(compute_loss(student, loss, batch), compute_loss(student, loss, other))
    none = taught.collate(np.arange(len(world.train), len(world.train) + 2))
    assert LabelLoss(student)(student(**loss.call.arguments(none)), none) == 0


def test_weights_of_classes_count_the_rows_that_have_one(world: World, tmp_path: Path) -> None:
    taught, student = mixed_batches(world, tmp_path), world.student().eval()
    batch, weights = taught.collate(np.array([0, 1, 2, len(world.train)])), torch.tensor([0.5, 1.5])
    logits = student(**LabelLoss.call.arguments({k: v for k, v in batch.items() if k != LOGITS})).logits
    each = functional.cross_entropy(logits[:3], batch["labels"][:3], reduction="none")
    expected = (each * weights[batch["labels"][:3]]).sum() / 4
    actual = LabelLoss(student, weights)({"logits": logits}, batch)
    torch.testing.assert_close(actual, expected)


def test_contrast_pairs_labelled_texts_alone(world: World, tmp_path: Path) -> None:
    taught, student = mixed_batches(world, tmp_path), world.student().eval()
    loss = ContrastLoss(LabelLoss(student), student, 1.0, 8)
    seen: list[torch.Tensor] = []
    student.head.register_forward_pre_hook(lambda head, arguments: seen.append(arguments[0]))
    batch: Batch = taught.collate(np.array([0, 1, 2, len(world.train)]))
    del batch[LOGITS]
    total = compute_loss(student, loss, batch)
    alone = compute_loss(student, LabelLoss(student), batch)
    torch.testing.assert_close(total - alone, contrast(seen[0][:3], batch["labels"][:3]))


def test_answers_from_a_file_are_read_for_texts_without_labels_too(tmp_path: Path) -> None:
    lines = ["text,label", *(f"a cat {k},{'yes' if k % 2 else 'no'}" for k in range(24))]
    (tmp_path / "my.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    texts = [*(f"a cat {k}" for k in range(24)), *TEXTS]
    soft = ["text,no,yes", *(f"{text},0.25,0.75" for text in texts)]
    (tmp_path / "soft.csv").write_text("\n".join(soft) + "\n", encoding="utf-8")
    data = DataSpec(train=str(tmp_path / "my.csv"), valid=str(tmp_path / "my.csv"), max_unknown=1.0)
    taught = DistillSpec(answers=str(tmp_path / "soft.csv"), unlabelled=str(file_of(tmp_path)))
    prepared = prepare(RunSpec(data=data, distill=taught), Quiet())
    assert prepared.answers is not None
    assert len(prepared.answers) == len(prepared.learned) == 28
    assert "4 texts without labels (bare.txt), taught alone." in notes(prepared)


def test_pairs_without_labels_are_read_from_two_columns(tmp_path: Path) -> None:
    lines = ["question1,question2,label", *(f"a cat {k},a dog,{'yes' if k % 2 else 'no'}" for k in range(24))]
    (tmp_path / "my.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (tmp_path / "bare.csv").write_text("question1,question2\na cat,a film\n", encoding="utf-8")
    data = load_task(DataSpec(train=str(tmp_path / "my.csv"), valid=str(tmp_path / "my.csv")))
    assert read_unlabelled(tmp_path / "bare.csv", data) == TextRows(["a cat"], ["a film"])
    with pytest.raises(BermoError, match=r"bare\.txt"):
        read_unlabelled(file_of(tmp_path), data)


def test_features_are_joined_end_to_end(world: World, tmp_path: Path) -> None:
    joined = mixed_batches(world, tmp_path).features
    assert len(joined) == len(joined.rows) == len(world.train) + len(TEXTS)
    row = len(world.train) + 1
    text = world.tokenizer.decode(joined.ids[joined.starts[row] : joined.starts[row + 1]])
    assert "a cat" in text
    assert joined.facts.num_tokens == len(joined.ids)


def taught_spec(world: World, folder: Path) -> RunSpec:
    plain = replace_in(replace(TINY, prune=PruneSpec()), train={"epochs": 2}, data={"max_unknown": 1.0})
    plain = replace_in(plain, model={"backbone": str(world.folder / "encoder")})
    return replace_in(
        plain, distill={"teacher": str(world.folder), "unlabelled": str(file_of(folder, TEXTS * 4))}
    )


@pytest.mark.parametrize("layers", [{}, {"hidden": 0.5}])
def test_a_run_with_texts_without_labels_resumes_to_the_bit(
    world: World, tmp_path: Path, layers: dict[str, float]
) -> None:
    world.student().bermo.backbone.save_pretrained(world.folder / "encoder")
    world.tokenizer.save_pretrained(world.folder / "encoder")
    spec = replace_in(taught_spec(world, tmp_path), distill=layers)
    with_texts = check_resumes_to_the_bit(spec, tmp_path, 2)
    without = finetune(replace_in(spec, distill={"unlabelled": None}), tmp_path / "without")
    assert without.seeds[0].steps == 6
    saved = load_file(tmp_path / "without" / "model" / "model.safetensors")
    assert any(not torch.equal(saved[name], with_texts[name]) for name in saved)
    file_of(tmp_path, TEXTS)
    with pytest.raises(BermoError, match="has changed since it was started"):
        finetune(spec, tmp_path / "whole")


def test_seeds_together_learn_from_texts_without_labels(world: World, tmp_path: Path) -> None:
    world.student().bermo.backbone.save_pretrained(world.folder / "encoder")
    world.tokenizer.save_pretrained(world.folder / "encoder")
    spec = replace_in(taught_spec(world, tmp_path), train={"together": 2, "epochs": 1})
    result = finetune(replace(spec, seeds=(1, 2)), tmp_path / "two")
    assert [seed.steps for seed in result.seeds] == [4, 4]
    assert all(np.isfinite(seed.loss) for seed in result.seeds)


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("a.csv", "question1,question2\nx,y\n", r"must have 1 column\(s\) of texts|has the text column"),
        ("a.csv", "number,other\n1,2\n", "no column has a usual name for the text"),
        ("a.txt", " \n", "is empty"),
        ("a.csv", 'text,other\n"",1\n', "no text that is not empty"),
    ],
)
def test_a_file_without_texts_is_refused(
    world: World, tmp_path: Path, name: str, text: str, sentence: str
) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(BermoError, match=sentence):
        read_unlabelled(tmp_path / name, world.data)


def test_a_table_gives_its_texts_and_empty_ones_are_left_out(world: World, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('id,text,label\n1,a cat,x\n2,"",y\n3,a dog,\n', encoding="utf-8")
    rows = read_unlabelled(tmp_path / "a.csv", world.data)
    assert isinstance(rows, TextRows)
    assert rows.first == ["a cat", "a dog"]
    assert rows.labels is None


@pytest.mark.parametrize("world", ["span", "choice"], indirect=True)
def test_kinds_without_rows_of_this_form_are_refused_by_name(world: World, tmp_path: Path) -> None:
    with pytest.raises(BermoError, match=world.data.task.kind):
        read_unlabelled(file_of(tmp_path), world.data)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"distill": {"unlabelled": "a.txt"}}, "need a teacher"),
        (
            {"distill": {"unlabelled": "a.txt", "teacher": "x"}, "method": {"theseus": 2}},
            "learns from the labels alone",
        ),
    ],
)
def test_options_that_cannot_work_are_refused(changes: dict[str, dict[str, object]], sentence: str) -> None:
    with pytest.raises(BermoError, match=sentence):
        check_methods(replace_in(RunSpec(), **changes))
    assert HAS_LABEL in LabelLoss.call.only_for_loss
