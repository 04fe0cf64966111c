"""What a training needs (model, batches, objective, hooks), and how it ended."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bermo.nn.masks import Mask
from bermo.pace_spec import Optimiser
from bermo.progress import Display, Quiet

Batch = dict[str, Tensor]


class Batches(Protocol):
    """The training data: which rows make up each batch of an epoch, and their tensors."""

    def epoch(self, epoch: int) -> Sequence[np.ndarray]: ...

    def collate(self, rows: np.ndarray) -> Batch: ...


@dataclass(frozen=True, kw_only=True)
class ModelCall:
    """What an objective needs of the model's call: the tensors that it reads and what it returns."""

    only_for_loss: frozenset[str] = frozenset()
    """Names of tensors in the batch that the objective reads and the model does not, such as labels."""
    hidden_states: bool = False
    """Whether the outputs must hold the hidden states of every layer."""

    def arguments(self, batch: Batch) -> dict[str, Any]:
        """Return the keyword arguments of the model's call on a batch."""
        inputs = {name: tensor for name, tensor in batch.items() if name not in self.only_for_loss}
        return inputs | ({"output_hidden_states": True} if self.hidden_states else {})


class Objective(Protocol):
    """What a training minimises: the loss of a model's outputs on a batch.

    The loss is a mean over the labelled rows or tokens of the batch, `count` says how many there are. Where
    several models are trained as one stack, it is a vector with one loss for each model. Objectives wrap each
    other: labels -> + teacher -> + penalty of pruning.
    """

    @property
    def call(self) -> ModelCall: ...

    def count(self, batch: Batch) -> int: ...

    def __call__(self, outputs: Any, batch: Batch) -> Tensor: ...


def compute_loss(model: Callable[..., Any], objective: Objective, batch: Batch) -> Tensor:
    """Call the model on a batch, and the objective on its outputs; only the loss outlives this call."""
    return objective(model(**objective.call.arguments(batch)), batch)


ModelCaller = Callable[..., Any]
"""Calls the model that is trained."""
LossOf = Callable[[ModelCaller, Objective, Batch], Tensor]
"""Computes the loss of a batch, in one pass (`compute_loss`) or in several."""


class Hook(Protocol):
    """What a method does: `begin` once; in each step `plan` on the CPU, then `apply` on the device.

    `apply` may be captured in a CUDA graph and replayed. So all that changes from step to step comes from
    `plan`, which writes into tensors that stay the same, or from random `generators`. `metrics` is called
    when losses are logged.
    """

    def begin(self, optimizer: Optimizer) -> None: ...

    def plan(self, step: int) -> None: ...

    def apply(self) -> None: ...

    def generators(self) -> Sequence[torch.Generator]: ...

    def metrics(self) -> Mapping[str, float]: ...


@dataclass(frozen=True, kw_only=True)
class Job:
    """All that one training needs; `evaluate` returns scores (the first decides), `keep` saves the best."""

    model: nn.Module
    batches: Batches
    objective: Objective
    groups: list[dict[str, Any]]
    evaluate: Callable[[nn.Module], Mapping[str, float]]
    keep: Callable[[nn.Module], None]
    folder: Path
    seed: int
    identity: str
    hooks: tuple[Hook, ...] = ()
    optimizer: Optimiser = "adamw"
    loss_of: LossOf = compute_loss
    has_inner_gradients: bool = False
    """Whether `loss_of` takes gradients itself; fused kernels would write weights' gradients meanwhile."""
    watch: Callable[[Mapping[str, float]], Mapping[str, float]] = lambda norms: {}
    """Returns what to log of the gradient norms, given by the names of parameters."""
    masked: tuple[tuple[Mask, nn.Parameter], ...] = ()
    """Masks and their weights that the step may apply all at once, through copies."""
    best_from: int = 0
    """Before this step no model counts as the best, since it is not yet at its final density."""
    scores_start: bool = False
    """Whether the model is scored before the first step too; it then counts as one that may be the best."""
    is_collapsed: Callable[[], bool] = lambda: False
    """Called after each evaluation: whether the model gave one answer to everything."""
    handicap: Callable[[], float] = lambda: 0.0
    """Called after each evaluation: by how many points less it counts when the best one is chosen."""
    describe: Callable[[], Mapping[str, float]] = dict
    """Called after each evaluation: numbers about the model that are logged beside its scores."""
    before_evaluation: Callable[[], None] = lambda: None
    """Called before the models are scored."""
    display: Display = field(default_factory=Quiet)
    members: tuple["Job", ...] = ()
    """The jobs whose models are stacked as this one. The objective then returns a loss for each, every
    trained tensor has the models along its first axis, and each model is scored and kept by itself."""


@dataclass(frozen=True, kw_only=True)
class Fit:
    """How a training ended."""

    steps: int
    best_step: int
    best: dict[str, float]
    last: dict[str, float]
    start: dict[str, float]
    """The scores before the first step; empty where it was not scored."""
    highest: float | None
    """The highest score of any evaluation, also of those that cannot be the best; None before the first."""
    last_loss: float
    is_finite: bool
    seconds: float
    num_rows: int
    described: Mapping[str, float | None] = field(default_factory=dict)
    """The row of the best evaluation in metrics.jsonl, with what the job said of the model."""


class Stopped(Exception):
    """The run was asked to stop, saved its state and can go on."""

    def __init__(self, step: int, total: int) -> None:
        super().__init__(f"Stopped at step {step} of {total}; the state is saved.")
