"""Fine-tuning: a spec -> data, model, objective -> the loop -> a result for each seed and over all.

The plain encoder is the mix "none": the same head, the same loop, the fair baseline.
"""

import math
import os
import shutil
from collections.abc import Sequence, Set
from dataclasses import replace
from pathlib import Path

import numpy as np
from accelerate import Accelerator
from torch import nn

from bermo.data.scoring import TaskScores, score
from bermo.data.tasks import TaskData
from bermo.encoders.trust import not_finite
from bermo.errors import BermoError
from bermo.fields import check
from bermo.files import copy_folder, restore, whole_folder
from bermo.methods.assemble import assemble, save_model, saved_form
from bermo.methods.checks import check_methods
from bermo.methods.evaluate import eval_rows, predict
from bermo.methods.head import choose_reading
from bermo.methods.measure import (
    LayerGradients,
    device_name,
    peak_memory,
    reset_peak_memory,
    versions,
)
from bermo.methods.mix_schedule import end_mix_
from bermo.methods.plain_steps import needs_plain_steps
from bermo.methods.prepare import Prepared, notes, prepare
from bermo.methods.prune import kept_density, make_schedule, missed_density
from bermo.methods.shares import kept_shares, mix_shares
from bermo.methods.thresholds import best_shift, say_thresholds
from bermo.methods.together import join_jobs, predict_together
from bermo.methods.verdict import advice, handicap, judge, one_answer
from bermo.models.tasks import BermoPreTrainedModel
from bermo.nn.fast.available import look_for_kernels_
from bermo.progress import Display, Quiet
from bermo.pruning.fold import count
from bermo.runs.folder import check_free, claim, identity, locked, release, with_choices
from bermo.runs.results import RunResult, SeedResult, read_seed, write_result
from bermo.runs.statistics import summarise
from bermo.spec import RunSpec
from bermo.sums import check_sums, ensure_sums
from bermo.training.average import averaged
from bermo.training.devices import make_accelerator
from bermo.training.job import Fit, Job
from bermo.training.loop import fit_members
from bermo.values import normal

GROUP = "together"
FAILED = {"diverged": "diverged", "undertrained": "is undertrained"}


def finetune(
    spec: RunSpec, out: str | Path, display: Display | None = None, data: TaskData | None = None
) -> RunResult:
    """Train one model a seed in `out`, going on where an earlier call stopped; return all results.

    `data` are rows in memory (`bermo.data.load.task_of_tables`) in place of the files that the spec names.

        result = bermo.finetune(bermo.RunSpec(data=bermo.DataSpec(train="my.csv")), "runs/mine")
    """
    if not isinstance(spec, RunSpec):
        raise BermoError(f"The spec is {spec!r}, but a bermo.RunSpec was expected.")
    display, out, spec = display or Quiet(), Path(out), check(normal(spec))
    check_methods(spec)
    check_free(out, spec)
    spec = with_choices(out, spec)
    accelerator = make_accelerator(spec.train, out, display.tell)
    if accelerator.device.type == "cuda" and accelerator.num_processes == 1 and spec.train.fast != "off":
        look_for_kernels_(accelerator.device)
    with accelerator.main_process_first():
        prepared = prepare(spec, display if accelerator.is_main_process else Quiet(), data)
    prepared = choose_reading(prepared, accelerator)
    if spec.train.together > 1 and accelerator.num_processes > 1:
        raise BermoError("Seeds are trained together by one process. Leave --together out.")
    if spec.method.has_passes and accelerator.num_processes > 1:
        raise BermoError(
            "Several passes a step are made by one process. Leave --rdrop and --adversarial out."
        )
    if spec.method.keep_tokens is not None and accelerator.num_processes > 1:
        raise BermoError("Tokens are left out by one process. Leave --keep-tokens out, or use one GPU.")
    if spec.prune.method != "none":
        # Raises an error where the training is too short for the schedule.
        make_schedule(spec.prune, prepared.num_steps)
    if accelerator.is_main_process:
        for note in notes(prepared):
            display.tell(note)
        with locked(out):
            is_new = claim(out, prepared.spec, prepared.digest)
            try:
                return _all_seeds(prepared, out, display, accelerator)
            except BermoError:
                # Raised while the model was made, such as by blocks that do not fit.
                if is_new:
                    release(out)
                raise
    return _all_seeds(prepared, out, Quiet(), accelerator)


def _all_seeds(prepared: Prepared, out: Path, display: Display, accelerator: Accelerator) -> RunResult:
    seeds = prepared.spec.seeds
    results = {seed: read_seed(out / f"seed-{seed}") for seed in seeds}
    missing = [seed for seed in seeds if results[seed] is None]
    if accelerator.is_main_process:
        _clear(out, set(seeds) - set(missing))
        if before := ", ".join(str(seed) for seed in seeds if seed not in missing):
            display.tell(f"Trained before, and not again: seed {before} of {out}.")
    for group in _groups(out, seeds, missing, prepared.spec.train.together):
        if len(seeds) > 1:
            names = ", ".join(map(str, group))
            display.tell(f"Seed {names} ({seeds.index(group[0]) + 1} of {len(seeds)})")
        for done in _train(prepared, out, group, display, accelerator):
            results[done.seed] = done
    finished = [result for result in results.values() if result is not None]
    for done in finished:
        if kind := done.failed:
            said = advice(prepared.spec, prepared.facts, kind)
            display.tell(f"Seed {done.seed} {FAILED[kind]}: {done.reason}. {said}")
    result = summarise(finished)
    if accelerator.is_main_process:
        _publish(out, finished)
        write_result(out / "result.json", result)
    accelerator.wait_for_everyone()
    return result


def _clear(out: Path, finished: Set[int]) -> None:
    """Remove what a command that was killed once it had the results, or could not remove it, has left."""
    for seed in finished:
        restore(out / f"seed-{seed}" / "model")
        shutil.rmtree(out / f"seed-{seed}" / "checkpoints", ignore_errors=True)
    for folder, group in _begun(out).items():
        if set(group) <= finished:
            shutil.rmtree(folder, ignore_errors=True)


def _begun(out: Path) -> dict[Path, list[int]]:
    """Return the folders of seeds that are trained together, and which seeds each is for."""
    return {path: [int(seed) for seed in path.name.split("-")[1:]] for path in out.glob(f"{GROUP}-*")}


def _groups(out: Path, seeds: Sequence[int], missing: Sequence[int], size: int) -> list[list[int]]:
    """Return the seeds that are trained together: groups that an earlier call began, then new ones."""
    begun = [group for group in _begun(out).values() if set(group) <= set(seeds)]
    left = [seed for seed in missing if not any(seed in group for group in begun)]
    return begun + [left[start : start + size] for start in range(0, len(left), size)]


def _train(
    prepared: Prepared, out: Path, seeds: list[int], display: Display, accelerator: Accelerator
) -> list[SeedResult]:
    """Train one seed, or several together, and write their results."""
    reset_peak_memory()
    made = [_Seed(prepared, out / f"seed-{s}", s, display, accelerator) for s in seeds]
    if len(made) == 1:
        job = made[0].job
    else:
        # Moved before they are stacked: afterwards their weights are views of the stack's.
        for one in made:
            one.job.model.to(accelerator.device)
        folder = out / "-".join([GROUP, *map(str, seeds)])
        folder.mkdir(exist_ok=True)
        job = join_jobs([one.job for one in made], prepared.learned.lengths, folder)
        job = replace(job, before_evaluation=lambda: _ask_all(job.model, made))
    train = prepared.spec.train
    if option := needs_plain_steps(prepared.spec, made[0].model):
        if accelerator.device.type == "cuda" and train.fast != "off":
            display.tell(f"A captured step cannot follow {option}: going on with plain steps.")
        train = replace(train, fast="off")
    fits = fit_members(job, train, accelerator)
    results = [one.result(ended, len(made)) for one, ended in zip(made, fits, strict=True)]
    if accelerator.is_main_process:
        for one, result in zip(made, results, strict=True):
            write_result(one.job.folder / "result.json", result)
        done = job.folder / "checkpoints" if len(made) == 1 else job.folder
        shutil.rmtree(done, ignore_errors=True)
    accelerator.free_memory()
    return results


class _Seed:
    """One seed's training: its job, and the scores of its last evaluation."""

    def __init__(
        self,
        prepared: Prepared,
        folder: Path,
        seed: int,
        display: Display,
        accelerator: Accelerator,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        restore(folder / "model")
        check_sums(folder / "model", f"Delete {folder}, and the same command trains this seed from the start")
        self.prepared, self.accelerator = prepared, accelerator
        self.latest: TaskScores | None = None
        self.answers: list[np.ndarray] | None = None
        self.shift_C: np.ndarray | None = None
        self.kept_shift_C: np.ndarray | None = None
        parts = assemble(prepared, seed, display, accelerator)
        self.model, self.padding_share = parts.model, parts.padding_share
        self.job = Job(
            model=parts.model,
            batches=parts.batches,
            objective=parts.objective,
            groups=parts.groups,
            hooks=parts.hooks,
            loss_of=parts.loss_of,
            has_inner_gradients=prepared.spec.method.adversarial is not None,
            watch=LayerGradients(parts.model),
            masked=parts.masked,
            best_from=parts.best_from,
            scores_start=prepared.spec.model.head == "probe",
            evaluate=self.evaluate,
            is_collapsed=self.is_collapsed,
            handicap=lambda: handicap(prepared, self.latest),
            describe=lambda: mix_shares(self.model),
            keep=self.keep,
            folder=folder,
            seed=seed,
            identity=identity(prepared.spec, prepared.digest, seed, folder.parent),
            display=display,
        )

    def evaluate(self, current: nn.Module) -> dict[str, float]:
        """Score the validation set; the loop goes by the first value."""
        valid, answers = self.prepared.valid, self.answers
        if answers is None:
            with averaged(current):
                answers = predict(current, valid, self.num_rows(), self.accelerator)
        if self.prepared.spec.train.tune_thresholds:
            self.shift_C = best_shift(valid, answers)
            answers = [logits_C + self.shift_C for logits_C in answers]
        self.latest, self.answers = score(valid, answers), None
        return {self.latest.main: self.latest.score} | self.latest.values

    def is_collapsed(self) -> bool:
        """Tell whether the model gave one answer to everything in the last evaluation."""
        return self.latest is not None and one_answer(self.prepared, self.latest) is not None

    def num_rows(self) -> int:
        """Rows a batch of the validation set."""
        return eval_rows(self.prepared.spec)

    def keep(self, current: nn.Module) -> None:
        """Save the best model so far, where that is wanted; one without numbers answers nothing."""
        if self.prepared.spec.train.keep == "best" and not not_finite(current):
            save_model(current, self.prepared, self.job.folder / "model", self.latest, self.shift_C)
            self.kept_shift_C = self.shift_C

    def result(self, ended: Fit, together: int) -> SeedResult:
        """Put together how it ended."""
        if self.latest is None:
            # An earlier call did every step and was stopped before it wrote the result.
            end_mix_(self.job.hooks)
            self.evaluate(self.model)
        assert self.latest is not None
        if said := missed_density(self.prepared.spec.prune, self.job.hooks):
            self.job.display.tell(f"Seed {self.job.seed} {said}")
        if self.kept_shift_C is not None:
            # Of two classes the second alone has a threshold.
            first = int(self.prepared.data.task.kind == "classification")
            labels = self.prepared.data.labels[first:]
            self.job.display.tell(say_thresholds(labels, self.kept_shift_C[first:]))
        with averaged(self.model):
            result = _result(self.prepared, ended, self.latest, self.model, self.job.seed, self.accelerator)
        padding = round(self.padding_share, 6)
        density = round(kept_density(self.job.hooks), 6)
        return replace(result, padding_share=padding, together=together, density=density)


def _ask_all(joint: nn.Module, made: list[_Seed]) -> None:
    """Let the stack answer for all seeds at once; each takes its answers when it is scored."""
    first = made[0]
    valid, count = first.prepared.valid, len(made)
    predictions = predict_together(joint, valid, first.num_rows(), first.accelerator, count)
    for one, answers in zip(made, predictions, strict=True):
        one.answers = answers


def _result(
    prepared: Prepared,
    ended: Fit,
    scores: TaskScores,
    model: BermoPreTrainedModel,
    seed: int,
    accelerator: Accelerator,
) -> SeedResult:
    # A run that broke down before its final density has no best.
    best = ended.best or ended.last
    verdict = judge(prepared, scores, ended)
    with saved_form(model):
        counted = count(model)
    return SeedResult(
        seed=seed,
        metric=scores.main,
        score=best[scores.main],
        values=best,
        last_score=ended.last[scores.main],
        frozen_score=ended.start.get(scores.main, math.nan),
        diverged=verdict.reason if verdict.kind == "diverged" else None,
        undertrained=verdict.reason if verdict.kind == "undertrained" else None,
        best_step=ended.best_step,
        steps=ended.steps,
        loss=ended.last_loss,
        seconds=round(ended.seconds, 2),
        rows_per_second=round(ended.num_rows / max(ended.seconds, 1e-9), 2),
        peak_memory_mib=round(peak_memory(), 1),
        mix_layers=list(model.mix.layers),
        mix_weights=kept_shares(model, ended, keeps_best=prepared.spec.train.keep == "best"),
        num_parameters=counted.model_total,
        encoder_density=round(counted.encoder_density, 6),
        encoder_kept=counted.encoder_kept,
        unknown_share=prepared.train.unknown_share,
        truncated_share=prepared.train.truncated_share,
        device=device_name(accelerator),
        versions=versions(),
    )


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _publish(out: Path, results: list[SeedResult]) -> None:
    """Put the best seed's model, if there is one, at `out/model`, by hard links where the disk has them."""
    best = max(results, key=lambda item: (item.diverged is None, item.score))
    source = out / f"seed-{best.seed}" / "model"
    if not source.is_dir():
        return
    check_sums(source, f"Delete {source.parent}, and the same command trains this seed again")
    with whole_folder(out / "model") as temporary:
        copy_folder(source, temporary, _link)
        ensure_sums(temporary)
