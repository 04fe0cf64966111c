"""BinaryBERT's splitting: two matrices of two values add up to one of three, and compute the same."""

import copy

import pytest
import torch
from torch import Tensor

from bermo.models.quantized import attach_quantizers_
from bermo.nn.masked import mask_on, original_of
from bermo.nn.quantizers import SplitQuantizer, quantize_binary, quantize_ternary, split_ternary
from bermo.pruning.fold import folded_state
from tests.small_models import batch_of, model_of


def slow_split(row: list[float]) -> tuple[list[float], list[float]]:
    """The formulas of the paper, number by number."""
    n = len(row)
    delta = 0.7 * sum(map(abs, row)) / n
    kept = [abs(w) for w in row if abs(w) > delta]
    alpha = sum(kept) / len(kept)
    over = sum(abs(w) for w in row if abs(w) <= delta and w > 0)
    under = sum(abs(w) for w in row if abs(w) <= delta and w <= 0)
    share = (sum(kept) + under - over) / (2 * sum(kept))
    shift = (alpha * n - sum(map(abs, row))) / (2 * max(n - len(kept), 1))
    first = [share * w if abs(w) > delta else (w + shift if w > 0 else shift) for w in row]
    return first, [w - f for w, f in zip(row, first, strict=True)]


@pytest.mark.parametrize("is_table", [False, True])
@pytest.mark.parametrize("is_ternary", [False, True])
def test_the_halves_are_the_papers_and_their_codes_add_up_to_the_ternary_ones(
    is_table: bool, is_ternary: bool
) -> None:
    weight = torch.randn(6, 8, generator=torch.Generator().manual_seed(1))
    rows = weight if is_table else weight.view(1, -1)
    if is_ternary:
        rows = quantize_ternary(rows)
        weight = rows.view_as(weight)
    halves = split_ternary(weight, is_table)
    first, second = (half.view_as(rows) for half in halves)
    for index, row in enumerate(rows.tolist()):
        expected = slow_split(row)
        assert first[index].tolist() == pytest.approx(expected[0], abs=1e-6)
        assert second[index].tolist() == pytest.approx(expected[1], abs=1e-6)
    assert torch.allclose(first + second, rows, atol=1e-6)
    both = quantize_binary(first) + quantize_binary(second)
    assert torch.allclose(both, quantize_ternary(rows), atol=1e-6)


def test_a_matrix_without_zeros_and_one_of_zeros_are_split_too() -> None:
    for weight in (torch.tensor([[2.0, -2.0], [2.0, 2.0]]), torch.zeros(2, 2)):
        first, second = split_ternary(weight)
        assert torch.equal(first + second, weight)
        assert torch.isfinite(first).all()


def answer(model: torch.nn.Module) -> Tensor:
    with torch.no_grad():
        return model.eval()(**batch_of(model)).logits


def test_a_split_model_computes_as_the_ternary_one_and_both_halves_are_trained() -> None:
    ternary = model_of("bert", layers=2)
    attach_quantizers_(ternary, "ternary").set_(True)
    split = model_of("bert", layers=2)
    split.load_state_dict(folded_state(ternary), strict=False)
    saved = copy.deepcopy(folded_state(ternary))
    switch = attach_quantizers_(split, "binary", is_split=True)
    for is_on in (False, True):
        switch.set_(is_on)
        if is_on:
            assert torch.allclose(answer(split), answer(ternary), atol=1e-5)
        ours = folded_state(split)
        assert all(torch.allclose(ours[name], value, atol=1e-6) for name, value in saved.items())
    module = split.bermo.backbone.encoder.layer[0].attention.self.query
    quantizer, weight = mask_on(module), original_of(module)
    assert isinstance(quantizer, SplitQuantizer)
    split(**batch_of(split)).logits.square().sum().backward()
    assert weight.grad is not None
    assert torch.equal(weight.grad, quantizer.second.grad)  # type: ignore[arg-type]
