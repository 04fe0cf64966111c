"""Sizes, counts and noise of all masks at once, in Triton's interpreter, equal torch's mask by mask."""

import pytest
import torch
from torch import Tensor, nn

from bermo.nn.fast.penalty import ScoreKernels, mean_size
from bermo.nn.fast.shadow import Shadow
from bermo.nn.masks import HardConcrete, ScoreMask, soft_kept
from bermo.pruning.criteria import L0, SoftMovement
from bermo.pruning.schedule import CubicSchedule
from bermo.pruning.weights import prune_
from tests.small_models import batch_of, model_of

pytest.importorskip("bermo.nn.fast.score_kernels", reason="needs Triton")
SHAPES = {1: [(33, 7), (45, 50)], 2: [(2, 8, 6), (2, 45, 48)]}
"""For a number of models; the last matrix fills a chunk and a bit."""


def make(kind: type, num_models: int, dtype: torch.dtype, has_kernels: bool) -> Shadow:
    generator = torch.Generator().manual_seed(0)
    pairs = []
    for shape in SHAPES[num_models]:
        weight = nn.Parameter(torch.randn(shape, generator=generator))
        mask = kind(weight)
        mask.scores.data.normal_(0.0, 3.0, generator=generator)
        if kind is HardConcrete:
            mask.draw_(generator)
        else:
            mask.mask.copy_(torch.rand(mask.mask.shape, generator=generator) > 0.7)
        pairs.append((mask, weight))
    shadow = Shadow(pairs, {}, dtype, num_models)
    if has_kernels and kind is HardConcrete:
        shadow._use_hard_concrete_kernels()
    elif has_kernels:
        shadow.track_penalty_()
    return shadow


def run(shadow: Shadow) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """The mean sizes, the copies, and all gradients of one step with a penalty of its own for each model."""
    shadow.refresh()
    generator = torch.Generator().manual_seed(1)
    size = mean_size([mask for mask, _ in shadow.masked], shadow.num_models)
    loss = (size * torch.tensor([700.0, -300.0])[: shadow.num_models]).sum()
    copies = [mask(weight) for mask, weight in shadow.masked]
    for copy in copies:
        grad = torch.randn(copy.shape, generator=generator).to(copy.dtype)
        loss = loss + (copy * grad).sum()
    loss.backward()
    shadow.collect()
    grads = [g for mask, weight in shadow.masked for g in (weight.grad, mask.scores.grad)]
    return size.detach(), [copy.detach() for copy in copies], grads


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("num_models", [1, 2])
@pytest.mark.parametrize("kind", [HardConcrete, ScoreMask])
def test_copies_sizes_and_gradients_of_all_masks_are_the_twins(
    kind: type, num_models: int, dtype: torch.dtype
) -> None:
    fast, slow = (make(kind, num_models, dtype, has_kernels) for has_kernels in (True, False))
    for _ in range(2):  # the second step feels nothing of the first
        (size, copies, grads), (slow_size, slow_copies, slow_grads) = run(fast), run(slow)
        torch.testing.assert_close(size, slow_size)
        # The interpreter cuts bfloat16 off where a GPU rounds.
        gap = 2**-7 if dtype == torch.bfloat16 else 1e-6
        for copy, other in zip(copies, slow_copies, strict=True):
            torch.testing.assert_close(copy, other, rtol=gap, atol=1e-6)
        for grad, other in zip(grads, slow_grads, strict=True):
            torch.testing.assert_close(grad, other, rtol=1e-5, atol=2e-6)
    assert any((grad == 0).any() for grad in slow_grads), "some masks are clamped, or closed"
    kept = [mask.mask.view(num_models, -1).sum(1) for mask, _ in slow.masked]
    numbers = [mask.mask[0].numel() if num_models > 1 else mask.mask.numel() for mask, _ in slow.masked]
    torch.testing.assert_close(fast.penalty_size.density(), sum(kept) / sum(numbers))


@pytest.mark.parametrize("kind", [SoftMovement, L0])
@pytest.mark.parametrize("aim", [{"penalty": 10.0}, {"density": 0.4}], ids=["penalty", "density"])
def test_a_pruned_models_loss_and_gradients_are_the_twins(
    kind: type, aim: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = []
    for is_kernel in (False, True):
        monkeypatch.setattr(ScoreKernels, "_has_kernels", lambda *_, answer=is_kernel: answer)
        model = model_of("bert").train()
        pruner = prune_(model, kind(**aim), CubicSchedule(total_steps=10, warmup_steps=1))
        for scores in pruner.score_parameters():
            generator = torch.Generator().manual_seed(scores.numel())
            scores.data.normal_(0.0, 2.0, generator=generator)
        pruner.at(6)
        shadow = Shadow(pruner.simple_masks(), {}, torch.float32)
        if is_kernel:
            (shadow._use_hard_concrete_kernels if kind is L0 else shadow.track_penalty_)()
        shadow.refresh()
        torch.manual_seed(1)
        batch = batch_of(model)
        labels = torch.arange(len(batch["input_ids"])) % 2
        loss = model(**batch, labels=labels).loss + pruner.penalty()
        loss.backward()
        shadow.collect()
        grads = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        runs.append((loss.detach(), grads))
    torch.testing.assert_close(runs[1], runs[0], rtol=1e-4, atol=1e-6)


def test_closing_gives_the_masks_their_own_sizes_back() -> None:
    shadow = make(HardConcrete, 1, torch.float32, has_kernels=True)
    shadow.close()
    mask = shadow.masked[0][0]
    assert mask.penalty_size is None
    assert mask.copy is None
    mean_size([mask])[0].backward()
    assert mask.scores.grad is not None


def test_numbers_of_soft_movement_and_noise_of_l0_are_the_twins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(0)
    tensors = [torch.randn(33, 7), torch.randn(45, 50), torch.full((20, 20), -9.0)]
    masks = [HardConcrete(tensor) for tensor in tensors]
    drawn = []
    for is_kernel in (False, True):
        monkeypatch.setattr(ScoreKernels, "_has_kernels", lambda *_, answer=is_kernel: answer)
        scores = ScoreKernels()
        for threshold in (torch.tensor(0.3), torch.tensor(0.6)):
            assert torch.equal(scores.count_kept(tensors, threshold), soft_kept(tensors, threshold))
        scores.draw_(masks, torch.Generator().manual_seed(3))
        drawn.append(torch.cat([mask.noise.flatten() for mask in masks[:1]]))
    generator = torch.Generator().manual_seed(3)
    for mask in masks:
        mask.draw_(generator)
    torch.testing.assert_close(drawn[0], masks[0].noise.flatten(), rtol=0.0, atol=0.0)
    torch.testing.assert_close(drawn[1], drawn[0])


def test_all_noise_drawn_at_once_is_that_drawn_mask_by_mask() -> None:
    masks, others = ([HardConcrete(torch.zeros(n, 7)) for n in (5, 90, 33)] for _ in range(2))
    ScoreKernels().draw_(masks, torch.Generator().manual_seed(3))
    generator = torch.Generator().manual_seed(3)
    for mask, other in zip(masks, others, strict=True):
        other.draw_(generator)
        assert torch.equal(mask.noise, other.noise)
        assert mask.noise.std() > 1
