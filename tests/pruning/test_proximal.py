"""Reweighted proximal pruning: its steps are those of a slow version, its density is the wanted one."""

import copy

import pytest
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel

from bermo.encoders.sites import prunable_sites
from bermo.errors import BermoError
from bermo.nn.proximal import EPSILON
from bermo.pruning.criteria import Proximal
from bermo.pruning.fold import fold_
from bermo.pruning.proximal import ProximalPruner
from bermo.pruning.schedule import CubicSchedule

SCHEDULE = CubicSchedule(total_steps=12, warmup_steps=2)


def small() -> BertModel:
    """An encoder so small that its weights can be gone through one by one."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=5, hidden_size=4, num_hidden_layers=1, num_attention_heads=1, intermediate_size=4
    )
    return BertModel(config)


def weights_of(model: nn.Module) -> list[nn.Parameter]:
    return [site.original for site in prunable_sites(model)]  # type: ignore[arg-type,misc]


def push_(weights: list[nn.Parameter], step: int) -> None:
    """Give weights the gradients of a loss: each is pulled somewhere else in every step."""
    generator = torch.Generator().manual_seed(step)
    for weight in weights:
        weight.grad = torch.randn(weight.shape, generator=generator)


def shrunk(value: float, threshold: float) -> float:
    size = max(abs(value) - threshold, 0.0)
    return size if value > 0 else -size


def slow_step_(weights: list[nn.Parameter], pulls: list[Tensor], threshold: float) -> None:
    """One number after the other."""
    for weight, pull in zip(weights, pulls, strict=True):
        flat, forces = weight.data.view(-1), pull.view(-1)
        for index in range(len(flat)):
            flat[index] = shrunk(float(flat[index]), threshold * float(forces[index]))


def test_steps_are_those_of_a_slow_version_and_the_rate_is_that_of_the_step_before() -> None:
    model = small()
    slow = copy.deepcopy(model)
    pruner = ProximalPruner(model, Proximal(penalty=0.002), SCHEDULE)
    optimizers = [torch.optim.AdamW(weights_of(one), lr=0.01) for one in (model, slow)]
    pruner.watch(optimizers[0])
    pulls = [1 / (w.detach().abs() + EPSILON) for w in weights_of(slow)]
    for step in range(11):
        rate = 0.01 * (1 - step / 20)
        for optimizer in optimizers:
            optimizer.param_groups[0]["lr"] = rate
        push_(weights_of(model), step)
        push_(weights_of(slow), step)
        if step == 10:
            break  # from here on the zeros are fixed
        for optimizer in optimizers:
            optimizer.step()
        pruner.step()
        if step + 1 > SCHEDULE.first_step:
            slow_step_(weights_of(slow), pulls, 0.002 * rate)
        if step + 1 in pruner.renewals:
            pulls = [1 / (w.detach().abs() + EPSILON) for w in weights_of(slow)]
        for ours, theirs in zip(weights_of(model), weights_of(slow), strict=True):
            assert torch.allclose(ours, theirs, atol=1e-7)
    zeros = sum(int((weight == 0).sum()) for weight in weights_of(slow))
    assert zeros > 0
    assert pruner.density == 1 - zeros / sum(weight.numel() for weight in weights_of(slow))


def test_a_density_is_followed_exactly_and_the_zeros_stay_once_fixed() -> None:
    model = small()
    pruner = ProximalPruner(model, Proximal(density=0.3), SCHEDULE)
    weights = weights_of(model)
    total = sum(weight.numel() for weight in weights)
    optimizer = torch.optim.AdamW(weights, lr=0.01)
    fixed: list[Tensor] = []
    for step in range(12):
        push_(weights, step)
        optimizer.step()
        pruner.step()
        wanted = int(round(SCHEDULE.value(step + 1, 1.0, 0.3) * total, 6))
        assert round(pruner.density * total) == wanted
        if step + 1 == SCHEDULE.last_step:
            fixed = [mask.mask.clone() for mask in pruner.masks]
            assert sum(int((weight != 0).sum()) for weight in weights) <= wanted
    for mask, then in zip(pruner.masks, fixed, strict=True):
        assert torch.equal(mask.mask, then)
    fold_(model)
    assert sum(int((weight != 0).sum()) for weight in weights_of(model)) == int(0.3 * total)


def test_a_zero_has_a_gradient_until_the_mask_is_fixed() -> None:
    model = small()
    pruner = ProximalPruner(model, Proximal(density=0.5), CubicSchedule(total_steps=4, warmup_steps=1))
    site = pruner.sites[0]
    for step, has_gradient in ((2, True), (3, False)):
        pruner.at(step)
        site.weight.sum().backward()
        zeros = ~pruner.masks[0].mask
        assert zeros.any()
        assert bool((site.original.grad[zeros] != 0).any()) is has_gradient  # type: ignore[index]
        site.original.grad = None


def test_a_penalty_needs_the_optimisers_rate() -> None:
    pruner = ProximalPruner(small(), Proximal(penalty=0.1), SCHEDULE)
    with pytest.raises(BermoError, match=r"pruner\.watch"):
        pruner.at(SCHEDULE.first_step + 1)
    with pytest.raises(BermoError, match="one of the two"):
        Proximal(penalty=0.1, density=0.5)
