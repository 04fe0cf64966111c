"""The kernels, in Triton's interpreter on the CPU, equal their twins in plain torch."""

import math

import pytest
import torch
from torch import Tensor, nn

from bermo.nn.fast.shadow import Shadow
from bermo.nn.masks import ScoreMask, TopMask, soft_kept, soft_mask, top_masks, top_masks_at

kernels = pytest.importorskip("bermo.nn.fast.kernels", reason="needs Triton")


def scores_with_ties() -> list[Tensor]:
    torch.manual_seed(0)
    coarse = torch.randn(64, 64).round(decimals=1)
    coarse[0, 0] = -0.0
    return [torch.randn(99, 85), coarse, torch.zeros(50, 7), torch.randn(3, 5)]


def numbers(scores: list[Tensor], density: float, is_global: bool) -> list[int]:
    sizes = [item.numel() for item in scores]
    return [math.floor(density * size) for size in ([sum(sizes)] if is_global else sizes)]


@pytest.mark.parametrize("is_global", [False, True])
@pytest.mark.parametrize("density", [0.0, 0.1, 0.999, 1.0])
def test_numbers_on_the_device_choose_the_masks_of_numbers_on_the_cpu(
    density: float, is_global: bool
) -> None:
    scores = scores_with_ties()
    kept = numbers(scores, density, is_global)
    slow = top_masks(scores, kept, is_global)
    actual = top_masks_at(scores, torch.tensor(kept), is_global)
    assert all(torch.equal(a, b) for a, b in zip(actual, slow, strict=True))


def test_a_soft_mask_keeps_the_highest_scores_of_its_number() -> None:
    scores = [item * 3 for item in scores_with_ties()]
    for threshold in (0.0, 0.4, 0.9999):
        kept = soft_kept(scores, torch.tensor(threshold)).tolist()
        slow = [soft_mask(item, torch.tensor(threshold)) for item in scores]
        actual = top_masks(scores, kept, is_global=False)
        assert all(torch.equal(a, b) for a, b in zip(actual, slow, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("is_scored", [True, False])
def test_masked_copies_and_their_gradients_equal_the_twin(dtype: torch.dtype, is_scored: bool) -> None:
    torch.manual_seed(0)
    weights = [nn.Parameter(torch.randn(33, 7)), nn.Parameter(torch.randn(100, 90))]
    masks = [ScoreMask(w) if is_scored else TopMask(w) for w in weights]
    for mask in masks:
        mask.mask.copy_(torch.rand(mask.mask.shape) > 0.5)
    shadow = Shadow(list(zip(masks, weights, strict=True)), {}, dtype)
    shadow.refresh()
    copies = [mask.copy for mask in masks]
    slow = [copy.detach().clone() for copy in copies]
    grads = [torch.randn(w.shape).to(dtype) for w in weights]
    for copy, grad in zip(copies, grads, strict=True):
        copy.grad = grad.clone()
    shadow.collect()

    chunks = kernels.Chunks([w.numel() for w in weights], torch.device("cpu"))
    tables = [
        kernels.addresses([w.detach() for w in weights]),
        kernels.addresses([mask.mask for mask in masks]),
        kernels.addresses([copy.detach() for copy in copies]),
    ]
    for copy in copies:
        copy.detach().fill_(7)
    kernels.mask_copy_(chunks, *tables, dtype == torch.bfloat16)
    # The interpreter cuts bfloat16 off where a GPU rounds; on a GPU they are equal (benchmarks/step.py).
    gap = 2**-7 if dtype == torch.bfloat16 else 0.0
    for copy, expected in zip(copies, slow, strict=True):
        torch.testing.assert_close(copy.detach(), expected, rtol=gap, atol=0.0)
    of_weights, of_scores = kernels.mask_grads(chunks, *tables[:2], grads, is_scored)
    for weight, grad in zip(weights, of_weights, strict=True):
        assert torch.equal(weight.grad.flatten(), grad)
    for mask, grad in zip(masks, of_scores, strict=is_scored):
        assert torch.equal(mask.scores.grad.flatten(), grad)
