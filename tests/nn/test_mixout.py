"""Mixout takes each weight from the start or moved beyond itself, so that the mean is the weight."""

import torch
from torch import nn

from bermo.nn.masked import attach_mask_
from bermo.nn.mixout import Mixout


def test_weights_and_gradients_are_the_formulas_one_by_one_and_evaluation_reads_the_weight() -> None:
    linear = nn.Linear(5, 4)
    mixout = Mixout(linear.weight, 0.7)
    start = linear.weight.detach().clone()
    attach_mask_(linear, mixout)
    with torch.no_grad():
        linear.parametrizations.weight.original.add_(torch.randn(4, 5))
    weight = linear.parametrizations.weight.original
    mixout.draw_(torch.Generator().manual_seed(1))
    used = linear.weight
    used.sum().backward()
    for row in range(4):
        for column in range(5):
            m, u, w = float(mixout.is_trained[row, column]), start[row, column], weight[row, column]
            expected = ((1 - m) * u + m * w - 0.7 * u) / (1 - 0.7)
            torch.testing.assert_close(used[row, column], expected)
            torch.testing.assert_close(weight.grad[row, column], torch.tensor(m / 0.3))
    assert 0 < mixout.is_trained.sum() < 20
    linear.eval()
    assert torch.equal(linear.weight, weight)


def test_the_mean_over_draws_is_the_weight() -> None:
    mixout, generator = Mixout(torch.zeros(3), 0.5), torch.Generator().manual_seed(2)
    total = torch.zeros(3)
    for _ in range(4000):
        mixout.draw_(generator)
        total += mixout(torch.tensor([1.0, -2.0, 0.5]))
    torch.testing.assert_close(total / 4000, torch.tensor([1.0, -2.0, 0.5]), rtol=0.1, atol=0)
