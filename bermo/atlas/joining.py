"""What was measured of a method's seeds, or of a baseline, as one row beside the dense models."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bermo.atlas.baselines import Answers, Baseline, fit_baseline, num_bytes, num_parameters
from bermo.atlas.chain import Base, Chain, make_chain
from bermo.atlas.checks import Rows
from bermo.atlas.loyalty import loyalty
from bermo.atlas.measure import MEASURED, Measured, measure, read_measured, teacher_answers, teacher_logits
from bermo.atlas.methods import DENSE, METHODS
from bermo.atlas.rows import BASELINE_GROUP, Row
from bermo.atlas.speed import Speed
from bermo.atlas.students import Student, fit_student, read_student, training_seconds
from bermo.data.scoring import score
from bermo.files import write_sealed
from bermo.runs.command import shown
from bermo.runs.trained import open_trained
from bermo.ship.runtimes.texts import labelled

TIMED = ("milliseconds", "rows_per_second", "latency_gain", "speedup", "speedup_spread")
"""Fields of Speed that a row has too."""


def method_row(chains: Sequence[Chain], base: Base) -> Row:
    """Measure what the chains of one method ship, and put the seeds together."""
    method, known = chains[0].method, [measure(chain, base) for chain in chains]
    best = max(range(len(chains)), key=lambda index: known[index].score)
    return Row(
        name=method.name,
        group=method.group,
        summary=method.summary,
        folder=str(chains[best].shipped),
        commands=tuple(shown(job.words) for job in chains[0].jobs),
        published=method.published,
        scores=tuple(item.score for item in known),
        **_joined([chain.seed for chain in chains], known, base),
    )


def baseline_row(kind: Baseline, rows: Rows, seeds: Sequence[int], base: Base) -> Row:
    """Fit a baseline, unless that is done, and compare its answers with each dense model's."""
    folder, answers = base.out / kind.name / "model", open_baseline(kind, rows, base)
    known = [_measured(lambda: answers, rows, folder, seed, base) for seed in seeds]
    return Row(
        name=kind.name,
        group=BASELINE_GROUP,
        summary=kind.summary,
        folder=str(folder),
        published=kind.published,
        scores=(known[0].score,),
        **_joined(seeds, known, base),
    )


def student_row(kind: Student, rows: Rows, seeds: Sequence[int], base: Base) -> Row:
    """Train the student of each dense model, unless that is done, and compare their answers."""
    known, folders = [], [_student_folder(kind, seed, base) for seed in seeds]
    for seed, folder in zip(seeds, folders, strict=True):
        opened = partial(open_student, kind, rows, seed, base)
        measured = _measured(opened, rows, folder, seed, base)
        known.append(replace(measured, seconds=training_seconds(folder)))
    best = max(range(len(seeds)), key=lambda index: known[index].score)
    return Row(
        name=kind.name,
        group=BASELINE_GROUP,
        summary=kind.summary,
        folder=str(folders[best]),
        published=kind.published,
        scores=tuple(item.score for item in known),
        **_joined(seeds, known, base),
    )


def _measured(opened: Callable[[], Answers], rows: Rows, folder: Path, seed: int, base: Base) -> Measured:
    """Score what is no encoder, and compare its answers with those of the dense model of a seed, unless that
    is done: out/NAME/seed-N/measured.json.
    """
    path = base.out / folder.relative_to(base.out).parts[0] / f"seed-{seed}" / MEASURED
    if path.exists() and folder.exists():
        return read_measured(path)
    probabilities = opened()(rows.valid)
    dense = open_trained(base.out / DENSE / f"seed-{seed}" / "1-train")
    scores = score(labelled(dense, base.valid), list(probabilities))
    found = loyalty(probabilities, teacher_answers(seed, base))
    measured = Measured(
        metric=scores.main,
        score=scores.score,
        same_labels=found.labels,
        same_probabilities=found.probabilities,
        megabytes=num_bytes(folder) / 1e6,
        parameters=num_parameters(folder),
        nonzero=num_parameters(folder),
        seconds=0.0,
    )
    write_sealed(path, asdict(measured))
    return measured


def open_student(kind: Student, rows: Rows, seed: int, base: Base) -> Answers:
    """Return a student that answers, trained by the dense model of its seed first where it is not."""
    folder, encoder = _student_folder(kind, seed, base), base.spec.model.backbone
    if not folder.exists():
        taught = rows.taught
        teacher, device = teacher_logits(seed, taught, base), device_of_students(base)
        fit_student(kind, taught, teacher, encoder, seed, folder, device)
    return read_student(folder, encoder)


def device_of_students(base: Base) -> str:
    """Where students are trained: on a GPU, unless there is none or another device is asked for."""
    has_gpu = base.spec.train.device in ("auto", "cuda") and torch.cuda.is_available()
    return "cuda" if has_gpu else "cpu"


def _student_folder(kind: Student, seed: int, base: Base) -> Path:
    return base.out / kind.name / f"seed-{seed}" / "model"


def open_baseline(kind: Baseline, rows: Rows, base: Base) -> Answers:
    """Return a baseline that answers, fitted first where it is not."""
    folder, encoder = base.out / kind.name / "model", base.spec.model.backbone
    fit_baseline(kind, rows.train, rows.data.labels, encoder, folder)
    return kind.read(folder, encoder)


def with_speed(row: Row, speed: Speed) -> Row:
    """Return a row with what was timed."""
    return replace(row, **{name: getattr(speed, name) for name in TIMED})


def with_gpu(row: Row, speed: Speed) -> Row:
    """Return a row with what was timed on a GPU."""
    return replace(row, gpu_speedup=speed.speedup, gpu_latency_gain=speed.latency_gain)


def dense_of(seed: int, base: Base) -> Measured:
    """What the dense model of a seed gives."""
    return measure(make_chain(METHODS[DENSE], seed, base), base)


def _joined(seeds: Sequence[int], known: Sequence[Measured], base: Base) -> dict[str, Any]:
    pairs = [(item, dense_of(seed, base)) for seed, item in zip(seeds, known, strict=True)]
    return {
        "seeds": tuple(seeds),
        "kepts": tuple(share_kept(item.score, dense.score) for item, dense in pairs),
        "same_labels": _mean([100 * item.same_labels for item in known]),
        "same_probabilities": _mean([100 * item.same_probabilities for item in known]),
        "megabytes": _mean([item.megabytes for item in known]),
        "parameters": round(_mean([item.parameters for item in known])),
        "nonzero": round(_mean([item.nonzero for item in known])),
        "seconds": _mean([item.seconds for item in known]),
        "diverged": sum(item.diverged is not None for item in known),
    }


def share_kept(score: float, teacher: float) -> float:
    """The share of a teacher's score in percent; NaN where the teacher has learned nothing."""
    return 100 * score / teacher if teacher > 0 else math.nan


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
