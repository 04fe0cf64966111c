"""Layers that share their weights compute what copied layers do, and are saved once."""

import copy
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

import bermo
from bermo.encoders.sites import layers_of
from bermo.encoders.tied import parameters_in
from bermo.errors import BermoError
from bermo.methods.student import student_from_teacher
from bermo.models.tied import tie_layers_
from bermo.pruning.fold import count
from tests.small_models import batch_of, model_of

FAMILIES = ("bert", "distilbert", "mpnet", "deberta-v2")


def copied(model: bermo.BermoForSequenceClassification, size: int) -> bermo.BermoForSequenceClassification:
    """Return a model of its own whose layers are the means of groups of so many neighbours."""
    other = copy.deepcopy(model)
    layers = layers_of(other)
    for start in range(0, len(layers), size):
        members = [parameters_in(layer) for layer in layers[start : start + size]]
        for name in members[0]:
            mean = torch.stack([member[name].detach() for member in members]).mean(0)
            for member in members:
                member[name].data = mean.clone()
    return other


def answer(model: bermo.BermoForSequenceClassification) -> Tensor:
    with torch.no_grad():
        return model.eval()(**batch_of(model)).logits


@pytest.mark.parametrize("family", FAMILIES)
def test_a_tied_model_is_one_whose_layers_were_copied_and_reloads_from_a_smaller_file(
    family: str, tmp_path: Path
) -> None:
    model = model_of(family, layers=4)
    untied = copied(model, 2)
    untied.save_pretrained(tmp_path / "untied")
    tie_layers_(model, 2)
    assert torch.equal(answer(model), answer(untied))
    assert count(model).encoder_total * 2 == count(untied).encoder_total
    model.save_pretrained(tmp_path / "tied")
    sizes = {name: (tmp_path / name / "model.safetensors").stat().st_size for name in ("tied", "untied")}
    per_layer = sum(p.nbytes for p in layers_of(model)[0].parameters())
    assert sizes["untied"] - sizes["tied"] >= 2 * per_layer
    with safe_open(tmp_path / "tied" / "model.safetensors", "pt") as file:
        assert not any(".1." in name and "layer.1." in name for name in file.keys())  # noqa: SIM118
    again = bermo.BermoForSequenceClassification.from_pretrained(tmp_path / "tied")
    assert torch.equal(answer(again), answer(untied))
    first, second = (parameters_in(layer) for layer in layers_of(again)[:2])
    assert all(first[name] is second[name] for name in first)
    further = bermo.BermoForSequenceClassification.from_backbone(tmp_path / "tied", num_labels=2)
    assert count(further).encoder_total == count(model).encoder_total
    further.save_pretrained(tmp_path / "further")


def test_the_gradient_of_a_set_is_the_sum_of_its_layers() -> None:
    model = model_of("bert", layers=2)
    untied = copied(model, 2)
    tie_layers_(model, 1)
    for one in (model, untied):
        one.eval()(**batch_of(one)).logits.square().sum().backward()
    shared = parameters_in(layers_of(model)[0])
    own = [parameters_in(layer) for layer in layers_of(untied)]
    for name, parameter in shared.items():
        assert parameter.grad is not None
        total = sum(member[name].grad for member in own)  # type: ignore[misc]
        assert torch.allclose(parameter.grad, total, atol=1e-6)  # type: ignore[arg-type]


def test_a_student_of_a_tied_model_has_layers_of_its_own() -> None:
    model = model_of("bert", layers=4)
    tie_layers_(model, 2)
    student = student_from_teacher(model, (1, 2, 3))
    first, second = (parameters_in(layer) for layer in layers_of(student)[:2])
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert all(first[name] is not second[name] for name in first)


@pytest.mark.parametrize(
    ("family", "groups", "sentence"),
    [
        ("bert", 3, "groups of equal size, but got 3. Give one of 1, 2, 4"),
        ("albert", 2, "share their weights already"),
        ("gpt2", 2, "not of one shape"),
    ],
)
def test_layers_that_cannot_be_tied_are_refused(family: str, groups: int, sentence: str) -> None:
    with pytest.raises(BermoError, match=sentence):
        tie_layers_(model_of(family, layers=4), groups)
