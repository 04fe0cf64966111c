"""Masks on whole units: exact numbers, gradients of a score, folding to the bit, shrinking."""

import math

import pytest
import torch
from torch import Tensor, nn

import bermo
from bermo.encoders.structure import groups_of
from bermo.errors import BermoError
from bermo.nn.unit_masks import Follower
from bermo.pruning.criteria import L0, Magnitude, Method, Movement, SoftMovement
from bermo.pruning.fold import count, fold_, folded_state
from bermo.pruning.schedule import CubicSchedule
from bermo.pruning.units import UnitPruner, prune_units_
from bermo.ship.shrink.delete import shrink
from tests.tiny import CONFIGS, make_batch, make_config

SCHEDULE = CubicSchedule(total_steps=10, warmup_steps=2)
METHODS: list[Method] = [
    Movement(density=0.5, rank="score"),
    Movement(density=0.5, scope="global", rank="score"),
    SoftMovement(penalty=5.0),
    L0(penalty=1.0),
]


def model_of(family: str) -> bermo.BermoForSequenceClassification:
    torch.manual_seed(0)
    kind = bermo.BermoForSequenceClassification
    return kind.from_backbone(make_config(family), num_labels=2, mix="raw").double()


def logits(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    with torch.no_grad():
        return model.eval()(**batch).logits


@pytest.mark.parametrize("family", CONFIGS)
def test_every_family_keeps_half_of_its_units_folds_to_the_bit_and_shrinks(family: str) -> None:
    model, batch = model_of(family), make_batch(family)
    dense = logits(model, batch)
    pruner = prune_units_(model, Movement(density=0.5, rank="score"), SCHEDULE)
    assert torch.equal(logits(model, batch), dense), "open units change nothing"
    for scores in pruner.score_parameters():
        nn.init.normal_(scores)
    pruner.at(10)
    assert pruner.density == pytest.approx(0.5, abs=0.02)
    pruned, state, counted = logits(model, batch), folded_state(model), count(model)
    assert not torch.allclose(pruned, dense, atol=1e-4)
    fold_(model)
    assert torch.equal(logits(model, batch), pruned)
    assert state.keys() == model.state_dict().keys()
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())
    assert count(model) == counted
    small = shrink(model)
    torch.testing.assert_close(logits(small, batch), pruned, rtol=0, atol=1e-12)
    kept = sum(group.cost * group.count for group in groups_of(small))
    whole = sum(group.cost * group.count for group in groups_of(model))
    assert kept / whole == pytest.approx(pruner.density)


@pytest.mark.parametrize("unit", ["heads-and-neurons", "layers"])
@pytest.mark.parametrize("method", METHODS, ids=str)
def test_every_method_on_every_unit_folds_and_shrinks(method: Method, unit: str) -> None:
    model, batch = model_of("bert"), make_batch("bert")
    pruner = UnitPruner(model, method, SCHEDULE, unit=unit)  # type: ignore[arg-type]
    with torch.no_grad():
        for index, scores in enumerate(pruner.score_parameters()):
            scores.copy_(torch.linspace(-1, 1, scores.numel()).view_as(scores) + 4 * (index - 1))
    pruner.at(10)
    assert 0 < pruner.density < 1
    (model.train()(**batch, labels=torch.tensor([0, 1, 1])).loss + pruner.penalty()).backward()
    assert all(scores.grad.abs().sum() > 0 for scores in pruner.score_parameters())
    pruned = logits(model, batch)
    fold_(model)
    assert torch.equal(logits(model, batch), pruned)
    torch.testing.assert_close(logits(shrink(model), batch), pruned, rtol=0, atol=1e-12)


def test_a_score_learns_the_gradient_of_a_factor_on_its_unit_even_where_that_is_closed() -> None:
    """G ⊙ W summed over a unit's columns is what a factor on its activations would get."""
    model, batch = model_of("bert"), make_batch("bert") | {"labels": torch.tensor([0, 1, 1])}
    pruner = prune_units_(model, Movement(density=0.5, rank="score"), SCHEDULE)
    pruner.at(10)
    model.eval()
    for module in model.modules():
        if isinstance(module, Follower):
            module.train()  # what feeds a closed unit computes, as in training
    model(**batch).loss.backward()
    for group, masked in zip(groups_of(model), pruner.groups, strict=True):
        factors = torch.ones(group.count, dtype=torch.double, requires_grad=True)
        weight = group.output.original.detach()
        mask = masked.masks[0].mask.flatten()

        def with_factors(
            module: nn.Module,
            args: tuple[Tensor],
            output: Tensor,
            factors: Tensor = factors,
            weight: Tensor = weight,
            mask: Tensor = mask,
            size: int = group.size,
        ) -> Tensor:
            # The closed ones enter with a factor of 0 that may grow.
            scale = (factors - 1 + mask.double()).repeat_interleave(size)
            return (args[0] * scale) @ weight.T + module.bias

        handle = group.output.module.register_forward_hook(with_factors)
        model(**batch).loss.backward(inputs=[factors])
        handle.remove()
        torch.testing.assert_close(masked.scores.grad.flatten(), factors.grad)


def test_what_feeds_a_closed_unit_computes_in_training_and_is_zero_after_it() -> None:
    model = model_of("bert")
    pruner = prune_units_(model, Movement(density=0.5, rank="score"), SCHEDULE)
    pruner.at(10)
    for site in (site for group in groups_of(model) for site in group.inputs):
        model.train()
        assert torch.equal(site.weight, site.original)
        model.eval()
        assert int((site.weight == 0).all(dim=1).sum()) == len(site.weight) // 2


def test_heads_are_rounded_and_neurons_fill_up_to_the_density() -> None:
    model = model_of("bert")  # 2 heads of 8 and 24 neurons a layer: a head weighs 512, a neuron 32
    pruner = prune_units_(model, Movement(density=0.6, rank="score"), SCHEDULE)
    pruner.at(10)
    room = 0.6 * (2 * 512 + 24 * 32)
    neurons = math.floor((room - 512) / 32)
    assert pruner.densities()["layer.1.heads"] == 0.5
    assert pruner.densities()["layer.1.neurons"] == neurons / 24
    assert pruner.density == pytest.approx((512 + 32 * neurons) / 1792)
    assert pruner.density_of(pruner.densities()) == pytest.approx(pruner.density)


def test_the_global_scope_lets_layers_differ() -> None:
    model = model_of("bert")
    pruner = prune_units_(model, Movement(density=0.5, scope="global", rank="score"), SCHEDULE)
    with torch.no_grad():
        for group in pruner.groups:
            group.scores.fill_(group.layer)
    pruner.at(10)
    assert pruner.densities()["layer.1.heads"] == 0
    assert pruner.densities()["layer.3.heads"] == 1


def test_a_whole_layer_has_one_score() -> None:
    model = model_of("gpt2")
    pruner = prune_units_(model, Movement(density=0.67, rank="score"), SCHEDULE, unit="layers")
    with torch.no_grad():
        pruner.groups[1].scores.fill_(-1)
    pruner.at(10)
    assert len({id(p) for p in pruner.score_parameters()}) == 3
    assert pruner.densities() == {"layer.1": 1.0, "layer.2": 0.0, "layer.3": 1.0}


@pytest.mark.parametrize(
    ("family", "method", "unit", "sentence"),
    [
        ("bert", Magnitude(density=0.5), "heads-and-neurons", "movement, soft movement or L0"),
        ("bert", Movement(density=0.5, block=(2, 2), rank="score"), "heads-and-neurons", "have no blocks"),
        ("albert", Movement(density=0.5, rank="score"), "layers", "one layer of weights"),
    ],
)
def test_units_that_cannot_be_pruned_are_refused(
    family: str, method: Method, unit: str, sentence: str
) -> None:
    with pytest.raises(BermoError, match=sentence):
        UnitPruner(model_of(family), method, SCHEDULE, unit=unit)  # type: ignore[arg-type]


def test_a_model_with_masks_is_not_masked_twice_and_not_shrunk() -> None:
    model = model_of("bert")
    prune_units_(model, Movement(density=0.5, rank="score"), SCHEDULE)
    with pytest.raises(BermoError, match="has masks already"):
        prune_units_(model, Movement(density=0.5, rank="score"), SCHEDULE)
    with pytest.raises(BermoError, match="still has masks"):
        shrink(model)


def test_rank_by_size_keeps_the_units_that_are_read_most_until_their_scores_say_otherwise() -> None:
    model = model_of("bert")
    pruner = prune_units_(model, Movement(density=0.5, rank="size"), SCHEDULE)
    pruner.at(10)
    for group, masked in zip(groups_of(model), pruner.groups, strict=True):
        sizes = group.units_of_output(group.output.original.detach()).abs().mean(1)
        kept = masked.masks[0].mask.flatten()
        assert torch.equal(kept.nonzero().flatten(), sizes.topk(int(kept.sum())).indices.sort()[0])
    neurons = pruner.groups[1]
    smallest = (~neurons.masks[0].mask.flatten()).nonzero()[0]
    with torch.no_grad():
        neurons.scores.fill_(-10.0).view(-1)[smallest] = 10.0
    pruner.at(10)
    assert neurons.masks[0].mask.flatten()[smallest]


def test_whole_layers_are_not_ranked_by_size() -> None:
    with pytest.raises(BermoError, match="ranked by their scores"):
        UnitPruner(model_of("bert"), Movement(density=0.5, rank="size"), SCHEDULE, unit="layers")
