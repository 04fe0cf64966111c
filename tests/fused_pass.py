"""One forward and backward pass of a small model by fused kernels, in Triton's interpreter."""

from contextlib import nullcontext
from functools import cache
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from bermo.nn.fast.shadow import Shadow
from bermo.pruning.criteria import Movement
from bermo.pruning.schedule import CubicSchedule
from bermo.pruning.weights import prune_
from bermo.training.fuse import Fused, Fusion
from bermo.training.step import call_with_copies, linear_parameters
from tests.small_models import small_batch, without_dropout

CPU = torch.device("cpu")


class Pass(NamedTuple):
    """What a pass gave: the loss, the gradients by name, and how many functions it replaced."""

    loss: Tensor
    gradients: dict[str, Tensor]
    num_overrides: int


def fused_pass(
    model: nn.Module,
    batch: dict[str, Tensor],
    fused: Fused,
    is_pruned: bool = False,
    dtype: torch.dtype = torch.float32,
) -> Pass:
    """Run a model whose copies are in this dtype, masked to half of their weights or not."""
    masked = ()
    if is_pruned:
        schedule = CubicSchedule(total_steps=9, warmup_steps=1)
        pruner = prune_(model, Movement(density=0.5, rank="score"), schedule)
        pruner.at(5)
        masked = pruner.simple_masks()
    shadow = Shadow(masked, linear_parameters(model), dtype)
    shadow.refresh()
    fusion = Fusion(model, shadow, fused)
    is_half = dtype == torch.bfloat16
    with fusion.active(CPU), torch.autocast("cpu", dtype) if is_half else nullcontext():
        loss = call_with_copies(model, shadow.plain, batch).loss
    assert not any("forward" in vars(module) for module in model.modules())
    loss.backward()
    shadow.collect()
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return Pass(loss.detach(), found, len(fusion.overrides))


def round_as_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Triton's interpreter round to the nearest bfloat16, as a GPU does; it cuts bits off."""
    interpreter = pytest.importorskip("triton.runtime.interpreter")
    language = pytest.importorskip("triton.language")
    convert = interpreter._convert_float

    def to_nearest(source: Any, kind: Any, to: Any, mode: Any) -> Any:
        if to != language.bfloat16 or kind != language.float32:
            return convert(source, kind, to, mode)
        return torch.tensor(source).bfloat16().view(torch.uint16).numpy()

    monkeypatch.setattr(interpreter, "_convert_float", to_nearest)


def kept_gradients(model: nn.Module, batch: dict[str, Tensor], fused: Fused) -> dict[str, Tensor]:
    """The gradients of a fused pass in float32 that lie in the buffer which the optimiser reads, by name."""
    weights = linear_parameters(model)
    shadow = Shadow((), weights, torch.float32)
    shadow.refresh()
    copies = {name: copy for name, copy in shadow.plain.items() if copy.dim() > 1}
    shadow.keep_grads_(list(copies.values()))
    shadow.refresh()
    with Fusion(model, shadow, fused).active(CPU):
        loss = call_with_copies(model, shadow.plain, batch).loss
    loss.backward()
    return {
        name: copy.grad
        for name, copy in copies.items()
        if copy.grad is not None and copy.grad.data_ptr() == shadow.grad_views[id(copy)].data_ptr()
    }


@cache
def gradients(family: str, fused: Fused, is_pruned: bool) -> Pass:
    """One pass of a small model of a family without dropout, with copies in float32."""
    model = without_dropout(family)
    return fused_pass(model, small_batch(model), fused, is_pruned)


def assert_equal(mine: Pass, plain: Pass) -> None:
    """Assert that two passes in float32 have one loss and the same gradients."""
    torch.testing.assert_close(mine.loss, plain.loss, rtol=1e-5, atol=1e-6)
    assert mine.gradients.keys() == plain.gradients.keys()
    for name, grad in plain.gradients.items():
        torch.testing.assert_close(mine.gradients[name], grad, rtol=1e-3, atol=1e-4, msg=name)


def fused_loss(model: nn.Module, batch: dict[str, Tensor], seed: int = 0) -> float:
    """The loss of a fused pass in float32 whose random numbers begin at a seed."""
    fusion = Fusion(model, Shadow((), linear_parameters(model), torch.float32), Fused())
    torch.manual_seed(seed)
    with fusion.active(CPU):
        return float(model(**batch).loss.detach())
