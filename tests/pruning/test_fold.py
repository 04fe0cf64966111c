"""Masks folded into the weights without a changed bit, and what is left of a model counted."""

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    BertForSequenceClassification,
)

import bermo
from bermo.encoders.sites import prunable_sites
from bermo.errors import BermoError
from bermo.pruning.criteria import L0, Magnitude, Method, Movement, SoftMovement
from bermo.pruning.fold import count, fold_, folded_state, has_masks
from bermo.pruning.schedule import CubicSchedule
from bermo.pruning.units import prune_units_
from bermo.pruning.weights import prune_
from tests.small_models import batch_of, model_of
from tests.tiny import CONFIGS, make_batch

SCHEDULE = CubicSchedule(total_steps=10, warmup_steps=2)
METHODS: list[Method] = [
    Magnitude(density=0.1),
    Movement(density=0.1, rank="score"),
    SoftMovement(penalty=10.0),
    L0(penalty=1.0),
    Movement(density=0.25, scope="global", rank="score"),
    Movement(density=0.1, start="magnitude", rank="score"),
]


@pytest.mark.parametrize("family", CONFIGS)
def test_every_family_prunes_to_the_exact_density_and_folds_to_the_bit(family: str) -> None:
    model = model_of(family)
    inputs = batch_of(model)
    before = model(**inputs).logits
    pruner = prune_(model, Movement(density=0.3, rank="score"), SCHEDULE)
    assert torch.equal(model(**inputs).logits, before), "a dense mask changes nothing"
    for mask in pruner.masks:
        nn.init.normal_(mask.scores)
    pruner.at(10)
    for site, mask in zip(pruner.sites, pruner.masks, strict=True):
        assert int(mask.mask.sum()) == math.floor(0.3 * site.original.numel()), site.name
    pruned = model(**inputs).logits
    assert not torch.equal(pruned, before)
    counted = count(model)
    fold_(model)
    assert torch.equal(model(**inputs).logits, pruned)
    assert count(model) == counted
    assert not any("parametrizations" in name for name in model.state_dict())


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_a_folded_model_reloads_with_the_same_bits(method: Method, tmp_path: Path) -> None:
    model = model_of("bert")
    inputs = batch_of(model)
    pruner = prune_(model, method, SCHEDULE)
    for mask in pruner.masks:
        if hasattr(mask, "scores"):
            nn.init.normal_(mask.scores, std=3)
    pruner.at(10)
    pruned = model(**inputs).logits
    state = folded_state(model.train())
    assert torch.equal(model.eval()(**inputs).logits, pruned), "the model itself is unchanged"
    fold_(model)
    assert torch.equal(model(**inputs).logits, pruned)
    assert state.keys() == model.state_dict().keys()
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())
    model.save_pretrained(tmp_path)
    again = bermo.BermoForSequenceClassification.from_pretrained(tmp_path)
    assert torch.equal(again(**inputs).logits, pruned)
    assert count(again) == count(model)


@pytest.mark.parametrize("prune", [prune_, prune_units_])
def test_a_model_saved_before_it_is_folded_reloads_as_what_it_computes(prune: Any, tmp_path: Path) -> None:
    for model, kind in (
        (model_of("bert"), bermo.BermoForSequenceClassification),
        (BertForSequenceClassification(CONFIGS["bert"]()).eval(), BertForSequenceClassification),
    ):
        pruner = prune(model, L0(penalty=1.0), SCHEDULE)
        for scores in pruner.score_parameters():
            nn.init.normal_(scores, std=3)
        pruner.at(10)
        expected = model(**make_batch("bert")).logits
        model.train().save_pretrained(tmp_path / kind.__name__)
        again = kind.from_pretrained(tmp_path / kind.__name__)
        assert torch.equal(again(**make_batch("bert")).logits, expected)


def test_a_checkpoint_with_masks_alone_is_refused(tmp_path: Path) -> None:
    model = model_of("bert")
    prune_(model, Movement(density=0.3, rank="score"), SCHEDULE)
    masked = {name: value for name, value in model.state_dict().items() if name not in folded_state(model)}
    rest = {name: value for name, value in model.state_dict().items() if "backbone.encoder" not in name}
    model.save_pretrained(tmp_path, state_dict=rest | masked)
    with pytest.raises(BermoError, match=r"lacks .* and \d+ more"):
        AutoModelForSequenceClassification.from_pretrained(tmp_path)


def test_a_folded_copy_leaves_the_original_alone() -> None:
    model = model_of("bert")
    prune_(model, Movement(density=0.3, rank="score"), SCHEDULE).at(10)
    inputs = batch_of(model)
    expected = model(**inputs).logits
    folded = copy.deepcopy(model)
    fold_(folded)
    assert torch.equal(folded(**inputs).logits, expected)
    assert torch.equal(model(**inputs).logits, expected)
    fold_(model)
    assert torch.equal(model(**inputs).logits, expected)


def test_the_paper_counts_ten_percent_of_bert_base_as_10_127() -> None:
    with torch.device("meta"):
        model = bermo.BermoForSequenceClassification(bermo.BermoConfig(BertConfig()))
    sites = prunable_sites(model)
    assert len(sites) == 72
    kept = sum(math.floor(0.1 * site.original.numel()) for site in sites)
    total = sum(p.numel() for p in model.bermo.backbone.encoder.parameters())
    others = total - sum(site.original.numel() for site in sites)
    assert 100 * (kept + others) / total == pytest.approx(10.127, abs=5e-4)


def test_counting_knows_masks_scores_and_embeddings() -> None:
    model = model_of("bert")
    dense = count(model)
    assert (
        dense.encoder_kept
        == dense.encoder_total
        == sum(p.numel() for p in model.bermo.backbone.encoder.parameters())
    )
    assert dense.model_total == sum(p.numel() for p in model.parameters())
    pruner = prune_(model, Movement(density=0.5, rank="score"), SCHEDULE)
    pruner.at(10)
    pruned = count(model)
    sites = sum(site.original.numel() for site in pruner.sites)
    assert pruned.encoder_total == dense.encoder_total
    assert pruned.model_total - pruned.model_kept == sites - sum(
        math.floor(0.5 * site.original.numel()) for site in pruner.sites
    )
    assert pruner.density == pytest.approx(0.5, abs=1e-3)
    assert pruner.density_of(pruner.densities()) == pytest.approx(pruner.density)


class Doubled(nn.Module):
    """A parametrization that is no mask."""

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return 2 * weight


def test_parametrizations_that_are_no_masks_are_left_alone() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    nn.utils.parametrize.register_parametrization(model[0], "weight", Doubled())
    assert not has_masks(model)
    fold_(model)
    assert nn.utils.parametrize.is_parametrized(model[0], "weight")
