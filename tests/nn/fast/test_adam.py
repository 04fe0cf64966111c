"""Our AdamW, in Triton's interpreter, equals torch's on the masked gradients, norms and moments too."""

import pytest
import torch
from torch import nn

from bermo.nn.fast.penalty import PenaltySize
from bermo.nn.masks import ScoreMask

adam = pytest.importorskip("bermo.nn.fast.adam", reason="needs Triton")
SHAPES = {1: [(11, 3), (100, 90)], 2: [(2, 8, 6), (2, 100, 92)]}


def make(
    num_models: int = 1,
) -> tuple[list[nn.Parameter], list[nn.Parameter], torch.optim.AdamW]:
    torch.manual_seed(1)
    weights = [nn.Parameter(torch.randn(shape)) for shape in SHAPES[num_models]]
    scores = [nn.Parameter(torch.randn(shape)) for shape in SHAPES[num_models]]
    groups = [
        {"params": weights, "lr": torch.tensor(1e-2), "weight_decay": 0.1},
        {"params": scores, "lr": torch.tensor(3e-2), "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=torch.tensor(1e-3), fused=True)
    for p in (*weights, *scores):
        zeros = (torch.zeros_like(p), torch.zeros_like(p), torch.zeros(()))
        optimizer.state[p] = dict(zip(("exp_avg", "exp_avg_sq", "step"), zeros, strict=True))
    return weights, scores, optimizer


def scored(scores: nn.Parameter) -> ScoreMask:
    mask = ScoreMask(scores.detach())
    mask.scores = scores
    return mask


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("is_scored", ["penalised", True, False])
@pytest.mark.parametrize("num_models", [1, 2])
def test_updates_and_norms_are_those_of_torch(
    is_scored: bool | str, dtype: torch.dtype, num_models: int
) -> None:
    fast, slow = make(num_models), make(num_models)
    masks = [torch.rand(weight.shape) > 0.5 for weight in fast[0]]
    chunks = adam.Chunks([weight.numel() for weight in fast[0]], torch.device("cpu"))
    grads = torch.zeros(chunks.total, dtype=dtype)
    scales = torch.tensor([0.37, 0.8])[:num_models]  # each model has a clip of its own
    scores = fast[1] if is_scored else []
    penalty, slow_penalty = None, None
    if is_scored == "penalised":
        penalty, slow_penalty = (PenaltySize([scored(s) for s in own[1]], num_models) for own in (fast, slow))
        for one in (penalty, slow_penalty):
            one.is_used = True
            one.grad.copy_(torch.tensor([300.0, -500.0])[:num_models])
    masked = adam.DirectAdam(fast[0], grads, fast[2], num_models, masks=masks, scores=scores, penalty=penalty)
    assert adam.can_update(fast[2], masked.parameters, num_models)
    for _ in range(2):
        for i, weight in enumerate(slow[0]):
            grad = torch.randn(weight.shape).to(dtype)
            grads[chunks.buffer_starts[i] :][: grad.numel()] = grad.flatten()
            weight.grad = grad.float() * masks[i]
            slow[1][i].grad = grad.float() * weight.detach() if is_scored else None
        if slow_penalty is not None:
            slow_penalty.add_grads_()
        given = [*slow[0], *(slow[1] if is_scored else [])]
        expected = [parameter.grad.view(num_models, -1).norm(dim=1) for parameter in given]
        torch.testing.assert_close(masked.norms(), torch.stack(expected))
        for parameter in given:
            parameter.grad.view(num_models, -1).mul_(scales[:, None])
        masked.step(scales, is_real=False)
        masked.step(scales)
        slow[2].step()
    for a, b in zip((*fast[0], *fast[1]), (*slow[0], *slow[1]), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)
        for name, value in slow[2].state[b].items():
            torch.testing.assert_close(fast[2].state[a][name], value, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("num_models", [1, 2])
def test_without_masks_the_copies_are_made_anew_too(dtype: torch.dtype, num_models: int) -> None:
    fast, slow = make(num_models), make(num_models)
    copies = [torch.zeros(weight.shape, dtype=dtype) for weight in fast[0]]
    chunks = adam.Chunks([weight.numel() for weight in fast[0]], torch.device("cpu"))
    grads = torch.zeros(chunks.total, dtype=dtype)
    scales = torch.tensor([0.37, 0.8])[:num_models]
    direct = adam.DirectAdam(fast[0], grads, fast[2], num_models, copies=copies)
    for _ in range(2):
        for i, weight in enumerate(slow[0]):
            grad = torch.randn(weight.shape).to(dtype)
            grads[chunks.buffer_starts[i] :][: grad.numel()] = grad.flatten()
            weight.grad = grad.float()
        expected = [weight.grad.view(num_models, -1).norm(dim=1) for weight in slow[0]]
        torch.testing.assert_close(direct.norms(), torch.stack(expected), rtol=1e-5, atol=1e-5)
        for weight in slow[0]:
            weight.grad.view(num_models, -1).mul_(scales[:, None])
        direct.step(scales)
        slow[2].step()
    for mine, copy, other in zip(fast[0], copies, slow[0], strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-6, atol=1e-6)
        # Triton's interpreter cuts bfloat16 off where a GPU rounds it.
        rtol = 0.0 if dtype == torch.float32 else 2**-7
        torch.testing.assert_close(copy, mine.detach().to(dtype), rtol=rtol, atol=0.0)
        for name, value in slow[2].state[other].items():
            torch.testing.assert_close(fast[2].state[mine][name], value, rtol=1e-5, atol=1e-7)


def test_another_optimiser_is_refused() -> None:
    weights, _, optimizer = make()
    assert adam.can_update(optimizer, weights)
    assert not adam.can_update(torch.optim.Adam(weights), weights)
    optimizer.param_groups[0]["lr"] = 0.1  # a rate that a captured step could not read
    assert not adam.can_update(optimizer, weights)
