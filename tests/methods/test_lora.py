"""Low-rank updates learn on a frozen encoder, and an ordinary model with the updates in it is saved."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from bermo.encoders.sites import prunable_sites
from bermo.errors import BermoError
from bermo.fields import check
from bermo.methods.assemble import assemble
from bermo.methods.checks import check_methods
from bermo.methods.finetune import finetune
from bermo.methods.lora import start_lora_
from bermo.methods.prepare import prepare
from bermo.models.tasks import BermoForSequenceClassification
from bermo.nn.lora import LowRankUpdate
from bermo.nn.masked import attach_mask_
from bermo.progress import Quiet
from bermo.pruning.fold import count, folded_state
from bermo.spec import PruneSpec, RunSpec, replace_in
from bermo.training.devices import make_accelerator
from tests import tiny
from tests.methods.resumed import check_resumes_to_the_bit
from tests.ship.folders import make_model
from tests.specs import TINY

pytestmark = pytest.mark.usefixtures("shallow_box")
LORA = replace_in(replace(TINY, prune=PruneSpec()), train={"epochs": 2}, method={"lora": 4})


def test_an_update_is_a_second_path_of_low_rank_beside_the_matrix() -> None:
    linear, x = nn.Linear(6, 5), torch.randn(3, 6)
    before = linear(x)
    update = LowRankUpdate(linear.weight, 2)
    attach_mask_(linear, update)
    assert torch.equal(linear(x), before), "nothing changes at the start"
    nn.init.normal_(update.up)
    expected = before + 2.0 * functional.linear(functional.linear(x, update.down), update.up)
    torch.testing.assert_close(linear(x), expected)


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_every_familys_saved_weights_answer_as_the_trained_model(family: str) -> None:
    model, other = make_model(family), make_model(family)
    total = count(model).model_total
    start_lora_(model, 2)
    with torch.no_grad():
        for site in prunable_sites(model):
            site.module.parametrizations[site.parameter][0].up.normal_(std=0.1)
    other.load_state_dict(folded_state(model))
    batch = tiny.make_batch(family)
    torch.testing.assert_close(other(**batch).logits, model(**batch).logits)
    assert count(model).model_total == total, "updates are no part of what is saved"


def test_the_encoder_stays_what_it_was_and_updates_have_their_rate(tmp_path: Path) -> None:
    parts = assemble(prepare(LORA, Quiet()), 1, Quiet(), make_accelerator(LORA.train, tmp_path))
    rates = {id(p): group["lr"] for group in parts.groups for p in group["params"]}
    for name, parameter in parts.model.named_parameters():
        is_update = name.endswith((".up", ".down"))
        if not is_update and ".backbone." in name:
            assert id(parameter) not in rates, name
        elif "layer_mix" not in name:
            assert rates[id(parameter)] == pytest.approx(1e-2 if is_update else 1e-3), name


def test_a_run_resumes_to_the_bit_and_saves_updates_of_the_asked_rank(tmp_path: Path) -> None:
    saved = check_resumes_to_the_bit(LORA, tmp_path, step=2)
    finetune(replace_in(LORA, train={"lr": 0.0}), tmp_path / "still")
    still = BermoForSequenceClassification.from_pretrained(tmp_path / "still" / "model").state_dict()
    changed = {name: saved[name] - still[name] for name in saved if ".encoder.layer." in name}
    ranks = {int(torch.linalg.matrix_rank(gap, tol=1e-5)) for gap in changed.values() if gap.ndim == 2}
    assert ranks == {4}
    assert all(not gap.any() for gap in changed.values() if gap.ndim == 1)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"method": {"lora_lr": 0.1}}, "--lora-lr is the rate of --lora"),
        ({"method": {"lora": 4, "mixout": 0.5}}, "which --mixout would change"),
        ({"method": {"lora": 4}, "prune": {"method": "l0", "density": 0.5}}, "which --prune would change"),
        ({"method": {"lora": 4}, "train": {"together": 2}}, "together with low-rank updates"),
    ],
)
def test_options_that_cannot_work_are_refused(changes: dict[str, dict[str, object]], sentence: str) -> None:
    with pytest.raises(BermoError, match=sentence):
        check_methods(check(replace_in(RunSpec(), **changes)))
