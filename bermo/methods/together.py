"""Seeds trained together: N models of one shape as one stacked model, one step for all of them.

On a GPU the step of a small encoder is a thousand short kernel launches. N seeds in one stack share these
launches, and their matrices are multiplied in batches. Each seed has its own initial weights, batches, masks,
clipping, scores and folder. Two things are shared: in each step all seeds read texts of about the same
length, so that little is padded, and dropout draws from one stream of random numbers. So a seed trained
together gives other numbers than the same seed alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.optim import Optimizer
from transformers.utils import ModelOutput

from bermo.data.features import Features
from bermo.errors import BermoError
from bermo.methods.answers import AnsweredLoss
from bermo.methods.assemble import LabelLoss
from bermo.methods.distill import NAME, DistilledLoss, needs_only_logits
from bermo.methods.evaluate import predict
from bermo.methods.prune import PrunedLoss, PruneHook
from bermo.nn.fast.penalty import ScoreKernels, mean_size
from bermo.nn.masks import HardConcrete, Mask, ScoreMask
from bermo.pruning.criteria import L0, Penalised
from bermo.pruning.moments import second_moments
from bermo.pruning.weights import PrunerGroup, WeightPruner
from bermo.training.job import Batch, Batches, Job, ModelCall, Objective
from bermo.training.stack import stack, stacked_masks


def join_jobs(jobs: Sequence[Job], lengths: np.ndarray, folder: Path) -> Job:
    """Make one job of several that differ only in their seed; their weights become views of its model's."""
    if NAME in dict(jobs[0].model.named_children()):
        raise BermoError(
            "The teacher's layers have another width than the student's, so each seed learns projections of"
            " its own, and the seeds cannot be trained together. Leave --together out."
        )
    joint = stack([cast(Any, job.model) for job in jobs])
    masks = stacked_masks(joint)
    hooks = [cast(PruneHook, job.hooks[0]) for job in jobs if job.hooks]
    pruners = [cast(WeightPruner, hook.pruner) for hook in hooks]
    objective: Objective = JoinedLoss([_without_penalty(job.objective) for job in jobs])
    if hooks:
        objective = PrunedLoss(objective, JoinedPenalty(pruners, [mask for mask, _ in masks]))
    return replace(
        jobs[0],
        model=joint,
        batches=JoinedBatches([job.batches for job in jobs], lengths),
        objective=objective,
        groups=_join_groups(joint, jobs[0]),
        hooks=(JoinedHook(pruners, [mask for mask, _ in masks]),) if hooks else (),
        masked=tuple(masks),
        folder=folder,
        identity="+".join(job.identity for job in jobs),
        members=tuple(jobs),
    )


def _without_penalty(objective: Objective) -> Objective:
    return objective.objective if isinstance(objective, PrunedLoss) else objective


def _join_groups(joint: nn.Module, first: Job) -> list[dict[str, Any]]:
    names = {id(parameter): name for name, parameter in first.model.named_parameters()}
    stacked = dict(joint.named_parameters())
    return [group | {"params": [stacked[names[id(p)]] for p in group["params"]]} for group in first.groups]


class JoinedBatches:
    """The batches of all seeds, side by side; those of one step are alike in length."""

    def __init__(self, batches: Sequence[Batches], lengths: np.ndarray) -> None:
        self.batches, self.lengths = batches, lengths

    def epoch(self, epoch: int) -> list[np.ndarray]:
        """Rank each seed's batches by size and length; those of one rank make a step.

        The steps come in the order of the first seed's batches.
        """
        plans = [batches.epoch(epoch) for batches in self.batches]
        ranks = [self._ranked(plan) for plan in plans]
        steps = [
            np.concatenate([plan[rank[k]] for plan, rank in zip(plans, ranks, strict=True)])
            for k in range(len(ranks[0]))
        ]
        rank_of = np.empty(len(steps), dtype=np.int64)
        rank_of[ranks[0]] = np.arange(len(steps))
        return [steps[rank] for rank in rank_of]

    def collate(self, rows: np.ndarray) -> Batch:
        """Pad the rows of all seeds by the batches of the first, since all seeds read the same data."""
        return self.batches[0].collate(rows)

    def _ranked(self, plan: Sequence[np.ndarray]) -> np.ndarray:
        longest = np.array([self.lengths[rows].max() for rows in plan])
        sizes = np.array([len(rows) for rows in plan])
        return np.lexsort((longest, sizes))


class JoinedLoss:
    """The loss of each seed by its own objective, from the outputs of the stack on the rows of all seeds.

    Objectives that read nothing but logits and batch are computed for all seeds at once, by torch.vmap. With
    a teacher who runs in the step they are computed seed by seed.
    """

    def __init__(self, objectives: Sequence[Objective]) -> None:
        self.objectives = objectives
        is_one_kind = len({type(objective) for objective in objectives}) == 1
        self.is_alike = is_one_kind and all(_reads_logits_only(one) for one in objectives)

    @property
    def call(self) -> ModelCall:
        return self.objectives[0].call

    def count(self, batch: Batch) -> int:
        return self.objectives[0].count(batch)

    def __call__(self, outputs: ModelOutput, batch: Batch) -> Tensor:
        """Return a loss for each seed."""
        return self._at_once(outputs, batch) if self.is_alike else self._one_by_one(outputs, batch)

    def _at_once(self, outputs: ModelOutput, batch: Batch) -> Tensor:
        make, objective, count = type(outputs), self.objectives[0], len(self.objectives)

        def loss_of_one(logits: dict[str, Tensor], rows: Batch) -> Tensor:
            return objective(make(**logits), rows)

        logits = {name: value for name, value in outputs.items() if isinstance(value, Tensor)}
        split = [{k: _split(v, count) for k, v in tensors.items()} for tensors in (logits, batch)]
        return torch.vmap(loss_of_one)(*split)

    def _one_by_one(self, outputs: ModelOutput, batch: Batch) -> Tensor:
        count = len(self.objectives)
        losses = [
            objective(_rows_of(outputs, index, count), _rows_of(batch, index, count))
            for index, objective in enumerate(self.objectives)
        ]
        return torch.stack(losses)


class JoinedPenalty:
    """The penalty of each seed's masks, from the masks of the stack."""

    def __init__(self, pruners: Sequence[WeightPruner], masks: Sequence[Mask]) -> None:
        self.pruners, self.masks = pruners, masks

    def __call__(self) -> Tensor | float:
        if not isinstance(self.pruners[0].method, Penalised):
            return 0.0
        masks = cast(list[ScoreMask | HardConcrete], self.masks)
        return self.pruners[0].numbers.penalty(lambda: mean_size(masks, len(self.pruners)), self._density)

    def _density(self) -> Tensor:
        """The share that each model keeps now; counted with the mean size, where one pass gives both."""
        penalty_size = cast(list[ScoreMask | HardConcrete], self.masks)[0].penalty_size
        if penalty_size is not None:
            return cast(Tensor, penalty_size.density())
        count = len(self.pruners)
        kept = torch.stack([mask.mask.view(count, -1).sum(1) for mask in self.masks]).sum(0)
        return kept / sum(site.original.numel() for site in self.pruners[0].sites)


def _reads_logits_only(objective: Objective) -> bool:
    """Tell whether an objective is a function of a batch and a model's logits."""
    if isinstance(objective, DistilledLoss):
        return needs_only_logits(objective.spec) and _reads_logits_only(objective.hard)
    if isinstance(objective, AnsweredLoss):
        return _reads_logits_only(objective.hard)
    return isinstance(objective, LabelLoss)


class JoinedHook:
    """Sets the masks of all seeds; their metrics come from each seed's own hook."""

    def __init__(self, pruners: Sequence[WeightPruner], masks: Sequence[Mask]) -> None:
        self.pruners, self.masks, self.group = pruners, masks, PrunerGroup(pruners)
        self.score_kernels = ScoreKernels()
        if pruners[0].numbers.controller is not None:
            pruners[0].numbers.controller.holder = masks[0]
        # All have one schedule, and so one set of numbers.
        for pruner in pruners[1:]:
            pruner.numbers = pruners[0].numbers

    def begin(self, optimizer: Optimizer) -> None:
        if self.pruners[0].rank != "sensitivity":
            return
        scores = [cast(ScoreMask, mask).scores for mask in self.masks]
        moments = second_moments(optimizer, scores, len(self.pruners))
        for pruner in self.pruners:
            pruner.read(moments)

    def plan(self, step: int) -> None:
        self.pruners[0].plan(step)

    def apply(self) -> None:
        if isinstance(self.pruners[0].method, L0):
            masks = cast(list[HardConcrete], self.masks)
            self.score_kernels.draw_(masks, self.pruners[0].numbers.generator)
            return
        self.group.apply(self.masks)

    def generators(self) -> list[torch.Generator]:
        return self.pruners[0].generators()

    def metrics(self) -> Mapping[str, float]:
        return {}


def predict_together(
    joint: nn.Module, features: Features, batch_size: int, accelerator: Accelerator, count: int
) -> list[list[np.ndarray]]:
    """Return the predictions of each of the stacked models, from one pass for all of them."""
    joint.eval()
    outputs: list[Any] = []

    def run_all(**inputs: Tensor) -> Any:
        outputs.append(joint(**{k: v.repeat(count, *[1] * (v.ndim - 1)) for k, v in inputs.items()}))
        return _rows_of(outputs[-1], 0, count)

    predictions = [predict(run_all, features, batch_size, accelerator)]
    for index in range(1, count):
        known = iter(outputs)
        predictions.append(
            predict(
                lambda known=known, index=index, **_: _rows_of(next(known), index, count),
                features,
                batch_size,
                accelerator,
            )
        )
    return predictions


def _rows_of(value: Any, index: int, count: int) -> Any:
    """Return one model's rows of a stack's tensors, batch, outputs or tuple of hidden states."""
    if isinstance(value, Tensor):
        return _split(value, count)[index]
    if isinstance(value, tuple):
        return tuple(_rows_of(item, index, count) for item in value)
    parts = {name: _rows_of(item, index, count) for name, item in value.items()}
    return type(value)(**parts)


def _split(value: Tensor, count: int) -> Tensor:
    """Give a stack's tensor an axis of its models: (models · rows, …) -> (models, rows, …)."""
    return value.view(count, -1, *value.shape[1:])
