"""Masks and gradients equal a slow, obvious version: to the bit for masks."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils import parametrize

from bermo.nn.masks import (
    Blocks,
    HardConcrete,
    ScoreMask,
    TopMask,
    importance,
    soft_mask,
    top_mask,
    top_masks,
)


def slow_top_mask(scores: Tensor, num_kept: int) -> Tensor:
    """Sort by falling score, then by index; keep the first."""
    flat = scores.flatten().tolist()
    order = sorted(range(len(flat)), key=lambda index: (-flat[index], index))
    mask = torch.zeros(len(flat), dtype=torch.bool)
    mask[order[:num_kept]] = True
    return mask.view_as(scores)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(-3, 3), min_size=1, max_size=60),
    st.integers(-1, 70),
)
def test_the_top_mask_keeps_the_asked_number_whatever_the_ties(values: list[int], kept: int) -> None:
    scores = torch.tensor(values, dtype=torch.float32)
    mask = top_mask(scores, kept)
    assert torch.equal(mask, slow_top_mask(scores, max(kept, 0)))
    assert int(mask.sum()) == min(max(kept, 0), len(values))


@pytest.mark.parametrize("density", [0.0, 0.03, 0.1, 0.5, 0.999, 1.0])
def test_masks_per_matrix_and_global_equal_the_slow_version(density: float) -> None:
    torch.manual_seed(0)
    scores = [torch.randn(7, 11), torch.zeros(5, 8), torch.randn(13, 3).round()]
    for mask, item in zip(
        top_masks(scores, [math.floor(density * s.numel()) for s in scores], is_global=False),
        scores,
        strict=True,
    ):
        assert torch.equal(mask, slow_top_mask(item, math.floor(density * item.numel())))
    flat = torch.cat([item.flatten() for item in scores])
    expected = slow_top_mask(flat, math.floor(density * flat.numel()))
    actual = torch.cat(
        [
            mask.flatten()
            for mask in top_masks(
                scores, [math.floor(density * sum(s.numel() for s in scores))], is_global=True
            )
        ]
    )
    assert torch.equal(actual, expected)


@pytest.mark.parametrize("threshold", [0.0, 0.1, 0.5, 0.9999])
def test_the_soft_mask_equals_the_slow_version_and_keeps_half_a_percent(threshold: float) -> None:
    torch.manual_seed(1)
    scores = torch.randn(40, 50)
    over = [1 / (1 + math.exp(-s)) > threshold for s in scores.double().flatten().tolist()]
    expected = torch.tensor(over).view(40, 50)
    if int(expected.sum()) < 11:
        expected = slow_top_mask(scores, 11)
    assert torch.equal(soft_mask(scores, torch.tensor(threshold)), expected)
    assert int(soft_mask(scores - 100, torch.tensor(threshold)).sum()) >= 11


@pytest.mark.parametrize("block", [(1, 1), (2, 3), (0, 1), (1, 0), (4, 6)])
def test_gradients_of_scores_and_weights_equal_the_written_formulas(block: tuple[int, int]) -> None:
    torch.manual_seed(2)
    linear = nn.Linear(6, 4).double()
    weight = linear.weight.detach().clone()
    mask = ScoreMask(linear.weight, block)
    rows, columns = mask.blocks.count
    mask.mask.copy_(torch.rand(rows, columns) > 0.4)
    parametrize.register_parametrization(linear, "weight", mask, unsafe=True)
    x, gradient = torch.randn(5, 6).double(), torch.randn(5, 4).double()
    linear(x).backward(gradient)
    full = torch.zeros(4, 6, dtype=torch.float64)
    r, c = mask.blocks.size
    score_gradient = torch.zeros(rows, columns, dtype=torch.float64)
    outer = gradient.T @ x
    for i in range(4):
        for j in range(6):
            full[i, j] = mask.mask[i // r, j // c]
            score_gradient[i // r, j // c] += outer[i, j] * weight[i, j]
    torch.testing.assert_close(linear.parametrizations.weight.original.grad, full * outer)
    torch.testing.assert_close(mask.scores.grad, score_gradient)
    assert torch.equal(linear.weight.detach(), weight * full)


def test_magnitude_ranks_blocks_by_their_mean_size() -> None:
    weight = torch.tensor([[1.0, -1.0, 5.0, 0.0], [1.0, 1.0, 0.0, 0.0]])
    mask = TopMask(weight, (2, 2))
    assert importance(mask, weight).tolist() == [[1.0, 1.25]]
    single = TopMask(weight)
    assert torch.equal(importance(single, weight), weight.abs())


def test_hard_concrete_equals_the_formula_entry_by_entry() -> None:
    torch.manual_seed(3)
    weight = torch.randn(3, 4)
    mask = HardConcrete(weight)
    assert torch.sigmoid(mask.scores.detach()).mean() == pytest.approx(0.9, abs=1e-3)
    with torch.no_grad():
        mask.scores.copy_(torch.randn(3, 4) * 3)
    mask.draw_(torch.Generator().manual_seed(7))
    u = torch.rand(3, 4, generator=torch.Generator().manual_seed(7)).clamp(1e-4, 1 - 1e-4)
    for training in (True, False):
        mask.train(training)
        for i in range(3):
            for j in range(4):
                s = mask.scores[i, j].item()
                noise = math.log(u[i, j].item() / (1 - u[i, j].item()))
                inner = (noise + s) / (2 / 3) if training else s
                value = min(1.0, max(0.0, 1.2 / (1 + math.exp(-inner)) - 0.1))
                assert mask(weight)[i, j].item() == pytest.approx(weight[i, j].item() * value, abs=1e-5)
    expected = [
        1 / (1 + math.exp(-(s - 2 / 3 * math.log(0.1 / 1.1)))) for s in mask.scores.flatten().tolist()
    ]
    assert mask.size_penalty().item() == pytest.approx(sum(expected) / 12, abs=1e-6)


def test_gradients_of_magnitude_equal_the_written_formula() -> None:
    torch.manual_seed(2)
    linear = nn.Linear(6, 4).double()
    mask = TopMask(linear.weight)
    mask.mask.copy_(torch.rand(4, 6) > 0.4)
    parametrize.register_parametrization(linear, "weight", mask, unsafe=True)
    x, gradient = torch.randn(5, 6).double(), torch.randn(5, 4).double()
    linear(x).backward(gradient)
    expected = (gradient.T @ x) * mask.mask
    torch.testing.assert_close(linear.parametrizations.weight.original.grad, expected)


def test_gradients_of_hard_concrete_equal_the_written_formula_entry_by_entry() -> None:
    torch.manual_seed(3)
    linear = nn.Linear(4, 3)
    weight = linear.weight.detach().clone()
    mask = HardConcrete(linear.weight)
    with torch.no_grad():
        mask.scores.copy_(torch.randn(3, 4) * 3)
    parametrize.register_parametrization(linear, "weight", mask, unsafe=True)
    mask.draw_(torch.Generator().manual_seed(7))
    u = torch.rand(3, 4, generator=torch.Generator().manual_seed(7)).clamp(1e-4, 1 - 1e-4)
    x, gradient = torch.randn(5, 4), torch.randn(5, 3)
    linear(x).backward(gradient)
    outer = gradient.T @ x
    for i in range(3):
        for j in range(4):
            inner = (math.log(u[i, j].item() / (1 - u[i, j].item())) + mask.scores[i, j].item()) * 1.5
            share = 1 / (1 + math.exp(-inner))
            stretched = 1.2 * share - 0.1
            gate = min(1.0, max(0.0, stretched))
            slope = 1.2 * share * (1 - share) * 1.5 if 0 < stretched < 1 else 0.0
            of_weight = linear.parametrizations.weight.original.grad[i, j].item()
            assert of_weight == pytest.approx(outer[i, j].item() * gate, abs=1e-5)
            of_score = outer[i, j].item() * weight[i, j].item() * slope
            assert mask.scores.grad[i, j].item() == pytest.approx(of_score, abs=1e-5)


def test_the_penalty_of_soft_movement_is_the_mean_sigmoid() -> None:
    mask = ScoreMask(torch.randn(4, 5))
    assert mask.size_penalty().item() == pytest.approx(0.5)


def test_blocks_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="6 × 4 weights cannot be divided into blocks"):
        Blocks((6, 4), (4, 4))


@pytest.mark.parametrize("kind", ["normal", "ties", "equal", "sorted", "periodic"])
def test_many_scores_are_chosen_from_a_window_as_by_sorting_all(kind: str) -> None:
    torch.manual_seed(0)
    scores = {
        "normal": torch.randn(130, 95),
        "ties": torch.randn(130, 95).round(decimals=1),
        "equal": torch.zeros(130, 95),
        "sorted": torch.randn(130 * 95).sort().values.view(130, 95),
        "periodic": (torch.arange(130 * 95) % 64).float().view(130, 95),  # a sample that misleads
    }[kind]
    size = scores.numel()
    order = scores.flatten().sort(descending=True, stable=True).indices
    for kept in (1, 60, size // 10, size // 2, size - 40, size - 1):
        expected = torch.zeros(size, dtype=torch.bool)
        expected[order[:kept]] = True
        assert torch.equal(top_mask(scores, kept).flatten(), expected), kept
