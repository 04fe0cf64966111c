"""Losses, gradients and predictions of all seeds at once are those of the seeds one by one."""

from pathlib import Path

import numpy as np
import pytest
import torch

from bermo.methods.answers import AnsweredLoss
from bermo.methods.assemble import LabelLoss
from bermo.methods.distill import DistilledLoss
from bermo.methods.evaluate import predict
from bermo.methods.teacher import LOGITS, load_teacher
from bermo.methods.together import JoinedLoss, predict_together
from bermo.spec import DistillSpec, TrainSpec
from bermo.training.devices import make_accelerator
from bermo.training.stack import stack
from tests.methods.world import CLASSES, make_world

COUNT = 3


@pytest.mark.parametrize("kind", CLASSES)
def test_losses_at_once_are_those_of_the_seeds_one_by_one(kind: str, home: Path) -> None:
    world = make_world(home, kind)
    students = [world.student(num_hidden_layers=1) for _ in range(COUNT)]
    with torch.no_grad():
        for index, student in enumerate(students):
            for parameter in student.parameters():
                parameter.add_(0.1 * index * torch.randn_like(parameter))
    joint = stack(students).train()
    batch = world.rows().collate(np.arange(COUNT * 4))
    if kind == "tagging":
        # A seed without any label in this step.
        batch["labels"][4:8] = -100
    outputs = joint(**LabelLoss.call.arguments(batch))
    answers = torch.stack([v for k, v in outputs.items() if "logits" in k], -1).detach()
    answers = answers if kind == "span" else answers[..., 0]
    teacher = load_teacher(world.folder)
    alone = [LabelLoss(student) for student in students]
    pairs = zip(alone, students, strict=True)
    taught = [DistilledLoss(one, teacher, student, DistillSpec()) for one, student in pairs]
    answered = [AnsweredLoss(one, world.data.task.kind, DistillSpec()) for one in alone]
    for objectives in (alone, taught, answered):
        given = batch | ({} if objectives is alone else {LOGITS: torch.randn_like(answers)})
        losses = JoinedLoss(objectives)
        assert losses.is_alike
        results = []
        for find in (losses, losses._one_by_one):
            joint.zero_grad()
            loss = find(joint(**losses.call.arguments(given)), given)
            loss.sum().backward()
            grads = [p.grad.clone() for p in joint.parameters() if p.grad is not None]
            results.append((loss.detach(), grads))
        (loss, grads), (slow_loss, slow_grads) = results
        assert loss.shape == (COUNT,)
        torch.testing.assert_close(loss, slow_loss)
        for grad, slow in zip(grads, slow_grads, strict=True):
            torch.testing.assert_close(grad, slow, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["classification", "tagging"])
def test_a_stack_predicts_what_each_of_its_models_predicts(kind: str, home: Path) -> None:
    world = make_world(home, kind)
    students = [world.student(num_hidden_layers=1) for _ in range(COUNT)]
    with torch.no_grad():
        for student in students:
            for parameter in student.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
    accelerator = make_accelerator(TrainSpec(device="cpu"), home)
    together = predict_together(stack(students), world.valid, 8, accelerator, COUNT)
    for student, predictions in zip(students, together, strict=True):
        for mine, alone in zip(predictions, predict(student, world.valid, 8, accelerator), strict=True):
            np.testing.assert_allclose(mine, alone, rtol=1e-3, atol=1e-4)


def test_a_teacher_who_runs_beside_the_students_is_asked_seed_by_seed(home: Path) -> None:
    world = make_world(home, "classification")
    student = world.student()
    teacher = load_teacher(world.folder)
    asked = DistilledLoss(LabelLoss(student), teacher, student, DistillSpec(hidden=0.5))
    assert not JoinedLoss([asked] * 2).is_alike
    assert not JoinedLoss([LabelLoss(student), asked]).is_alike
