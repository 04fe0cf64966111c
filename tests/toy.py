"""A toy job for the loop: a small network with dropout on random rows, in plain torch."""

import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bermo.spec import TrainSpec
from bermo.training.devices import make_accelerator
from bermo.training.job import Batch, Fit, Job, ModelCall
from bermo.training.loop import fit
from bermo.training.schedule import rate_groups

NUM_ROWS = 50
SETTINGS = TrainSpec(
    epochs=3,
    batch_size=8,
    lr=1e-2,
    mix_lr=3e-2,
    weight_decay=0.1,
    checkpoint_minutes=1e9,
    device="cpu",
)


class ToyModel(nn.Module):
    """Two linear layers with dropout between them."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.first = nn.Linear(4, 16)
        self.dropout = nn.Dropout(dropout)
        self.second = nn.Linear(16, 3)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.dropout(torch.tanh(self.first(x))))


class ToyBatches:
    """Random rows, shuffled by the epoch's number."""

    def __init__(self, batch_size: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(NUM_ROWS, 4, generator=generator)
        self.labels = (self.x[:, 0] > 0).long() + (self.x[:, 1] > 0).long()
        self.batch_size = batch_size

    def epoch(self, epoch: int) -> list[np.ndarray]:
        order = np.random.default_rng(epoch).permutation(NUM_ROWS)
        return [order[k : k + self.batch_size] for k in range(0, NUM_ROWS, self.batch_size)]

    def collate(self, rows: np.ndarray) -> Batch:
        return {"x": self.x[rows], "labels": self.labels[rows]}


class ToyLoss:
    """Cross-entropy; rows with label 2 do not count, so that parts of a batch weigh differently."""

    call = ModelCall(only_for_loss=frozenset({"labels"}))

    def count(self, batch: Batch) -> int:
        return int((batch["labels"] != 2).sum())

    def __call__(self, outputs: Tensor, batch: Batch) -> Tensor:
        return nn.functional.cross_entropy(outputs, batch["labels"], ignore_index=2)


def toy_job(folder: Path, settings: TrainSpec, *, dropout: float = 0.1, **changes: Any) -> Job:
    """A job on the toy model; `changes` replace fields of the job."""
    torch.manual_seed(0)
    model = ToyModel(dropout)
    batches = ToyBatches(settings.batch_size)

    def evaluate(current: nn.Module) -> Mapping[str, float]:
        with torch.no_grad():
            hits = current(batches.x).argmax(-1) == batches.labels
        return {"accuracy": 100 * hits.double().mean().item()}

    keep: Callable[[nn.Module], None] = lambda current: None  # noqa: E731
    fields: dict[str, Any] = {
        "model": model,
        "batches": batches,
        "objective": ToyLoss(),
        "groups": rate_groups(model, settings, [(model.first.parameters(), settings.mix_lr)]),
        "evaluate": evaluate,
        "keep": keep,
        "folder": folder,
        "seed": 7,
        "identity": "toy",
    }
    folder.mkdir(parents=True, exist_ok=True)
    return Job(**(fields | changes))


def run(job: Job, settings: TrainSpec = SETTINGS) -> Fit:
    """Train a toy job on the CPU."""
    return fit(job, settings, make_accelerator(settings, job.folder))


def weights(job: Job) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in job.model.parameters()])


class StopAt:
    """A hook that sends this process a signal before a step, as a user or a scheduler would."""

    def __init__(self, step: int, number: int = signal.SIGINT) -> None:
        self.stop_step, self.number = step, number

    def begin(self, optimizer: torch.optim.Optimizer) -> None: ...

    def plan(self, step: int) -> None:
        if step == self.stop_step:
            os.kill(os.getpid(), self.number)

    def apply(self) -> None: ...

    def generators(self) -> list[torch.Generator]:
        return []

    def metrics(self) -> dict[str, float]:
        return {}
