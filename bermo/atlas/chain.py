"""A method and a seed -> the commands that make its model, each in a folder of its own.

    out/METHOD/seed-N/1-train/  2-shrink/  3-export/     the last holds what is shipped

A folder says whether its command is done, so whatever stopped an atlas, the same command goes on.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import assert_never

from bermo.atlas.methods import DENSE
from bermo.atlas.steps import Compress, Export, Method, Shrink, Step, Train
from bermo.jobs.job import Job, make_job
from bermo.nn.losses import even_map
from bermo.runs.model_files import MODEL
from bermo.spec import RunSpec, replace_in


@dataclass(frozen=True, kw_only=True)
class Base:
    """What all methods share: the dense run's spec, how deep its encoder is, and the rows that score."""

    spec: RunSpec
    num_layers: int
    out: Path
    valid: Path
    """The validation rows as a file."""
    judged: Path
    """Some of them, by which an export chooses its form."""
    train: Path
    """The training rows as a file, in the same columns."""
    texts: Path
    """The training texts, one a line: both of a pair."""
    unlabelled: str | None = None
    """A file of texts without labels that taught models learn from too."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Chain:
    """The jobs of a method and a seed, in order."""

    method: Method
    seed: int
    jobs: tuple[Job, ...]

    @property
    def folder(self) -> Path:
        """Where its stages are."""
        return self.jobs[0].folder.parent

    @property
    def shipped(self) -> Path:
        """The folder of the model that is shipped."""
        return _model_of(self.method.steps[-1], self.jobs[-1].folder)

    @property
    def training(self) -> tuple[Job, ...]:
        """Its jobs up to the last that trains."""
        trains = [index for index, step in enumerate(self.method.steps) if isinstance(step, Train)]
        return self.jobs[: trains[-1] + 1] if trains else ()

    @property
    def changes_model(self) -> bool:
        """Whether its torch model is another than the dense one."""
        return any(not isinstance(step, Export) for step in self.method.steps)

    @property
    def trained(self) -> list[Path]:
        """The folders of its trainings."""
        pairs = zip(self.method.steps, self.jobs, strict=True)
        return [job.folder for step, job in pairs if isinstance(step, Train)]


def make_chain(method: Method, seed: int, base: Base) -> Chain:
    """Return the jobs that make a method's model for one seed."""
    dense = base.out / DENSE / f"seed-{seed}" / "1-train"
    source, jobs = dense, list[Job]()
    before = () if method.name == DENSE else (f"{DENSE}/seed-{seed}/1-train",)
    for number, step in enumerate(method.steps, start=1):
        name = f"{method.name}/seed-{seed}/{number}-{type(step).__name__.lower()}"
        jobs.append(replace(_job(step, name, seed, source, dense, base), needs=before))
        source, before = _model_of(step, base.out / name), (name,)
        if isinstance(step, Train) and _goes_on(method.steps[number:]):
            source /= MODEL
    return Chain(method=method, seed=seed, jobs=tuple(jobs))


def torch_model(chain: Chain, base: Base) -> Path:
    """The folder of the model before it was exported."""
    pairs = zip(chain.method.steps, chain.jobs, strict=True)
    made = [job.folder for step, job in pairs if isinstance(step, Train | Shrink)]
    if isinstance(chain.method.steps[-1], Compress):
        made.append(chain.jobs[-1].folder / "torch")
    return made[-1] if made else base.out / DENSE / f"seed-{chain.seed}" / "1-train"


def train_spec(step: Train, seed: int, teacher: Path, base: Base, source: Path | None = None) -> RunSpec:
    """Return the spec of a training step; `source` is the model that the step before it made."""
    spec = replace(base.spec, seeds=(seed,))
    count = max(1, round(step.layers * base.num_layers))
    if step.is_taught:
        # What was chosen for the dense model's head and layers, a student has from its teacher.
        own = {"head": None, "pooling": None, "first_layers": None, "keep_layers": None, "keep_by": None}
        few = {"contrast": None, "average": None}
        spec = replace_in(spec, model=own, train=few, distill={"teacher": str(teacher)})
        # The layers of theseus learn from the labels alone.
        if step.which != "theseus":
            spec = replace_in(spec, distill={"unlabelled": base.unlabelled})
    if step.goes_on:
        spec = replace_in(spec, model={"backbone": str(source)})
        return replace_in(spec, **step.changes)
    if step.tied is not None:
        spec = replace_in(spec, method={"tie_layers": _divisor(count, step.tied * count)})
    match step.which:
        case "theseus":
            spec = replace_in(spec, method={"theseus": count})
        case which if step.is_taught:
            layers = even_map(count, base.num_layers) if which == "even" else tuple(range(1, count + 1))
            spec = replace_in(spec, distill={"student_layers": layers})
        case which if count < base.num_layers:
            spec = replace_in(spec, model={"keep_layers": count, "keep_by": which})
    return replace_in(spec, **step.changes)


def _goes_on(steps: Sequence[Step]) -> bool:
    """Tell whether the next step trains the model that was made so far."""
    return bool(steps) and isinstance(steps[0], Train) and steps[0].goes_on


def _divisor(count: int, most: float) -> int:
    """Return the largest number up to `most` that divides `count`."""
    return max(number for number in range(1, count + 1) if count % number == 0 and number <= max(1, most))


def _job(step: Step, name: str, seed: int, source: Path, dense: Path, base: Base) -> Job:
    folder = base.out / name
    match step:
        case Train():
            return make_job(name, train_spec(step, seed, dense, base, source), folder)
        case Shrink():
            words = ["shrink", str(source), "--out", str(folder)]
            words += [] if step.fisher is None else ["--fisher", "--density", f"{step.fisher:g}"]
            words += ["--vocabulary", str(base.texts)] if step.cuts_words else []
            words += [] if step.low_rank is None else ["--low-rank", f"{step.low_rank:g}"]
            words += [] if step.embedding_rank is None else ["--embedding-rank", f"{step.embedding_rank:g}"]
            return Job(name=name, folder=folder, words=tuple(words), makes=folder)
        case Export():
            # The table says what a form loses, however much that is.
            judged = ["--data", str(base.judged), "--max-loss", "100"]
            words = ["export", str(source), "--to", step.to, *judged, "--out", str(folder)]
            words += ["--calibrate", str(base.train)] if step.is_calibrated else []
            words += ["--keep-fp32", str(step.keep_fp32)] if step.keep_fp32 else []
            words += [] if step.values is None else ["--values", step.values]
            return Job(name=name, folder=folder, words=tuple(words), makes=folder)
        case Compress():
            words = ["compress", str(source), "--speedup", f"{step.speedup:g}", "--out", str(folder)]
            words += [] if base.unlabelled is None else ["--unlabelled", base.unlabelled]
            return Job(name=name, folder=folder, words=tuple(words), makes=folder / "result.json")
        case _:
            assert_never(step)


def _model_of(step: Step, folder: Path) -> Path:
    return folder / "model" if isinstance(step, Compress) else folder
