"""Pruning inside transformers.Trainer."""

from typing import Any

from transformers import TrainerCallback

from bermo.pruning.pruner import Pruner


class PruningCallback(TrainerCallback):
    """Moves the masks inside transformers.Trainer, and adds the penalty's gradient before each of its steps.

    Give the scores a rate of their own: `optimizers=(torch.optim.AdamW([{"params": pruner.score_parameters(),
    "lr": 1e-2, "weight_decay": 0.0}, …]), None)`. The penalty's gradient comes after Trainer has clipped.
    """

    def __init__(self, pruner: Pruner) -> None:
        self.pruner = pruner

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        penalty = self.pruner.penalty()
        if penalty.requires_grad:
            penalty.backward()

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # Not 0 where a training goes on from a checkpoint.
        self.pruner.at(state.global_step)

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.pruner.at(state.global_step + 1)
