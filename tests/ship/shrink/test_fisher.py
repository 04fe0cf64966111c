"""Fisher: gate gradients against finite differences, rearranging against all subsets, an exact refit."""

from itertools import combinations

import pytest
import torch
from torch import Tensor

import bermo
from bermo.encoders.structure import groups_of
from bermo.errors import BermoError
from bermo.ship.shrink.delete import shrink
from bermo.ship.shrink.fisher import fisher_shrink, gate_gradients, rearrange, refit_
from bermo.ship.shrink.search import weight_table
from tests.tiny import make_batch, make_config

FAMILIES = ("bert", "albert", "modernbert", "gpt2", "mobilebert")


def model_of(family: str) -> bermo.BermoForSequenceClassification:
    torch.manual_seed(0)
    kind = bermo.BermoForSequenceClassification
    return kind.from_backbone(make_config(family), num_labels=2, mix="none").double()


def batch_of(family: str, seed: int = 0) -> dict[str, Tensor]:
    return make_batch(family, texts=6, length=10, seed=seed) | {"labels": torch.tensor([0, 1, 1, 0, 1, 0])}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_gradient_is_what_the_loss_of_one_text_does_when_a_gate_moves(family: str) -> None:
    model, batch = model_of(family), batch_of(family)
    of_groups = gate_gradients(model, [batch])
    for group, gradients in zip(groups_of(model), of_groups, strict=True):
        assert gradients.shape == (6, group.count)
        unit, step = group.count - 1, 1e-3
        weight = group.output.original
        columns = torch.zeros(group.count, dtype=torch.double)
        columns[unit] = step
        spread = columns.repeat_interleave(group.size)
        losses = []
        for sign in (1, -1):
            factor = 1 + sign * spread
            kept = weight.detach().clone()
            with torch.no_grad():
                weight.mul_(factor[:, None] if group.output.is_transposed else factor)
                losses.append(_losses(model, batch))
                weight.copy_(kept)
        slope = (losses[0] - losses[1]) / (2 * step)
        torch.testing.assert_close(gradients[:, unit].double(), slope, rtol=1e-3, atol=2e-4)
    assert all(parameter.requires_grad for parameter in model.parameters()), "left as it was"


def _losses(model: bermo.BermoForSequenceClassification, batch: dict[str, Tensor]) -> Tensor:
    inputs = {name: value for name, value in batch.items() if name != "labels"}
    logits = model(**inputs).logits
    return torch.nn.functional.cross_entropy(logits, batch["labels"], reduction="none")


def test_rearranging_never_loses_more_and_finds_gradients_that_cancel() -> None:
    torch.manual_seed(0)
    gradients = torch.randn(50, 7)
    # Large each, nothing together.
    gradients[:, 6] = -gradients[:, 5]
    gradients[:, 5:] *= 3

    def lost(kept: tuple[int, ...]) -> float:
        gone = [unit for unit in range(7) if unit not in kept]
        return float(gradients[:, gone].sum(1).square().sum())

    start = (1, 2, 3, 4, 6)
    rearranged = rearrange(gradients, start)
    assert rearranged == (0, 1, 2, 3, 4)
    assert lost(rearranged) == min(lost(kept) for kept in combinations(range(7), 5))
    for start in combinations(range(7), 3):
        assert lost(rearrange(gradients, start)) <= lost(start)
    assert rearrange(gradients, ()) == ()
    assert rearrange(gradients, range(7)) == tuple(range(7))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_refit_repairs_units_that_others_can_stand_for(family: str) -> None:
    """Every neuron is there twice; without its twins the refit gives the same model again."""
    model, batches = model_of(family), [batch_of(family, seed) for seed in range(3)]
    with torch.no_grad():
        for group in [g for g in groups_of(model) if g.kind == "neurons"]:
            half = group.count // 2
            for site in group.inputs:
                for part in _parts(site.original, site.is_transposed, group.parts):
                    part[half:] = part[:half]
                bias = getattr(site.module, "bias", None)
                if bias is not None:
                    for part in bias.chunk(group.parts):
                        part[half:] = part[:half]
        expected = model(**batches[0]).logits
        small = _without_twins(model)
        assert not torch.allclose(small(**batches[0]).logits, expected, atol=1e-2)
        refit_(small, model, _half(model), batches)
        broken, fitted = _without_twins(model)(**batches[0]).logits, small(**batches[0]).logits
    assert (fitted - expected).abs().max() < 0.1 * (broken - expected).abs().max()


def _half(model: bermo.BermoForSequenceClassification) -> dict[str, range]:
    return {
        group.name: range(group.count // 2 if group.kind == "neurons" else group.count)
        for group in groups_of(model)
    }


def _parts(weight: Tensor, is_transposed: bool, parts: int) -> tuple[Tensor, ...]:
    return (weight.T if is_transposed else weight).chunk(parts)


def _without_twins(
    model: bermo.BermoForSequenceClassification,
) -> bermo.BermoForSequenceClassification:
    groups = [group for group in groups_of(model) if group.kind == "neurons"]
    saved = [group.output.original.detach().clone() for group in groups]
    for group in groups:
        group.zero_units_(torch.arange(group.count) >= group.count // 2)
    small = shrink(model)
    for group, weight in zip(groups, saved, strict=True):
        group.output.original.copy_(weight)
    return small


def test_the_search_meets_its_budget_and_leaves_the_model_as_it_was() -> None:
    model, batch = model_of("bert"), batch_of("bert")
    state = {name: value.clone() for name, value in model.state_dict().items()}
    groups = groups_of(model)
    whole = sum(group.cost * group.count for group in groups)
    small, choice = fisher_shrink(model, [batch], [batch], weight_table(groups), 0.5 * whole)
    kept = sum(group.cost * group.count for group in groups_of(small))
    assert kept == choice.cost <= 0.5 * whole
    assert kept >= 0.45 * whole
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())


def test_a_family_whose_gates_cannot_be_read_is_refused() -> None:
    model = model_of("xlnet")
    with pytest.raises(BermoError, match="no Fisher search"):
        fisher_shrink(model, [], [], weight_table(groups_of(model)), 1e9)
