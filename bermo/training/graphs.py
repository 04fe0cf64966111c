"""Whole steps as CUDA graphs, captured once for each shape of batch and replayed in one launch."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from bermo.encoders.position_bias import set_position_bias_
from bermo.nn.fast.available import kernel_fault
from bermo.spec import TrainSpec
from bermo.training.gradient_gap import LARGEST_GAP
from bermo.training.job import Batch
from bermo.training.remembered import Remembered
from bermo.training.step import Step, WeightedBatch, to_device

TRIES = 16
"""Batches of a shape that may say nothing of the kernels before these are left out for it."""
Decisions = dict[str, int]
"""Whether steps are captured on a GPU (by its name), and fused for a shape of batch (by both); and how many
batches of a shape could not tell.
"""


class GraphedStep:
    """Replays whole steps; a smaller last batch, and what cannot be captured, takes the plain step.

    Kernels round otherwise than torch does. What is decided about them is kept in `decisions`, with which a
    resumed run goes on, so that it ends in the same bits.
    """

    def __init__(
        self, step: Step, num_rows: int, tell: Callable[[str], None], decisions: Decisions | None = None
    ) -> None:
        self.step, self.num_rows, self.tell = step, num_rows, tell
        self.decisions = {} if decisions is None else decisions
        self.graphs: dict[Any, tuple[Batch, torch.cuda.CUDAGraph]] = {}
        self.pool = torch.cuda.graph_pool_handle()
        # One for all shapes: cuBLAS keeps a workspace for each stream that it was ever called on.
        self.side = torch.cuda.Stream(step.accelerator.device)
        self.gpu = torch.cuda.get_device_name(step.accelerator.device)
        self.can_capture = self.decisions.get(self.gpu, True)
        self.remembered = Remembered(step.job.model, self.gpu)
        set_position_bias_(step.model)
        step.start_()

    def __call__(self, batches: Sequence[WeightedBatch], prepare: Callable[[], None]) -> None:
        """Do one step: copy the batch into the graph's inputs and replay it."""
        first, *others = batches
        batch = first.batch
        is_usual = (
            len(next(iter(batch.values()))) == self.num_rows and first.share == 1.0 and first.has_labels
        )
        if others or not is_usual or not self.can_capture:
            self.step(batches, prepare)
            return
        key = tuple((name, tuple(tensor.shape)) for name, tensor in batch.items())
        if key not in self.graphs:
            prepare()
            try:
                captured = self._capture(batch)
            except (RuntimeError, NotImplementedError) as error:
                self._give_up(error)
                captured = None
            if captured is None:
                self.step(batches, prepare)
                return
            self.graphs[key] = captured
        inputs, graph = self.graphs[key]
        for name, tensor in batch.items():
            inputs[name].copy_(tensor, non_blocking=True)
        # Also after a capture, whose trial run has drawn random numbers.
        prepare()
        graph.replay()

    def _capture(self, batch: Batch) -> tuple[Batch, torch.cuda.CUDAGraph] | None:
        """Capture a step for batches of this shape; None if this one cannot tell whether to fuse it."""
        inputs = to_device(batch, self.step.accelerator.device)
        batches = [WeightedBatch(inputs, 1.0, True)]
        is_right = self.step.fusion is not None and self._decide(batches)
        if is_right is None:
            return None
        self.step.is_fused = is_right
        try:
            return inputs, self._capture_run(batches)
        finally:
            self.step.is_fused = False

    def _decide(self, batches: Sequence[WeightedBatch]) -> bool | None:
        """Tell whether batches of this shape are fused: as was decided earlier in this run, or found right by
        an earlier one on this machine, or by a comparison; None if that could not tell.
        """
        shapes = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in batches[0].batch.items())
        name = f"{self.gpu}: {shapes}"
        if name in self.decisions:
            return bool(self.decisions[name])
        unclear = f"{name}: unclear batches"
        tries = self.decisions.get(unclear, 0) + 1
        is_known = self.remembered.has(shapes)
        is_right = is_known or self._is_right(batches, tries == TRIES)
        if is_right is None:
            self.decisions[unclear] = tries
            return None
        self.decisions[name] = is_right
        # Not where the first batch was unclear: the same run must take the same steps again.
        if is_right and not is_known and tries == 1:
            self.remembered.add(shapes)
        return is_right

    def _is_right(self, batches: Sequence[WeightedBatch], is_last: bool) -> bool | None:
        """Tell whether the fused kernels compute batches of this shape right; if not, tell the user.

        None if rounding moves these gradients too far to judge by them, and another batch may be tried.
        """
        from triton.errors import TritonError

        try:
            gap, rounding = self.step.compare(batches)
            if gap <= LARGEST_GAP:
                return True
            if rounding > LARGEST_GAP / 2 and not is_last:
                return None
            fault = f"are off by {gap:.0%}" + (f", rounding alone by {rounding:.0%}" if rounding else "")
        except (RuntimeError, TritonError) as error:
            # The kernel could not be built, or there is no memory left to compare.
            fault = "cannot run (" + str(error).strip().partition("\n")[0] + ")"
        shape = tuple(next(iter(batches[0].batch.values())).shape)
        self.tell(
            f"On this GPU the fused kernels {fault} for batches of {shape}: these are computed without them."
        )
        return False

    def _capture_run(self, batches: Sequence[WeightedBatch]) -> torch.cuda.CUDAGraph:
        self.side.wait_stream(torch.cuda.current_stream())
        # Libraries set themselves up in the first run of a shape, which cannot be captured.
        with torch.cuda.stream(self.side):
            self.step.run(batches, is_update=False)
        torch.cuda.current_stream().wait_stream(self.side)
        graph = torch.cuda.CUDAGraph()
        for hook in self.step.job.hooks:
            for generator in hook.generators():
                graph.register_generator_state(generator)
        with torch.cuda.graph(graph, pool=self.pool):
            self.step.run(batches, is_update=True)
        return graph

    def _give_up(self, error: Exception) -> None:
        self.can_capture = self.decisions[self.gpu] = False
        self.step.optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        reason = str(error).strip().partition("\n")[0]
        self.tell(f"The step cannot be captured as a CUDA graph ({reason}): going on with plain steps.")


def make_step(
    step: Step,
    settings: TrainSpec,
    num_rows: int,
    tell: Callable[[str], None],
    decisions: Decisions | None = None,
) -> Step | GraphedStep:
    """Return the step as CUDA graphs where that works, else the plain one; on a GPU, tell the user why."""
    if step.accelerator.device.type != "cuda" or settings.fast == "off":
        return step
    if why := _why_not(step, settings):
        tell(f"Steps are not captured as CUDA graphs {why}: going on with plain steps.")
        return step
    if fault := kernel_fault():
        tell(f"No kernel of ours can run here ({fault}): going on with torch's.")
    return GraphedStep(step, num_rows, tell, decisions)


def _why_not(step: Step, settings: TrainSpec) -> str | None:
    if step.accelerator.num_processes > 1:
        return "in several processes"
    if step.accelerator.scaler is not None:
        return "in fp16, whose scale is read in every step"
    return "with accumulated batches" if settings.accumulation > 1 else None
