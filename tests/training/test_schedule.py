"""Rates, the steps of evaluations, and the seed of a step's random numbers."""

import numpy as np
import pytest
import torch

from bermo.training.schedule import evaluation_steps, rate_factor, seed_step


def test_rates_rise_then_fall_to_zero() -> None:
    factors = [rate_factor(step, 100, 0.1) for step in range(101)]
    assert factors[0] > 0
    assert max(factors) == factors[10] == 1.0
    assert factors[100] == 0.0
    assert all(np.diff(factors[:11]) > 0)
    assert all(np.diff(factors[10:]) < 0)
    assert rate_factor(0, 10, 0.0) == 1.0


def test_evaluations_are_spread_over_each_epoch_and_end_with_the_run() -> None:
    assert evaluation_steps(10, 30, 1) == [10, 20, 30]
    assert evaluation_steps(10, 25, 2) == [5, 10, 15, 20, 25]
    assert evaluation_steps(3, 3, 5) == [1, 2, 3]
    assert evaluation_steps(7, 3, 1) == [3]


@pytest.mark.parametrize("step", [0, 7])
def test_a_steps_random_numbers_are_those_of_its_seed(step: int) -> None:
    seed_step(3, step, rank=1)
    drawn = torch.rand(3)
    number = np.random.SeedSequence([3, step, 1]).generate_state(1, np.uint64)[0]
    torch.manual_seed(int(number) // 2)
    assert torch.equal(drawn, torch.rand(3))
