"""What a training knows of each of its models: scores, the best of them, losses, and the file these go to.

A training has one model, or several of one shape that are trained together; each has its own folder.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bermo.files import write_text
from bermo.training.job import Fit, Job


@dataclass
class Standing:
    """The numbers of one model that go into each checkpoint."""

    best: dict[str, float] = field(default_factory=dict)
    last: dict[str, float] = field(default_factory=dict)
    best_step: int = 0
    stale_looks: int = 0
    dead_looks: int = 0
    last_loss: float | None = None


class Member:
    """One model of a training."""

    def __init__(self, job: Job, is_writing: bool) -> None:
        self.job, self.is_writing = job, is_writing
        self.metrics = job.folder / "metrics.jsonl"
        self.now = Standing()

    @property
    def is_finite(self) -> bool:
        """Whether the last logged loss, if there is one, is a number."""
        return self.now.last_loss is None or math.isfinite(self.now.last_loss)

    def look(self, step: int) -> dict[str, float]:
        """Score the validation set; keep the model if it is the best so far. Return what is to be logged."""
        now, job = self.now, self.job
        job.model.eval()
        now.last = dict(job.evaluate(job.model))
        now.dead_looks = now.dead_looks + 1 if job.is_collapsed() else 0
        row = {f"valid/{name}": value for name, value in now.last.items()}
        self.write(step, row)
        main = next(iter(now.last))
        if step >= job.best_from:
            if not now.best or now.last[main] > now.best[main]:
                now.best, now.best_step, now.stale_looks = now.last, step, 0
                if self.is_writing:
                    job.keep(job.model)
            else:
                now.stale_looks += 1
        return row

    def write(self, step: int, row: Mapping[str, float]) -> None:
        """Append a row to the metrics; what is no number becomes null."""
        if self.is_writing:
            finite = {k: v if math.isfinite(v) else None for k, v in row.items()}
            with self.metrics.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"step": step} | finite) + "\n")

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return asdict(self.now)

    def resume(self, step: int, state: Mapping[str, Any] | None) -> None:
        """Stand where a checkpoint stood, or at the start, and cut the metrics back to it."""
        if state is not None:
            self.now = Standing(**state)
        if self.is_writing:
            _cut(self.metrics, step)

    def fit(self, steps: int, seconds: float, num_rows: int) -> Fit:
        """How it ended."""
        now = self.now
        loss = math.nan if now.last_loss is None else now.last_loss
        return Fit(
            steps=steps,
            best_step=now.best_step,
            best=now.best,
            last=now.last,
            last_loss=loss,
            is_finite=self.is_finite,
            seconds=seconds,
            num_rows=num_rows,
        )


def _cut(path: Path, step: int) -> None:
    """Drop the rows after `step`, and a torn last one: the run is about to write them again."""
    kept = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if row["step"] <= step:
            kept.append(line + "\n")
    write_text(path, "".join(kept))
