"""The controller of a penalty: its formulas against a slow loop, its state, the density it leads to."""

import math

import pytest
import torch
from torch import nn

from bermo.pruning.controller import BACK, MEMORY, PULL, DensityController
from bermo.pruning.criteria import L0, SoftMovement
from bermo.pruning.schedule import CubicSchedule
from bermo.pruning.weights import prune_
from tests.small_models import batch_of, model_of

CPU = torch.device("cpu")


def test_the_controller_follows_the_written_formulas() -> None:
    controller = DensityController(nn.Module(), CPU)
    multiplier = 0.0
    for step in range(200):
        density, target = 0.5 + 0.4 * math.cos(step / 30), 0.3
        controller.advance_(step)
        # Several parts of one batch ask for the strength, and count as one.
        strengths = [controller.strength(torch.tensor(density), torch.tensor(target)) for _ in range(3)]
        excess = max(-1.0, min(1.0, (density - target) / target))
        expected = multiplier + (PULL + abs(multiplier)) * (excess if excess > 0 else BACK * excess)
        assert [strength.item() for strength in strengths] == pytest.approx([expected] * 3, rel=1e-4)
        multiplier += (PULL + abs(multiplier)) / MEMORY * excess


def test_a_step_that_is_planned_again_adds_nothing() -> None:
    once, twice = DensityController(nn.Module(), CPU), DensityController(nn.Module(), CPU)
    for controller in (once, twice):
        controller.strength(torch.tensor(0.9), torch.tensor(0.5))
        controller.advance_(1)
    twice.advance_(1)
    assert torch.equal(once.state, twice.state)
    assert once.state[0] > 0


def test_the_state_is_saved_and_moved_with_its_holder() -> None:
    holder, other = nn.Module(), nn.Module()
    controller, resumed = DensityController(holder, CPU), DensityController(other, CPU)
    controller.strength(torch.tensor(0.9), torch.tensor(0.5))
    controller.advance_(1)
    other.load_state_dict(holder.state_dict())
    answers = [c.strength(torch.tensor(0.7), torch.tensor(0.5)).item() for c in (controller, resumed)]
    assert answers[0] == answers[1]
    holder.double()
    assert controller.state.dtype == torch.float64


def test_each_of_several_models_has_a_multiplier_of_its_own() -> None:
    holder = nn.Module()
    controller = DensityController(holder, CPU)
    holder.pull = torch.zeros(2, 3)
    for step in (1, 2):
        strengths = controller.strength(torch.tensor([0.9, 0.4]), torch.tensor(0.5))
        controller.advance_(step)
    assert strengths[0] > 0 > strengths[1]
    assert controller.state[0, 0] > 0 > controller.state[1, 0]


@pytest.mark.parametrize("kind", [SoftMovement, L0])
def test_a_density_is_reached_without_guessing_the_penalty(
    kind: type[SoftMovement] | type[L0],
) -> None:
    torch.manual_seed(0)
    model = model_of("bert", layers=1).train()
    steps = 400
    pruner = prune_(model, kind(density=0.2), CubicSchedule(total_steps=steps, warmup_steps=40))
    inputs = batch_of(model) | {"labels": torch.tensor([0, 1, 1])}
    optimizer = torch.optim.AdamW([{"params": pruner.score_parameters(), "lr": 5e-2, "weight_decay": 0.0}])
    for _ in range(steps):
        (model(**inputs).loss + pruner.penalty()).backward()
        optimizer.step()
        optimizer.zero_grad()
        pruner.step()
    assert pruner.density == pytest.approx(0.2, abs=0.02)


def test_the_multiplier_adds_each_excess_up_once() -> None:
    model = model_of("bert").train()
    schedule = CubicSchedule(total_steps=40, warmup_steps=2)
    pruner = prune_(model, SoftMovement(density=0.2), schedule)
    slow = 0.0
    for step in range(1, 30):
        wanted = schedule.value(step - 1, 1.0, 0.2)
        excess = max(-1.0, min(1.0, (pruner.density - wanted) / wanted))
        size = torch.stack([mask.size_penalty() for mask in pruner.masks]).mean()
        strength = slow + (PULL + abs(slow)) * (excess if excess > 0 else BACK * excess)
        for _ in range(3):  # parts of a batch
            assert pruner.penalty().item() == pytest.approx(strength * size.item(), rel=1e-4)
        slow += (PULL + abs(slow)) / MEMORY * excess
        pruner.plan(step)
        pruner.at(step)  # a step that is planned twice, as after a resume
    assert slow > 100


def test_below_its_density_the_pull_turns_round_at_once() -> None:
    model = model_of("bert").train()
    schedule = CubicSchedule(total_steps=40, warmup_steps=2)
    pruner = prune_(model, SoftMovement(density=0.2), schedule)
    for scores in pruner.score_parameters():
        scores.data.fill_(-10.0)
    pruner.at(30)
    wanted = schedule.value(30, 1.0, 0.2)
    excess = (pruner.density - wanted) / wanted
    size = torch.stack([mask.size_penalty() for mask in pruner.masks]).mean()
    assert excess < -0.9
    assert pruner.penalty().item() == pytest.approx(BACK * PULL * excess * size.item(), rel=1e-4)
