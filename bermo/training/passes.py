"""What a process computes of a step: its rows of each accumulation pass, and the labels in them."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from accelerate import Accelerator

from bermo.training.job import Batch, Job
from bermo.training.noise import OwnRows, can_draw_by_row


class Pass(NamedTuple):
    """A process's batch of an accumulation pass, its number of labels, and which rows of the pass it has."""

    batch: Batch
    num_labels: int
    rows: OwnRows | None
    """None where noise is not drawn by row."""


@dataclass(frozen=True)
class StepPasses:
    """One process's passes of a step, and the rows of the step over all processes."""

    passes: list[Pass]
    num_rows: int

    @property
    def num_labels(self) -> int:
        return sum(one.num_labels for one in self.passes)


class Passes:
    """Divides the rows of a step into passes, and those of a pass between processes."""

    def __init__(self, job: Job, num_passes: int, accelerator: Accelerator) -> None:
        self.job, self.num_passes = job, num_passes
        self.device, self.rank = accelerator.device, accelerator.process_index
        self.num_processes = accelerator.num_processes
        self.draws_by_row = self.num_processes > 1 and can_draw_by_row(job.model, self.device)

    def make(self, rows: np.ndarray) -> StepPasses:
        """Collate this process's part of the rows of a step."""
        chunks = [chunk for chunk in np.array_split(rows, self.num_passes) if len(chunk)]
        passes = [one for one in map(self._make_pass, chunks) if one is not None]
        # Every process must take part in the step: with nothing to learn from, it computes with weight 0.
        passes = passes or [self._part(self.job.batches.collate(rows[:1]), [], 1)]
        if self.device.type == "cuda":
            passes = [one._replace(batch={k: v.pin_memory() for k, v in one.batch.items()}) for one in passes]
        return StepPasses(passes, len(rows))

    def _make_pass(self, chunk: np.ndarray) -> Pass | None:
        """Collate this process's rows of a pass, padded as all rows are; None where no row has a label."""
        whole = self.job.batches.collate(chunk)
        count = self.job.objective.count(whole)
        if not count:
            return None
        if self.num_processes == 1:
            return Pass(whole, count, None)
        places = range(self.rank, len(chunk), self.num_processes)
        return self._part(whole, list(places), len(chunk))

    def _part(self, whole: Batch, places: list[int], num_all: int) -> Pass:
        """Take the rows at these places; without any, the first counts nothing."""
        mine = {name: tensor[places or [0]] for name, tensor in whole.items()}
        count = self.job.objective.count(mine) if places else 0
        if not self.draws_by_row:
            return Pass(mine, count, None)
        ids = mine.get("input_ids")
        num_texts = ids.shape[1] if ids is not None and ids.ndim == 3 else 1
        return Pass(mine, count, OwnRows(torch.tensor(places or [0]), num_all, num_texts))
