"""A teacher is checked against the student's task, and its logits are computed once for all runs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bermo.encoders.backbone import load_tokenizer
from bermo.errors import BermoError
from bermo.methods.assemble import TaskBatches
from bermo.methods.evaluate import predict
from bermo.methods.teacher import LOGITS, TaughtBatches, Teacher, check_teacher, load_teacher, teacher_logits
from bermo.progress import Quiet
from bermo.spec import TrainSpec
from bermo.training.devices import make_accelerator
from tests.methods.world import World, make_world, save

SETTINGS = TrainSpec(batch_size=8, device="cpu")


def test_left_padding_leaves_the_cached_logits_on_their_tokens(home: Path) -> None:
    world = make_world(home, "span")
    left = replace(world.train, pads_left=True)
    total = int(world.train.starts[-1])
    logits = np.arange(2 * total, dtype=np.float32).reshape(total, 2)
    batches = TaughtBatches(TaskBatches(left, world.rows().plan), left, logits)
    batch = batches.collate(np.array([3, 0, 7]))
    for index, row in enumerate((3, 0, 7)):
        start, stop = world.train.starts[row], world.train.starts[row + 1]
        padded = batch[LOGITS][index, -(stop - start) :]
        assert torch.equal(padded, torch.from_numpy(logits[start:stop]))
    assert batch[LOGITS][batch["attention_mask"] == 0].abs().sum() == 0


def test_the_teacher_is_asked_once_and_again_after_it_or_the_data_changed(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accelerator = make_accelerator(SETTINGS, tmp_path)
    asked: list[int] = []

    def count(*args: Any) -> list[np.ndarray]:
        asked.append(1)
        return predict(*args)

    monkeypatch.setattr("bermo.methods.teacher.predict", count)
    teacher = load_teacher(world.folder)
    ask = (world.train, 16, accelerator, Quiet(), str(tmp_path / "cache"))
    first = teacher_logits(teacher, *ask)
    assert np.array_equal(first, teacher_logits(load_teacher(world.folder), *ask))
    assert len(asked) == 1
    teacher.model.head.out.bias.add_(1.0)
    other = load_teacher(save(teacher.model, world.data, tmp_path / "other"))
    assert not np.allclose(first, teacher_logits(other, *ask))
    assert len(asked) == 2
    assert len(teacher_logits(other, world.valid, *ask[1:])) == len(world.valid)
    assert len(asked) == 3


def test_what_does_not_fit_the_task_is_refused(world: World, home: Path, tmp_path: Path) -> None:
    teacher = load_teacher(world.folder)
    task, labels = world.data.task, world.data.labels
    check_teacher(teacher, task, labels, world.tokenizer)
    with pytest.raises(BermoError, match=r"present, past.*same order"):
        check_teacher(teacher, task, labels[::-1], world.tokenizer)
    tags = make_world(home, "tagging").data
    with pytest.raises(BermoError, match=r"trained for classification, but box/arguments is tagging"):
        check_teacher(teacher, tags.task, tags.labels, world.tokenizer)
    other = load_tokenizer("box")
    other.add_tokens(["unheard"])
    with pytest.raises(BermoError, match="another tokenizer"):
        check_teacher(teacher, task, labels, other)
    accelerator = make_accelerator(SETTINGS, tmp_path)
    bare = replace(world.train, segments=None)
    with pytest.raises(BermoError, match="segment ids"):
        teacher_logits(teacher, bare, 8, accelerator, Quiet())


def test_a_folder_that_cannot_teach_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BermoError, match="There is no folder"):
        load_teacher(tmp_path / "nowhere")
    with pytest.raises(BermoError, match="holds no model"):
        load_teacher(tmp_path)
    (tmp_path / "spec.json").write_text("{}")
    with pytest.raises(BermoError, match="not finished"):
        load_teacher(tmp_path)


def test_a_run_folder_means_its_model(world: World, tmp_path: Path) -> None:
    save(load_teacher(world.folder).model, world.data, tmp_path / "run" / "model")
    teacher: Teacher = load_teacher(tmp_path / "run")
    assert teacher.folder == tmp_path / "run" / "model"
    assert not any(parameter.requires_grad for parameter in teacher.model.parameters())
