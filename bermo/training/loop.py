"""The one loop: batches -> objective -> step -> hooks. No method is named in it.

A run is a function of (seed, data, settings) alone. The order of the rows depends on seed and epoch; the
random numbers of a step (dropout) are seeded from seed and step, and drawn by row where several processes
train (noise.py); the rates are a formula of the step. So a checkpoint needs the weights, the optimiser's
state and a few numbers, and a resumed run gives the same bits.

`batch_size` counts the rows of one optimiser step over all processes and accumulation passes together, and
each loss is weighted by its share of the step's labels, so that splitting never changes the mean.
"""

import time
from functools import lru_cache
from operator import itemgetter
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

from bermo.nn.fast.overrides import is_checkpointing
from bermo.nn.fast.shadow import Shadow
from bermo.spec import TrainSpec, chosen
from bermo.training import checkpoint
from bermo.training.bottleneck import in_order_of_products
from bermo.training.feed import Feed
from bermo.training.fuse import NOTHING, Fused
from bermo.training.graphs import Decisions, GraphedStep, make_step
from bermo.training.job import Fit, Job, Stopped, compute_loss
from bermo.training.members import Member
from bermo.training.optimiser import make_optimizer, set_rate_
from bermo.training.passes import Passes, StepPasses
from bermo.training.schedule import evaluation_steps, num_steps, rate_factor, seed_step
from bermo.training.signals import catch_signals
from bermo.training.step import Step, WeightedBatch, linear_parameters

# Training losses of a whole run in metrics.jsonl.
NUM_LOGS = 100
# The share of the time that may go into checkpoints at evaluations; those of checkpoint_minutes come on top.
SAVING_SHARE = 0.05
# Bytes a second, to guess how long the first checkpoint takes.
SAVING_RATE = 4e8
# Batches that wait, collated and pinned, for a GPU.
PREFETCHED = 8


def fit(job: Job, settings: TrainSpec, accelerator: Accelerator) -> Fit:
    """Train `job.model` in place from its last checkpoint (or from the start) to the end."""
    return fit_members(job, settings, accelerator)[0]


def fit_members(job: Job, settings: TrainSpec, accelerator: Accelerator) -> list[Fit]:
    """Train models that are stacked as one in the same way, and return how each of them ended."""
    loop = _Loop(job, settings, accelerator)
    with catch_signals(job.display, loop.why_it_waits) as caught:
        try:
            return loop.run(caught)
        finally:
            job.display.close()


class _Loop:
    """The loop's state: a few numbers that go into each checkpoint, beside weights and optimiser."""

    def __init__(self, job: Job, settings: TrainSpec, accelerator: Accelerator) -> None:
        self.job, self.settings, self.accelerator = job, settings, accelerator
        self.members = [Member(one, accelerator.is_main_process) for one in (job.members or (job,))]
        self.per_epoch = len(job.batches.epoch(0))
        self.total = num_steps(self.per_epoch, chosen(settings.epochs))
        self.evaluation_steps = set(evaluation_steps(self.per_epoch, self.total, settings.evaluations))
        self.log_every = max(1, self.total // NUM_LOGS)
        if accelerator.num_processes > 1:
            _freeze_unused_(job)
        optimizer = make_optimizer(job, accelerator.device)
        is_alone = accelerator.num_processes == 1
        # Left to find out by itself what it may move, accelerate would import torch's sharded tensors.
        placed = [accelerator.device_placement] * 2 if is_alone else None
        self.model, self.optimizer = accelerator.prepare(job.model, optimizer, device_placement=placed)
        self.inner = job.model
        self.step = self.num_rows = 0
        self.saved_step: int | None = None
        self.is_evaluating = False
        self.seconds = 0.0
        self.kernel_decisions: Decisions = {}
        self.saving_seconds = checkpoint.num_bytes(job.model) / SAVING_RATE
        # Threads may be in two epochs at once.
        self.epoch_order = lru_cache(2)(job.batches.epoch)
        self.passes = Passes(job, settings.accumulation, accelerator)
        # Layers that are computed again in the backward pass must find the weights of the forward pass.
        self.is_fast = settings.fast != "off" and is_alone and not is_checkpointing(self.inner)
        self.shadow = self._make_shadow()
        self.plain = Step(
            job,
            self.model,
            self.optimizer,
            settings.clip,
            accelerator,
            self.shadow,
            Fused() if self._can_fuse() else NOTHING,
        )

    def run(self, caught: list[int]) -> list[Fit]:
        self._resume()
        if self.step == 0 and self.job.scores_start:
            self._evaluate()
        self.job.display.tell(checkpoint.disk_note(self.job.folder / "checkpoints", self.inner))
        self.job.display.start("training", self.total, self.step)
        started = saved = time.monotonic()
        before = self.seconds
        num_rows = chosen(self.settings.batch_size) * len(self.members)
        for hook in self.job.hooks:
            hook.begin(self.optimizer.optimizer)
        train_step = make_step(
            self.plain, self.settings, num_rows, self.job.display.tell, self.kernel_decisions
        )
        depth = PREFETCHED if self.accelerator.device.type == "cuda" else 0
        feed = Feed(self._make_batches, self.step, self.total, depth)
        try:
            while self.step < self.total and self._why_to_stop() is None:
                # Decided before the step, in which all processes agree on it: their clocks differ.
                due = self._is_due((time.monotonic() - saved) / 60)
                stop, due = self._train_step(train_step, feed.get(self.step), bool(caught), due)
                self.seconds = before + time.monotonic() - started
                is_finite = self._log()
                if self.step in self.evaluation_steps or not is_finite:
                    self._evaluate()
                if not is_finite:
                    self.job.display.tell(f"The loss is no longer a number at step {self.step}: stopped.")
                    break
                if self.accelerator.num_processes == 1:  # several have agreed before the step
                    stop = bool(caught)
                if due or stop:
                    self._save()
                    saved = time.monotonic()
                if stop and self.step < self.total:
                    raise Stopped(self.step, self.total)
            if caught and self.accelerator.num_processes == 1:
                self._save()  # the signal comes once more before this training's results are written
            if self.step < self.total and (why := self._why_to_stop()):
                self.job.display.tell(f"Stopped after step {self.step} of {self.total}: {why}.")
        finally:
            feed.close()
            if self.shadow is not None:
                self.shadow.close()
        return [member.fit(self.step, self.seconds, self.num_rows) for member in self.members]

    def why_it_waits(self) -> str:
        """Say what a signal to stop waits for, and what would be lost without it."""
        step = "step" if self.accelerator.num_processes == 1 else "step and the next one"
        what = "evaluation" if self.is_evaluating else step
        from_where = "begins anew" if self.saved_step is None else f"goes on from step {self.saved_step}"
        return (
            f"Stopping when this {what} is done and the state is saved. Ctrl-C again ends at once; the same"
            f" command then {from_where}."
        )

    def _make_shadow(self) -> Shadow | None:
        """Return the copies that the forward pass reads in place of weights, if this training needs any."""
        if not self.is_fast:
            return None
        is_half = self.accelerator.mixed_precision == "bf16"
        plain = linear_parameters(self.inner) if is_half else {}
        if self.accelerator.mixed_precision == "fp16" or not (plain or self.job.masked):
            return None
        dtype = torch.bfloat16 if is_half else torch.float32
        masked = in_order_of_products(self.inner, self.job.masked, itemgetter(1))
        return Shadow(masked, plain, dtype, num_models=len(self.members))

    def _can_fuse(self) -> bool:
        return self.is_fast and self.settings.fast == "auto" and not self.job.has_inner_gradients

    def _train_step(
        self, train_step: Step | GraphedStep, batches: StepPasses, stop: bool, due: bool
    ) -> tuple[bool, bool]:
        """Do one optimiser step; return whether any process wants to stop, and to save."""
        # An evaluation sets the mode of the model itself, and not that of the wrapper of several processes.
        if not self.inner.training:
            self.model.train()
        factor = rate_factor(self.step, self.total, self.settings.warmup)
        for group in self.optimizer.param_groups:
            set_rate_(group, group["peak_lr"] * factor)
        total, stop, due = self._agree(batches.num_labels, stop, due)
        weighted = [
            WeightedBatch(one.batch, one.num_labels / total, one.num_labels > 0, one.rows)
            for one in batches.passes
        ]
        train_step(weighted, self._prepare)
        self.step += 1
        self.num_rows += batches.num_rows
        return stop, due

    def _prepare(self) -> None:
        """Set what this step reads on the device: the hooks' numbers and the seeds of random numbers."""
        for hook in self.job.hooks:
            hook.plan(self.step)
        seed_step(self.job.seed, self.step, 0 if self.passes.draws_by_row else self.accelerator.process_index)

    def _make_batches(self, step: int) -> StepPasses:
        """Collate this process's rows of a step, in one batch for each accumulation pass."""
        return self.passes.make(self.epoch_order(step // self.per_epoch)[step % self.per_epoch])

    def _agree(self, count: int, stop: bool, due: bool) -> tuple[int, bool, bool]:
        """Sum the numbers of labels over all processes, and let any process ask to stop or save."""
        if self.accelerator.num_processes == 1:
            return max(count, 1), stop, due
        mine = torch.tensor([count, stop, due], dtype=torch.int64, device=self.accelerator.device)
        sums = self.accelerator.reduce(mine, "sum").tolist()
        return max(sums[0], 1), sums[1] > 0, sums[2] > 0

    def _log(self) -> bool:
        """Every `log_every` steps write the mean loss since then; return whether any model's is a number."""
        if not self._is_logged(self.step):
            self.job.display.step(self.step, None)
            return True
        since = (self.step - 1) % self.log_every + 1
        # First what a device computes anew: it follows the steps that are still under way, and reading the
        # losses then finds it done.
        measured = [[hook.metrics() for hook in member.job.hooks] for member in self.members]
        losses = self._sum_over_processes(self.plain.loss_sum)
        norms = self.plain.norm_sum.tolist()
        self.plain.loss_sum.zero_()
        self.plain.norm_sum.zero_()
        for index, member in enumerate(self.members):
            member.now.last_loss = losses[index] / since
            row = {"loss": member.now.last_loss, "gradient_norm": norms[index] / since}
            for metrics in measured[index]:
                row |= metrics
            row |= member.job.watch(self.plain.gradient_norms(index))
            self._write_row(member, row | {"seconds": round(self.seconds, 3)})
        self.job.display.step(self.step, sum(losses) / since / len(losses))
        return any(member.is_finite for member in self.members)

    def _is_logged(self, step: int) -> bool:
        return step % self.log_every == 0 or step == self.total

    def _evaluate(self) -> None:
        """Score the validation set by each model, and show the first score."""
        self.is_evaluating = True
        self.job.before_evaluation()
        for member in self.members:
            row = member.evaluate(self.step)
            self.accelerator.log(self._named(member, row), step=self.step)
        self.is_evaluating = False
        main = next(iter(self.members[0].now.last))
        scores = " ".join(f"{member.now.last[main]:.2f}" for member in self.members)
        self.job.display.tell(f"step {self.step}: {main} {scores}")
        self.accelerator.wait_for_everyone()

    def _why_to_stop(self) -> str | None:
        """Say why to end early: evaluations without a better score, or with one answer; else None."""
        patience, give_up = self.settings.patience, self.settings.give_up
        now = [member.now for member in self.members]
        if patience and all(one.stale_evaluations >= patience for one in now):
            return f"no better score in {patience} evaluations"
        if give_up and all(one.dead_evaluations >= give_up for one in now):
            return f"the same answer to everything in {give_up} evaluations in a row"
        return None

    def _write_row(self, member: Member, row: dict[str, float]) -> None:
        self.accelerator.log(self._named(member, row), step=self.step)
        member.write(self.step, row)

    def _named(self, member: Member, row: dict[str, float]) -> dict[str, float]:
        """Return a row for the tracker; where several models are stacked, the names hold the seed."""
        if len(self.members) == 1:
            return row
        return {f"seed-{member.job.seed}/{name}": value for name, value in row.items()}

    def _is_due(self, age: float) -> bool:
        """Tell whether to save after the next step, `age` minutes after the last checkpoint.

        That is so when checkpoint_minutes are over, or at an evaluation, if saving takes little of the time.
        """
        coming = self.step + 1
        is_evaluated = coming in self.evaluation_steps and coming < self.total
        is_cheap = 60 * age >= self.saving_seconds / SAVING_SHARE
        return age > self.settings.checkpoint_minutes or (is_evaluated and is_cheap)

    def _save(self) -> None:
        started = time.monotonic()
        loss_sum = self._sum_over_processes(self.plain.loss_sum)
        if self.accelerator.is_main_process:
            state = {
                "step": self.step,
                "seconds": self.seconds,
                "num_rows": self.num_rows,
                "loss_sum": loss_sum,
                "norm_sum": self.plain.norm_sum.tolist(),
                "members": [member.state() for member in self.members],
                "scaler": self._scaler_state(),
                "kernels": self.kernel_decisions,
            }
            checkpoint.save(
                self.job.folder / "checkpoints",
                self.inner,
                self.optimizer.optimizer,
                identity=self.job.identity,
                state=state,
            )
        self.accelerator.wait_for_everyone()
        self.saved_step = self.step
        self.saving_seconds = time.monotonic() - started

    def _resume(self) -> None:
        """Go on from the last whole checkpoint, if there is one."""
        folder = self.job.folder / "checkpoints"
        last = checkpoint.find_last(folder, self.job.identity, self.job.display.tell)
        standings: list[Any] = [None] * len(self.members)
        if last is not None:
            checkpoint.load_(last, self.inner, self.optimizer.optimizer)
            state = last.state
            self.step, self.num_rows = state["step"], state["num_rows"]
            self.saved_step = self.step
            self.seconds, standings = state["seconds"], state["members"]
            self.kernel_decisions = state.get("kernels", {})
            # The sum over all processes was saved; one of them carries it on.
            if self.accelerator.is_main_process:
                self.plain.loss_sum.copy_(torch.tensor(state["loss_sum"]))
            self.plain.norm_sum.copy_(torch.tensor(state["norm_sum"]))
            if state["scaler"] and self.accelerator.scaler is not None:
                self.accelerator.scaler.load_state_dict(state["scaler"])
            self.job.display.tell(f"Going on from step {self.step} of {self.total}.")
        for member, standing in zip(self.members, standings, strict=True):
            member.resume(standing)
        # All processes have looked by now.
        self.accelerator.wait_for_everyone()
        if self.accelerator.is_main_process:
            checkpoint.set_aside(folder, last)

    def _sum_over_processes(self, values: Tensor) -> list[float]:
        if self.accelerator.num_processes == 1:
            return values.tolist()
        sums: list[float] = self.accelerator.reduce(values, "sum").tolist()
        return sums

    def _scaler_state(self) -> dict[str, Any]:
        scaler = self.accelerator.scaler
        return scaler.state_dict() if scaler is not None else {}


def _freeze_unused_(job: Job) -> None:
    """Freeze the weights that get no gradient (layers above the mix): other processes would wait for it."""
    rows = job.batches.epoch(0)[0][:1]
    compute_loss(job.model, job.objective, job.batches.collate(rows)).backward()
    for parameter in job.model.parameters():
        parameter.requires_grad_(parameter.grad is not None)
        parameter.grad = None
