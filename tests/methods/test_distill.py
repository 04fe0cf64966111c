"""A teacher teaches: the terms add up, the cache and the live teacher agree, splitting changes nothing."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    DistilBertConfig,
)

from bermo.data.tensors import collate
from bermo.errors import BermoError
from bermo.methods.assemble import LabelLoss
from bermo.methods.checks import check_distill
from bermo.methods.distill import NAME, DistilledLoss, set_aside
from bermo.methods.teacher import LOGITS, TaughtBatches, load_teacher, teacher_logits
from bermo.models import tasks as models
from bermo.nn.losses import hidden_distance, mean_over, relation_distance
from bermo.progress import Quiet
from bermo.spec import DistillSpec, TrainSpec
from bermo.training import checkpoint
from bermo.training.devices import make_accelerator
from bermo.training.job import Job, compute_loss
from bermo.training.loop import fit
from tests.methods.world import KINDS, World, build, save

SETTINGS = TrainSpec(batch_size=8, lr=1e-3, device="cpu")
ALL = DistillSpec(hidden=0.5, relations=0.7, embeddings=0.3)


def objective(world: World, student: models.BermoPreTrainedModel, spec: DistillSpec) -> DistilledLoss:
    torch.manual_seed(5)
    loss = DistilledLoss(LabelLoss(student), load_teacher(world.folder), student, spec)
    loss.attach_(student)
    return loss


every_kind = pytest.mark.parametrize("world", [*KINDS, "multi-label", "regression"], indirect=True)


@every_kind
def test_the_cached_and_the_live_teacher_give_the_same_loss(world: World) -> None:
    accelerator = make_accelerator(SETTINGS, world.folder)
    teacher, student = load_teacher(world.folder), world.student().train()
    logits = teacher_logits(teacher, world.train, 16, accelerator, Quiet())
    live, cached = world.rows(), TaughtBatches(world.rows(), world.train, logits)
    loss = DistilledLoss(LabelLoss(student), teacher, student, DistillSpec())
    for rows in live.epoch(0)[:2]:
        batch = cached.collate(rows)
        assert loss.count(batch) == loss.count(live.collate(rows)) > 0
        torch.testing.assert_close(
            compute_loss(student, loss, batch), compute_loss(student, loss, live.collate(rows))
        )
        alone = compute_loss(student, LabelLoss(student), live.collate(rows))
        assert abs(compute_loss(student, loss, batch) - alone).item() > 1e-3


@every_kind
def test_splitting_a_batch_changes_nothing_but_rounding(world: World) -> None:
    student = world.student().train()
    # The labels' loss of spans reads padding too, as in transformers, so there it would move a little.
    spec = replace(ALL, hard=0.0) if world.data.task.kind == "span" else ALL
    loss, rows = objective(world, student, spec), np.arange(12)
    parts = [collate(world.train, part) for part in (rows[:3], rows[3:4], rows[4:])]
    whole = collate(world.train, rows)
    shares = [loss.count(part) / loss.count(whole) for part in parts]
    split = sum(compute_loss(student, loss, part) * share for part, share in zip(parts, shares, strict=True))
    torch.testing.assert_close(split, compute_loss(student, loss, whole), rtol=1e-4, atol=1e-6)


def test_the_terms_are_the_losses_of_student_and_teacher(world: World) -> None:
    student, batch = world.student().train(), world.rows().collate(np.arange(6))
    loss = objective(world, student, ALL)
    teacher, inputs = loss.teacher.model, {k: v for k, v in batch.items() if k != "labels"}
    own, theirs = (m(**inputs, output_hidden_states=True).hidden_states for m in (student, teacher))
    mask, project = batch["attention_mask"], loss.projections
    ones = torch.ones(6)
    expected = compute_loss(student, objective(world, student, DistillSpec()), batch)
    hidden = hidden_distance(project["hidden"](own[1]), theirs[2], mask) / 2
    hidden = hidden + hidden_distance(project["hidden"](own[2]), theirs[4], mask) / 2
    expected = expected + 0.5 * mean_over(hidden, ones)
    embeddings = hidden_distance(project["embeddings"](own[0]), theirs[0], mask)
    expected = expected + 0.3 * mean_over(embeddings, ones)
    # BERT's last layer projects its input as it comes.
    inner = [
        [
            getattr(m.bermo.backbone.encoder.layer[-1].attention.self, n)(h[-2])
            for n in ("query", "key", "value")
        ]
        for m, h in ((student, own), (teacher, theirs))
    ]
    expected = expected + 0.7 * mean_over(relation_distance(*inner, mask), ones)
    torch.testing.assert_close(compute_loss(student, loss, batch), expected)


def test_hidden_states_are_asked_for_only_where_a_term_reads_them(world: World) -> None:
    calls = [objective(world, world.student(), spec).call for spec in (DistillSpec(), ALL)]
    assert [call.hidden_states for call in calls] == [False, True]
    assert all({LOGITS, "labels"} <= call.only_for_loss for call in calls)


def test_gradients_reach_the_student_and_the_projections_and_never_the_teacher(
    world: World,
) -> None:
    student = world.student().train()
    loss = objective(world, student, ALL)
    before = {name: tensor.clone() for name, tensor in loss.teacher.model.state_dict().items()}
    compute_loss(student, loss, world.rows().collate(np.arange(6))).backward()
    assert all(parameter.grad is None for parameter in loss.teacher.model.parameters())
    assert not loss.teacher.model.training
    missing = [name for name, parameter in student.named_parameters() if parameter.grad is None]
    assert missing == []
    assert {id(p) for p in loss.parameters()} <= {id(p) for p in student.parameters()}
    after = loss.teacher.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_detaching_leaves_no_trace_and_setting_aside_saves_no_projection(
    world: World, tmp_path: Path
) -> None:
    student = world.student()
    names = set(student.state_dict())
    loss = objective(world, student, ALL)
    assert set(student.state_dict()) - names == {
        f"{NAME}.hidden.weight",
        f"{NAME}.embeddings.weight",
    }
    with set_aside(student):
        student.save_pretrained(tmp_path)
    assert set(load_file(tmp_path / "model.safetensors")) == names
    assert NAME in dict(student.named_children())
    loss.detach_(student)
    assert set(student.state_dict()) == names
    for model in (student, loss.teacher.model):
        assert not any(module._forward_hooks for module in model.modules())


def test_a_teacher_of_another_architecture_teaches_all_it_can(world: World, tmp_path: Path) -> None:
    config = DistilBertConfig(vocab_size=2282, dim=48, n_layers=3, n_heads=4, hidden_dim=32)
    folder = save(build(world.data, config), world.data, tmp_path / "distilbert")
    student = world.student().train()
    loss = objective(replace(world, folder=folder), student, ALL)
    total = compute_loss(student, loss, world.rows().collate(np.arange(6)))
    assert total.isfinite()
    total.backward()


def distil(
    world: World, folder: Path, spec: DistillSpec | None, **changes: Any
) -> models.BermoPreTrainedModel:
    """Train a student with or without the teacher, by the one loop."""
    student = world.student()
    loss = LabelLoss(student) if spec is None else objective(world, student, spec)
    train_(student, world, loss, folder, **changes)
    return student


def train_(model: models.BermoPreTrainedModel, world: World, loss: Any, folder: Path, **changes: Any) -> None:
    settings = replace(SETTINGS, **changes)
    folder.mkdir(parents=True, exist_ok=True)
    job = Job(
        model=model,
        batches=world.rows(),
        objective=loss,
        groups=[{"params": list(model.parameters()), "lr": 1e-3, "peak_lr": 1e-3}],
        evaluate=lambda current: {"score": 0.0},
        keep=lambda current: None,
        folder=folder,
        seed=1,
        identity="test",
    )
    fit(job, settings, make_accelerator(settings, folder))


def test_a_student_follows_its_trained_teacher_and_not_the_labels(world: World, tmp_path: Path) -> None:
    assert world.train.targets is not None
    liar = replace(world, train=replace(world.train, targets=1 - world.train.targets))
    teacher = load_teacher(world.folder).model.requires_grad_()
    train_(teacher, liar, LabelLoss(teacher), tmp_path / "teacher", epochs=10)
    world = replace(world, folder=save(teacher, world.data, tmp_path / "model"))
    batch = world.rows().collate(np.arange(40))
    spec = DistillSpec(hard=0.0, soft=1.0)
    alone, taught = (
        distil(world, tmp_path / name, given, epochs=10)
        for name, given in (("alone", None), ("taught", spec))
    )
    far, close = (compute_loss(m.eval(), objective(world, m, spec), batch).item() for m in (alone, taught))
    assert close < 0.5 * far


def test_training_brings_the_student_closer_to_the_teachers_inside(world: World, tmp_path: Path) -> None:
    spec = DistillSpec(hard=0.0, soft=0.0, hidden=1.0, relations=1.0, embeddings=1.0)
    student, batch = world.student(), world.rows().collate(np.arange(40))
    loss = objective(world, student, spec)
    before = compute_loss(student, loss, batch).item()
    train_(student, world, loss, tmp_path, epochs=8)
    assert compute_loss(student.eval(), loss, batch).item() < 0.8 * before


def test_accumulation_ends_in_the_same_student_but_for_rounding(world: World, tmp_path: Path) -> None:
    one, three = (
        distil(world, tmp_path / str(parts), ALL, accumulation=parts, epochs=2).state_dict()
        for parts in (1, 3)
    )
    for name in one:
        torch.testing.assert_close(one[name], three[name], rtol=1e-2, atol=2e-3)


def test_projections_are_part_of_a_checkpoint(world: World, tmp_path: Path) -> None:
    student = world.student()
    objective(world, student, ALL)
    optimizer = torch.optim.AdamW(student.parameters())
    path = checkpoint.save(tmp_path, student, optimizer, identity="x", state={"step": 1})
    assert f"{NAME}.hidden.weight" in load_file(path / "model.safetensors")


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (DistillSpec(teacher="x", soft=0.0), "one of the teacher's over 0"),
        (DistillSpec(teacher="x", hidden=-1.0), "must be 0 or more"),
        (DistillSpec(teacher="x", temperature=0.0), "temperature must be over 0"),
        (DistillSpec(student_layers=(1, 2)), "Name one with --teacher"),
        (DistillSpec(teacher="x", student_neurons=0.5), "student-neurons are of a teacher's layers"),
        (DistillSpec(teacher="x", student_heads=0.5), "student-heads are of a teacher's layers"),
        (
            DistillSpec(teacher="x", student_layers=(1,), student_heads=0.5, attention=1.0),
            "learn --distill-relations instead",
        ),
    ],
)
def test_weights_without_sense_are_refused(spec: DistillSpec, sentence: str) -> None:
    with pytest.raises(BermoError, match=sentence):
        check_distill(spec)


@pytest.mark.parametrize("layer_map", [(1,), (1, 2, 3), (0, 4), (1, 5)])
def test_a_layer_map_that_does_not_fit_is_refused(world: World, layer_map: tuple[int, ...]) -> None:
    spec = DistillSpec(hidden=1.0, layer_map=layer_map)
    with pytest.raises(BermoError, match=r"for each of the student's 2 layers.*2,4"):
        objective(world, world.student(), spec)
