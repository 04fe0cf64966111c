"""How long a pretraining takes: the loop's settings, and the number of steps, given or found by a trial."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from bermo.files import read_sealed, reading, write_sealed
from bermo.methods.pretraining.build import Work, build_model
from bermo.methods.pretraining.teach import make_loss
from bermo.pace_spec import DEFAULT_STEPS
from bermo.pretrain_spec import PretrainSpec
from bermo.spec import TrainSpec
from bermo.training.job import Job
from bermo.training.loop import fit
from bermo.training.schedule import rate_groups

# Short trainings; the difference of the last two leaves the cost of starting out. On a GPU the first of three
# compiles kernels, and capturing a step takes as long as hundreds of them.
TRIAL_STEPS = {"cpu": (10, 30), "cuda": (10, 20, 220)}


def train_spec(spec: PretrainSpec, epochs: float, evaluations: int) -> TrainSpec:
    """Return the loop's settings for so many passes over the text."""
    pace = spec.pace
    return TrainSpec(
        epochs=epochs,
        evaluations=evaluations,
        batch_size=pace.batch_size,
        accumulation=pace.accumulation,
        lr=pace.peak_lr,
        weight_decay=pace.weight_decay,
        warmup=pace.warmup,
        clip=pace.clip,
        precision=pace.precision,
        device=pace.device,
        checkpoint_minutes=pace.checkpoint_minutes,
        tracker=pace.tracker,
    )


def step_settings(work: Work, steps: int) -> TrainSpec:
    """Return the loop's settings for so many steps; half a step less makes its rounding up exact."""
    per_epoch = len(work.batches.epoch(0))
    evaluations = max(1, round(work.spec.pace.evaluations * per_epoch / steps))
    return train_spec(work.spec, (steps - 0.5) / per_epoch, evaluations)


def plan_steps(work: Work) -> int:
    """Return the number of steps: the one given, or the one that a trial finds to fill the minutes."""
    pace, path, accelerator = work.spec.pace, work.out / "plan.json", work.accelerator
    if pace.minutes is None:
        return pace.steps or DEFAULT_STEPS
    if not path.exists():
        work.display.tell("Measuring the speed of a step …")
        lengths = TRIAL_STEPS.get(accelerator.device.type, TRIAL_STEPS["cpu"])
        seconds = [_trial(work, work.out / ".trial", n) for n in lengths]
        a_step = seconds_a_step(lengths, seconds)
        steps = max(1, int(60 * pace.minutes / a_step))
        if accelerator.is_main_process:
            write_sealed(path, {"steps": steps, "seconds_a_step": a_step})
        accelerator.wait_for_everyone()
    with reading(path, "Delete it, and the same command tries again how many steps fit."):
        return int(read_sealed(path)["steps"])


def seconds_a_step(lengths: Sequence[int], seconds: Sequence[float]) -> float:
    """Return the time of one step from trials of so many steps, of which the last two count."""
    *_, (few, short), (many, long) = zip(lengths, seconds, strict=True)
    # On a busy machine the shorter trial may take longer; then the whole of the other one counts.
    return (long - short) / (many - few) if long > short else long / many


def _trial(work: Work, folder: Path, steps: int) -> float:
    """Train a throw-away model for a few steps, and return the seconds they took."""
    accelerator = work.accelerator
    if accelerator.is_main_process:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    accelerator.wait_for_everyone()
    model = build_model(work.spec, work.corpus, work.teacher)
    settings = train_spec(work.spec, (steps - 0.5) / len(work.batches.epoch(0)), 1)
    job = Job(
        model=model,
        batches=work.batches,
        objective=make_loss(work.spec.objective, work.teacher),
        groups=rate_groups(model, settings),
        evaluate=lambda current: {"none": 0.0},
        keep=lambda current: None,
        folder=folder,
        seed=work.spec.seed,
        optimizer=work.spec.pace.optimizer,
        identity="trial",
    )
    seconds = fit(job, settings, accelerator).seconds
    accelerator.free_memory()
    if accelerator.is_main_process:
        shutil.rmtree(folder, ignore_errors=True)
    return seconds
