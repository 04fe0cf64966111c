"""Layers replace a teacher's more and more often: each draw computes what the layers say, and a plain model
of fewer layers is left.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch

from bermo.encoders.sites import layers_of
from bermo.errors import BermoError
from bermo.methods.checks import check_methods
from bermo.methods.finetune import finetune
from bermo.methods.student import student_from_teacher
from bermo.methods.theseus import chance, groups_of_layers, make_successor, start_replacing_
from bermo.models.encoder import BermoPreTrainedModel
from bermo.models.tasks import BermoForSequenceClassification
from bermo.spec import DistillSpec, PruneSpec, RunSpec, replace_in
from tests import tiny
from tests.methods.resumed import check_resumes_to_the_bit
from tests.ship.folders import make_model
from tests.specs import TINY

pytestmark = pytest.mark.usefixtures("shallow_box")
DENSE = replace_in(replace(TINY, prune=PruneSpec()), train={"epochs": 2})


def taught(folder: Path, layers: int = 2) -> RunSpec:
    return replace_in(DENSE, distill={"teacher": str(folder)}, method={"theseus": layers})


def by_hand(model: BermoPreTrainedModel, layers: Sequence[torch.nn.Module]) -> BermoPreTrainedModel:
    """A plain model with the embeddings and head of another, and these layers one after the other."""
    whole = student_from_teacher(model, range(1, len(layers) + 1))
    for target, source in zip(layers_of(whole), layers, strict=True):
        target.load_state_dict(source.state_dict())
    return whole.train()


@pytest.mark.parametrize("family", ["bert", "mpnet", "deberta", "gpt2", "distilbert"])
def test_every_draw_answers_as_a_model_of_the_drawn_layers(family: str) -> None:
    predecessor = make_model(family, layers=4, mix="none", head_dropout=0.0)
    successor = make_successor(predecessor, 2)
    with torch.no_grad():
        for parameter in layers_of(successor)[1].parameters():
            parameter.mul_(1.3)
    # Taken before the hooks, which a copy would share.
    groups = groups_of_layers(layers_of(predecessor), 2)
    mixed = {
        draw: by_hand(predecessor, [*_side(draw, 0, successor, groups), *_side(draw, 1, successor, groups)])
        for draw in product((True, False), repeat=2)
    }
    batch, hook = tiny.make_batch(family), start_replacing_(successor, predecessor, 10, seed=1)
    successor.train()
    answers = []
    for draw, plain in mixed.items():
        for replacement, is_replaced in zip(hook.replacements, draw, strict=True):
            replacement.set_(is_replaced, torch.device("cpu"))
        answers.append(_without_dropout(successor)(**batch).logits)
        torch.testing.assert_close(answers[-1], _without_dropout(plain)(**batch).logits)
    assert not torch.allclose(answers[0], answers[-1])
    successor.eval()
    torch.testing.assert_close(successor(**batch).logits, answers[0])


def _side(draw: tuple[bool, ...], index: int, successor: BermoPreTrainedModel, groups: list) -> list:
    return [layers_of(successor)[index]] if draw[index] else groups[index]


def _without_dropout(model: torch.nn.Module) -> torch.nn.Module:
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout) or hasattr(module, "drop_prob"):
            module.p = module.drop_prob = 0.0
        if isinstance(getattr(module, "attention_dropout", None), float):
            module.attention_dropout = 0.0
    return model


def test_the_chance_rises_to_one_and_draws_depend_on_seed_and_step_alone() -> None:
    assert [round(chance(step, 90), 3) for step in (0, 30, 60, 89)] == [0.3, 0.65, 1.0, 1.0]
    predecessor = make_model(layers=4)
    hook = start_replacing_(make_successor(predecessor, 3), predecessor, 90, seed=2)
    drawn = []
    for step in (*range(60), *range(60)):
        hook.plan(step)
        drawn.append([bool(one.is_replaced) for one in hook.replacements])
    assert drawn[:60] == drawn[60:]
    assert 0.5 < sum(map(sum, drawn)) / (3 * len(drawn)) < 0.8
    hook.plan(70)
    assert all(one.is_replaced for one in hook.replacements)


def test_a_run_leaves_a_plain_model_with_the_teachers_embeddings_and_head_and_resumes_to_the_bit(
    tmp_path: Path,
) -> None:
    finetune(DENSE, tmp_path / "dense")
    saved = check_resumes_to_the_bit(taught(tmp_path / "dense"), tmp_path, step=2)
    model = BermoForSequenceClassification.from_pretrained(tmp_path / "whole" / "model")
    teacher = BermoForSequenceClassification.from_pretrained(tmp_path / "dense" / "model")
    assert len(layers_of(model)) == 2
    known = teacher.state_dict()
    for name, tensor in saved.items():
        is_own = ".encoder.layer." in name or "layer_mix" in name
        assert torch.equal(tensor, known[name]) != is_own if tensor.shape == known[name].shape else is_own, (
            name
        )


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (replace_in(DENSE, method={"theseus": 2}), "--theseus replaces the layers of a teacher"),
        (replace(taught(Path("x")), distill=DistillSpec(teacher="x", hard=0.5)), "from the labels alone"),
        (replace(taught(Path("x")), prune=TINY.prune), "Leave --prune to a run after it"),
        (replace_in(taught(Path("x")), method={"quantize": "int8"}), "Leave --quantize to a run after it"),
        (replace_in(taught(Path("x")), model={"first_layers": 1}), "Leave --first-layers out"),
    ],
)
def test_options_that_cannot_work_are_refused(spec: RunSpec, sentence: str) -> None:
    with pytest.raises(BermoError, match=sentence):
        check_methods(spec)


def test_models_whose_layers_cannot_be_replaced_are_refused() -> None:
    with pytest.raises(BermoError, match="fewer layers than the teacher's 2, but got 2"):
        make_successor(make_model(layers=2), 2)
    for family in ("albert", "modernbert", "deberta-v2"):
        with pytest.raises(BermoError, match=f"which this {family} does not have"):
            make_successor(make_model(family, layers=3), 1)
    with pytest.raises(BermoError, match='keeps its teacher\'s mix, "none", not "raw"'):
        make_successor(make_model(layers=2, mix="none"), 1, "raw")
