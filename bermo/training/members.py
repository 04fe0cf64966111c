"""What a training knows of each of its models: scores, losses, and the file that they are written to.

A training has one model, or several of one shape that are stacked as one; each has its own folder.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from bermo.runs.rows import METRICS_FILE, append_row, write_rows
from bermo.training.job import Fit, Job


@dataclass
class Standing:
    """The numbers of one model that go into each checkpoint."""

    best: dict[str, float] = field(default_factory=dict)
    last: dict[str, float] = field(default_factory=dict)
    start: dict[str, float] = field(default_factory=dict)
    highest: float | None = None
    best_value: float | None = None
    """What the best evaluation counts: its main score, less its handicap."""
    best_step: int = 0
    stale_evaluations: int = 0
    """Evaluations since the best one."""
    dead_evaluations: int = 0
    """The latest evaluations in a row that found one answer to everything."""
    last_loss: float | None = None
    rows: list[dict[str, float | None]] = field(default_factory=list)
    """The rows of metrics.jsonl, which a resumed training writes again, whatever befell the file."""


class Member:
    """One model of a training."""

    def __init__(self, job: Job, is_writing: bool) -> None:
        self.job, self.is_writing = job, is_writing
        self.metrics = job.folder / METRICS_FILE
        self.now = Standing()

    @property
    def is_finite(self) -> bool:
        """Tell whether the last logged loss, if there is one, is a number."""
        return self.now.last_loss is None or math.isfinite(self.now.last_loss)

    def evaluate(self, step: int) -> dict[str, float]:
        """Score the validation set, keep the model if it is the best so far, and return what to log."""
        now, job = self.now, self.job
        job.model.eval()
        now.last = dict(job.evaluate(job.model))
        is_dead = step > 0 and job.is_collapsed()
        now.dead_evaluations = now.dead_evaluations + 1 if is_dead else 0
        row = {f"valid/{name}": value for name, value in now.last.items()}
        self.write(step, {**row, **job.describe()})
        main = next(iter(now.last))
        now.highest = max(now.last[main], now.last[main] if now.highest is None else now.highest)
        if step == 0:
            now.start = now.last
        if step >= job.best_from:
            value = now.last[main] - job.handicap()
            if now.best_value is None or value > now.best_value:
                now.best_value = value
                now.best, now.best_step, now.stale_evaluations = now.last, step, 0
                if self.is_writing:
                    job.keep(job.model)
            else:
                now.stale_evaluations += 1
        return row

    def write(self, step: int, row: Mapping[str, float]) -> None:
        """Append a row to the metrics; a value that is infinite or not a number becomes null."""
        if self.is_writing:
            finite = {k: v if math.isfinite(v) else None for k, v in row.items()}
            self.now.rows.append({"step": step} | finite)
            append_row(self.metrics, self.now.rows[-1])

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        return asdict(self.now)

    def resume(self, state: Mapping[str, Any] | None) -> None:
        """Go on from a checkpoint's numbers, or from the start; the metrics are then those of that time."""
        if state is not None:
            self.now = Standing(**state)
            if self.now.best and self.now.best_value is None:
                # A checkpoint of a version in which all evaluations counted alike.
                self.now.best_value = next(iter(self.now.best.values()))
        if self.is_writing:
            write_rows(self.metrics, self.now.rows)

    def fit(self, steps: int, seconds: float, num_rows: int) -> Fit:
        """Return how the training of this model ended."""
        now = self.now
        loss = math.nan if now.last_loss is None else now.last_loss
        return Fit(
            steps=steps,
            best_step=now.best_step,
            best=now.best,
            last=now.last,
            start=now.start,
            highest=now.highest,
            last_loss=loss,
            is_finite=self.is_finite,
            seconds=seconds,
            num_rows=num_rows,
            described=self._described(),
        )

    def _described(self) -> dict[str, float | None]:
        """Return the row of the best evaluation: at its step there may be a row of losses too."""
        now = self.now
        names = {f"valid/{name}" for name in now.best}
        rows = (row for row in now.rows if row["step"] == now.best_step and names <= row.keys())
        return next(rows, {}) if names else {}
