"""Pruning inside transformers.Trainer."""

from typing import Any

from torch import nn
from torch.optim import Optimizer
from transformers import TrainerCallback

from bermo.errors import BermoError
from bermo.nn.masked import originals_of
from bermo.pruning.pruner import Pruner

REMEDY = "Pass Trainer optimizers=(torch.optim.AdamW(bermo.parameter_groups(model, lr=…)), None)."


class PruningCallback(TrainerCallback):
    """Moves the masks inside transformers.Trainer, and adds the penalty's gradient before each of its steps.

    Scores need a rate of their own, which Trainer's own optimiser does not give them, so pass it one:
    `optimizers=(torch.optim.AdamW(bermo.parameter_groups(model, lr=3e-5)), None)`. An optimiser that trains
    them at the rate of the weights, or not at all, is refused. The penalty's gradient comes after Trainer has
    clipped.

        >>> model = bermo.BermoForSequenceClassification.from_backbone("box")
        >>> schedule = bermo.CubicSchedule(total_steps=10, warmup_steps=1)
        >>> pruner = bermo.prune_(model, bermo.Movement(density=0.1), schedule)
        >>> callback = bermo.PruningCallback(pruner)  # transformers.Trainer(…, callbacks=[callback])
    """

    def __init__(self, pruner: Pruner) -> None:
        self.pruner = pruner

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        penalty = self.pruner.penalty()
        if penalty.requires_grad:
            penalty.backward()

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        _check_rates(self.pruner, kwargs["model"], kwargs["optimizer"])
        self.pruner.watch(_inner(kwargs["optimizer"]))
        # Not 0 where a training goes on from a checkpoint.
        self.pruner.at(state.global_step)

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.pruner.at(state.global_step + 1)


def _inner(optimizer: Any) -> Optimizer:
    """Return the optimiser inside accelerate's wrapper."""
    return getattr(optimizer, "optimizer", optimizer)


def _check_rates(pruner: Pruner, model: nn.Module, optimizer: Optimizer) -> None:
    """Refuse an optimiser under which the scores would hardly move, so that the masks would be arbitrary."""
    scores = {id(parameter) for parameter in pruner.score_parameters()}
    groups = [({id(p) for p in group["params"]}, group) for group in optimizer.param_groups]
    if scores - set().union(*(members for members, _ in groups)):
        raise BermoError(f"The optimizer does not train the scores of the masks. {REMEDY}")
    weights = {id(weight) for weight in originals_of(model)}
    for members, group in groups:
        if members & scores and members & weights:
            rate = group.get("initial_lr", group["lr"])
            raise BermoError(
                f"The optimizer trains the scores of the masks at the rate of the weights, {rate:g}, at which"
                f" they hardly move. {REMEDY}"
            )
