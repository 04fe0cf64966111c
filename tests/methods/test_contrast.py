"""Few rows of classes are contrasted: the loss reads what the head reads, and pulls classes apart."""

from pathlib import Path

import pytest
import torch

from bermo.errors import BermoError
from bermo.methods.assemble import LabelLoss, assemble
from bermo.methods.contrast import ContrastLoss
from bermo.methods.finetune import finetune
from bermo.methods.head import choose_reading
from bermo.methods.prepare import prepare
from bermo.nn.contrast import contrast
from bermo.progress import Quiet
from bermo.spec import DataSpec, RunSpec, TrainSpec, replace_in
from bermo.training.devices import make_accelerator
from bermo.training.job import compute_loss

TINY = RunSpec(
    data=DataSpec(task="box/subject-number", limit=48, max_length=64),
    train=TrainSpec(epochs=1, batch_size=16, lr=1e-3, device="cpu"),
)


def test_the_loss_is_that_of_the_labels_and_the_contrast_of_what_the_head_reads(tmp_path: Path) -> None:
    accelerator = make_accelerator(TINY.train, tmp_path)
    made = assemble(choose_reading(prepare(TINY, Quiet()), accelerator), 1, Quiet(), accelerator)
    assert isinstance(made.objective, ContrastLoss)
    batch = made.batches.collate(made.batches.epoch(0)[0])
    for module in made.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    model, read = made.model.train(), list[torch.Tensor]()
    model.head.register_forward_pre_hook(lambda head, inputs: read.append(inputs[0]))
    torch.manual_seed(0)
    whole = compute_loss(model, made.objective, batch)
    torch.manual_seed(0)
    labels = compute_loss(model, LabelLoss(model), batch)
    assert torch.allclose(whole, labels + contrast(read[0], batch["labels"]), atol=1e-5)


def test_contrast_is_refused_where_there_are_no_classes_of_texts(tmp_path: Path) -> None:
    tags = replace_in(TINY, data={"task": "box/arguments"}, train={"contrast": 1.0})
    with pytest.raises(BermoError, match="Contrast needs classes of whole texts, not tagging"):
        finetune(tags, tmp_path / "tags")
    together = replace_in(TINY, train={"contrast": 1.0, "together": 2})
    with pytest.raises(BermoError, match="together with contrast"):
        finetune(together, tmp_path / "together")
    assert not list(tmp_path.iterdir())
