"""AdamW over masked weights, in Triton's interpreter on the CPU, equals torch's own on the gradients written out."""

import pytest
import torch
from torch import nn

adam = pytest.importorskip("bermo.nn.adam", reason="needs Triton")
SHAPES = [(11, 3), (100, 90)]


def make() -> tuple[list[nn.Parameter], list[nn.Parameter], torch.optim.AdamW]:
    torch.manual_seed(1)
    weights = [nn.Parameter(torch.randn(shape)) for shape in SHAPES]
    scores = [nn.Parameter(torch.randn(shape)) for shape in SHAPES]
    groups = [
        {"params": weights, "lr": torch.tensor(1e-2), "weight_decay": 0.1},
        {"params": scores, "lr": torch.tensor(3e-2), "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=torch.tensor(1e-3), fused=True)
    for p in (*weights, *scores):
        zeros = (torch.zeros_like(p), torch.zeros_like(p), torch.zeros(()))
        optimizer.state[p] = dict(zip(("exp_avg", "exp_avg_sq", "step"), zeros, strict=True))
    return weights, scores, optimizer


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("is_scored", [True, False])
def test_updates_and_norms_are_those_of_torch(is_scored: bool, dtype: torch.dtype) -> None:
    fast, slow = make(), make()
    masks = [torch.rand(shape) > 0.5 for shape in SHAPES]
    chunks = adam.Chunks([weight.numel() for weight in fast[0]], torch.device("cpu"))
    grads = torch.zeros(chunks.total, dtype=dtype)
    scales = torch.tensor([0.37, 0.8])  # the second tensor has a clip of its own
    masked = adam.MaskedAdam(fast[0], masks, fast[1] if is_scored else [], grads, fast[2], [0, 1])
    assert adam.can_update(fast[2], masked.parameters)
    for _ in range(2):
        for i, weight in enumerate(slow[0]):
            grad = torch.randn(weight.shape).to(dtype)
            grads[chunks.places[i] :][: grad.numel()] = grad.flatten()
            weight.grad = grad.float() * masks[i]
            slow[1][i].grad = grad.float() * weight.detach() if is_scored else None
        norms = masked.norms()
        torch.testing.assert_close(norms.weights, torch.stack([w.grad.norm() for w in slow[0]]))
        if norms.scores is not None:
            torch.testing.assert_close(norms.scores, torch.stack([s.grad.norm() for s in slow[1]]))
        for parameters in slow[:2]:
            for parameter, scale in zip(parameters, scales, strict=True):
                if parameter.grad is not None:
                    parameter.grad *= scale
        masked.step(scales, is_real=False)
        masked.step(scales)
        slow[2].step()
    for a, b in zip((*fast[0], *fast[1]), (*slow[0], *slow[1]), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)
        for name, value in slow[2].state[b].items():
            torch.testing.assert_close(fast[2].state[a][name], value, rtol=1e-5, atol=1e-7)


def test_another_optimiser_is_refused() -> None:
    weights, _, optimizer = make()
    assert adam.can_update(optimizer, weights)
    assert not adam.can_update(torch.optim.Adam(weights), weights)
    optimizer.param_groups[0]["lr"] = 0.1  # a rate that a captured step could not read
    assert not adam.can_update(optimizer, weights)
