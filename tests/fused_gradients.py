"""The gradients of one pass of a small model, fused or not."""

from functools import cache

import torch
from torch import Tensor

from bermo.nn.fast.shadow import Shadow
from bermo.pruning.criteria import Movement
from bermo.pruning.schedule import CubicSchedule
from bermo.pruning.weights import prune_
from bermo.training.fuse import Fused, Fusion
from bermo.training.step import call_with_copies, linear_parameters
from tests.small_models import small_batch, without_dropout


@cache
def gradients(family: str, fused: Fused, is_pruned: bool) -> tuple[Tensor, dict[str, Tensor], int]:
    """The loss, the gradients and the number of fused modules of one pass, with copies in float32."""
    model = without_dropout(family)
    masked = ()
    if is_pruned:
        pruner = prune_(
            model, Movement(density=0.5, rank="score"), CubicSchedule(total_steps=9, warmup_steps=1)
        )
        pruner.at(5)
        masked = pruner.simple_masks()
    shadow = Shadow(masked, linear_parameters(model), torch.float32)
    shadow.refresh()
    fusion = Fusion(model, shadow, fused)
    batch = small_batch(model)
    with fusion.active(torch.device("cpu")):
        loss = call_with_copies(model, shadow.plain, batch).loss
    assert not any("forward" in vars(module) for module in model.modules())
    loss.backward()
    shadow.collect()
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return loss.detach(), found, len(fusion.overrides)
