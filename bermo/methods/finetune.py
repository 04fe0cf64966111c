"""Fine-tuning: a spec -> data, model, objective -> the loop -> a result for each seed and over all.

The plain encoder is the mix "none": the same head, the same loop, the fair baseline.
"""

import os
import shutil
from dataclasses import replace
from pathlib import Path

from accelerate import Accelerator
from torch import nn

from bermo.data.scoring import Scores, score
from bermo.files import restore, whole_folder
from bermo.fold import count
from bermo.job import Display, Fit, Job, Quiet
from bermo.methods.assemble import EVAL_BATCH_FACTOR, assemble, check_methods, save_model
from bermo.methods.distill import set_aside
from bermo.methods.evaluate import predict
from bermo.methods.measure import (
    device_name,
    diagnose,
    peak_memory,
    reset_peak_memory,
    versions,
)
from bermo.methods.prepare import Prepared, notes, prepare
from bermo.methods.prune import make_schedule
from bermo.model import BermoPreTrainedModel
from bermo.runs import (
    RunResult,
    SeedResult,
    check_free,
    claim,
    identity,
    locked,
    read_seed,
    summarise,
    write_result,
)
from bermo.spec import RunSpec, check
from bermo.train import fit, make_accelerator

REMEDY = "Try a smaller --lr, more --epochs, a longer --warmup, another seed, or --mix across."


def finetune(spec: RunSpec, out: Path, display: Display | None = None) -> RunResult:
    """Train one model a seed in `out`, going on where an earlier call stopped; return all results."""
    display = display or Quiet()
    check(spec)
    check_methods(spec)
    check_free(out, spec)
    accelerator = make_accelerator(spec.train, out)
    with accelerator.main_process_first():
        prepared = prepare(spec, display if accelerator.is_main_process else Quiet())
    if spec.prune.method != "none":
        make_schedule(spec.prune, prepared.num_steps)  # no room in it is an error
    if accelerator.is_main_process:
        for note in notes(prepared):
            display.tell(note)
        with locked(out):
            claim(out, spec, prepared.digest)
            return _all_seeds(prepared, out, display, accelerator)
    return _all_seeds(prepared, out, Quiet(), accelerator)


def _all_seeds(
    prepared: Prepared, out: Path, display: Display, accelerator: Accelerator
) -> RunResult:
    seeds = prepared.spec.seeds
    results = []
    for index, seed in enumerate(seeds):
        done = read_seed(out / f"seed-{seed}")
        if done is None:
            if len(seeds) > 1:
                display.tell(f"Seed {seed} ({index + 1} of {len(seeds)})")
            done = _one_seed(prepared, out / f"seed-{seed}", seed, display, accelerator)
        results.append(done)
        if done.diverged:
            display.tell(f"Seed {seed} diverged: {done.diverged}. {REMEDY}")
    result = summarise(results)
    if accelerator.is_main_process:
        _publish(out, results)
        write_result(out / "result.json", result)
    accelerator.wait_for_everyone()
    return result


def _one_seed(
    prepared: Prepared, folder: Path, seed: int, display: Display, accelerator: Accelerator
) -> SeedResult:
    spec = prepared.spec
    folder.mkdir(parents=True, exist_ok=True)
    restore(folder / "model")
    reset_peak_memory()
    parts = assemble(prepared, seed, display, accelerator)
    latest: list[Scores] = []

    def evaluate(current: nn.Module) -> dict[str, float]:
        rows = EVAL_BATCH_FACTOR * spec.train.batch_size
        latest[:] = [score(prepared.valid, predict(current, prepared.valid, rows, accelerator))]
        # The loop goes by the first value.
        return {latest[0].main: latest[0].score} | latest[0].values

    job = Job(
        model=parts.model,
        batches=parts.batches,
        objective=parts.objective,
        groups=parts.groups,
        hooks=parts.hooks,
        masked=parts.masked,
        best_from=parts.best_from,
        evaluate=evaluate,
        keep=lambda current: save_model(current, prepared, folder / "model"),
        folder=folder,
        seed=seed,
        identity=identity(spec, prepared.digest, seed),
        display=display,
    )
    ended = fit(job, spec.train, accelerator)
    if not latest:  # every step was done before this call: only the result is missing
        evaluate(parts.model)
    result = replace(
        _result(prepared, ended, latest[0], parts.model, seed, accelerator),
        padding_share=round(parts.padding_share, 6),
    )
    if accelerator.is_main_process:
        write_result(folder / "result.json", result)
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    accelerator.free_memory()
    return result


def _result(
    prepared: Prepared,
    ended: Fit,
    scores: Scores,
    model: BermoPreTrainedModel,
    seed: int,
    accelerator: Accelerator,
) -> SeedResult:
    best = ended.best or ended.last  # a run that broke down before its final density has no best
    with set_aside(model):
        counted = count(model)
    return SeedResult(
        seed=seed,
        metric=scores.main,
        score=best[scores.main],
        values=best,
        last_score=ended.last[scores.main],
        diverged=diagnose(prepared, scores, ended),
        best_step=ended.best_step,
        steps=ended.steps,
        loss=ended.last_loss,
        seconds=round(ended.seconds, 2),
        rows_per_second=round(ended.num_rows / max(ended.seconds, 1e-9), 2),
        peak_memory_mib=round(peak_memory(), 1),
        mix_layers=list(model.mix.layers),
        mix_weights=[round(float(weight), 6) for weight in model.mix.weights],
        num_parameters=counted.model_total,
        encoder_density=round(counted.encoder_density, 6),
        unknown_share=prepared.train.unknown_share,
        truncated_share=prepared.train.truncated_share,
        device=device_name(accelerator),
        versions=versions(),
    )


def _publish(out: Path, results: list[SeedResult]) -> None:
    """Put the best seed's model, if there is one, at `out/model`, by hard links where the disk has them."""
    best = max(results, key=lambda item: (item.diverged is None, item.score))
    source = out / f"seed-{best.seed}" / "model"
    if not source.is_dir():
        return
    with whole_folder(out / "model") as temporary:
        for file in source.iterdir():
            try:
                os.link(file, temporary / file.name)
            except OSError:
                shutil.copy2(file, temporary / file.name)
