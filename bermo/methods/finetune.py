"""Fine-tuning: a spec -> data, model, objective -> the loop -> a result for each seed and over all.

The plain encoder is the mix "none": the same head, the same loop, the fair baseline.
"""

import os
import platform
import resource
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import accelerate
import numpy as np
import torch
import transformers
from accelerate import Accelerator
from torch import Tensor, nn

from bermo import model as models
from bermo.backbone import load_tokenizer
from bermo.data.batches import BatchPlan, collate
from bermo.data.features import Features, make_features
from bermo.data.load import TaskData, load_task
from bermo.data.scoring import Scores, score
from bermo.files import restore, whole_folder
from bermo.job import Batch, Display, Fit, Job, Quiet
from bermo.methods.evaluate import predict
from bermo.methods.predict import write_trained
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
from bermo.schedule import parameter_groups
from bermo.spec import ModelSpec, RunSpec, check
from bermo.train import fit, make_accelerator

# A classifier that learned something has left this share of the entropy of the labels behind.
CHANCE_SHARE = 0.98
EVAL_BATCH_FACTOR = 2  # no gradients are kept, so twice the rows fit


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """Everything of a run that its seeds share."""

    spec: RunSpec
    data: TaskData
    tokenizer: transformers.PreTrainedTokenizerBase
    train: Features
    valid: Features


@dataclass(frozen=True)
class TaskBatches:
    """The training rows of a task, in the order of the plan."""

    features: Features
    plan: BatchPlan

    def epoch(self, epoch: int) -> list[np.ndarray]:
        return self.plan.epoch(epoch)

    def collate(self, rows: np.ndarray) -> Batch:
        return collate(self.features, rows)


class ModelLoss:
    """The model's own loss: a mean over rows or, for tags, over labelled tokens."""

    def count(self, batch: Batch) -> int:
        labels = batch.get("labels")
        return int((labels != -100).sum()) if labels is not None else len(batch["input_ids"])

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        loss: Tensor = model(**batch).loss
        return loss


def finetune(spec: RunSpec, out: Path, display: Display | None = None) -> RunResult:
    """Train one model a seed in `out`, going on where an earlier call stopped; return all results."""
    display = display or Quiet()
    check(spec)
    check_free(out, spec)
    accelerator = make_accelerator(spec.train, out)
    with accelerator.main_process_first():
        prepared = prepare(spec, display if accelerator.is_main_process else Quiet())
    if accelerator.is_main_process:
        for note in notes(prepared):
            display.tell(note)
        with locked(out):
            claim(out, spec, prepared.data.digest)
            return _all_seeds(prepared, out, display, accelerator)
    return _all_seeds(prepared, out, Quiet(), accelerator)


def prepare(spec: RunSpec, display: Display) -> Prepared:
    """Read, check and tokenise the data; every error in the user's files is raised here."""
    data = load_task(spec.data)
    tokenizer = load_tokenizer(spec.model.backbone)
    has_segments = models.has_segments(spec.model.backbone)
    progress = _tokenising(display)
    train, valid = (
        make_features(rows, data.task, data.labels, tokenizer, spec.data, has_segments, progress)
        for rows in (data.train, data.valid)
    )
    return Prepared(spec=spec, data=data, tokenizer=tokenizer, train=train, valid=valid)


def _tokenising(display: Display) -> Callable[[int, int], None]:
    """Return a callback that shows each file's tokenising as a progress of its own."""
    is_shown = False

    def progress(done: int, total: int) -> None:
        nonlocal is_shown
        if not is_shown:
            display.start("tokenising", total, 0)
        display.step(done, None)
        is_shown = done < total
        if not is_shown:
            display.close()

    return progress


def notes(prepared: Prepared) -> list[str]:
    """What a user should know about the data before training starts."""
    train, valid, spec = prepared.train, prepared.valid, prepared.spec
    sentences = list(prepared.data.notes)
    sentences.append(f"{len(train):,} training and {len(valid):,} validation inputs.")
    if train.truncated_share > 0:
        sentences.append(
            f"{train.truncated_share:.1%} of the training texts are longer than {spec.data.max_length} "
            "tokens and are cut (--max-length)."
        )
    return sentences


def build_model(prepared: Prepared, seed: int) -> models.BermoPreTrainedModel:
    """Build the encoder, mix and head for the task; what starts at random is drawn from the seed."""
    torch.manual_seed(seed)
    model_spec: ModelSpec = prepared.spec.model
    labels = prepared.data.labels
    names = {
        "id2label": dict(enumerate(labels)),
        "label2id": {label: index for index, label in enumerate(labels)},
        "num_labels": len(labels),
    }
    kind: type[models.BermoPreTrainedModel]
    extra: dict[str, Any]
    match prepared.data.task.kind:
        case "classification":
            kind, extra = models.BermoForSequenceClassification, names
        case "regression":
            kind, extra = models.BermoForSequenceClassification, {"num_labels": 1}
        case "tagging":
            kind, extra = models.BermoForTokenClassification, names
        case "span":
            kind, extra = models.BermoForQuestionAnswering, {}
        case "choice":
            kind, extra = models.BermoForMultipleChoice, {}
    model = kind.from_backbone(
        model_spec.backbone,
        mix=model_spec.mix,
        pooling=model_spec.pooling,
        head_dropout=model_spec.head_dropout,
        **extra,
    )
    if model_spec.freeze_embeddings:
        model.freeze_embeddings_()
    return model


def diagnose(prepared: Prepared, scores: Scores, ended: Fit) -> str | None:
    """Say how a training collapsed, or None: no number, one answer for everything, or a loss at chance."""
    if not ended.is_finite:
        return "the loss became infinite or not a number"
    if prepared.data.task.kind == "regression":
        return None if scores.values["pearson"] else "every prediction is the same number"
    if prepared.data.task.kind == "span":
        return None
    targets = np.asarray(prepared.valid.targets)
    if len(np.unique(targets[targets >= 0])) > 1 and len(scores.predicted) == 1:
        return f'every prediction is "{next(iter(scores.predicted))}"'
    if prepared.data.task.kind == "classification":
        shares = np.unique(np.asarray(prepared.train.targets), return_counts=True)[1]
        shares = shares / shares.sum()
        chance = float(-(shares * np.log(shares)).sum())
        if ended.last_loss >= CHANCE_SHARE * chance:
            return (
                f"the training loss {ended.last_loss:.3f} is still that of guessing ({chance:.3f})"
            )
    return None


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


REMEDY = "Try a smaller --lr, a longer --warmup, another seed, or --mix across if it was none."


def _one_seed(
    prepared: Prepared, folder: Path, seed: int, display: Display, accelerator: Accelerator
) -> SeedResult:
    spec = prepared.spec
    folder.mkdir(parents=True, exist_ok=True)
    restore(folder / "model")
    _reset_peak_memory()
    model = build_model(prepared, seed)
    latest: list[Scores] = []

    def evaluate(current: nn.Module) -> dict[str, float]:
        rows = EVAL_BATCH_FACTOR * spec.train.batch_size
        latest[:] = [score(prepared.valid, predict(current, prepared.valid, rows, accelerator))]
        # The loop goes by the first value.
        return {latest[0].main: latest[0].score} | latest[0].values

    def keep(current: nn.Module) -> None:
        with whole_folder(folder / "model") as temporary:
            current.save_pretrained(temporary)  # type: ignore[operator]
            prepared.tokenizer.save_pretrained(temporary)
            write_trained(temporary, prepared.data, spec.data)

    plan = BatchPlan(
        prepared.train.lengths, spec.train.batch_size, seed, grouped=spec.train.group_lengths
    )
    job = Job(
        model=model,
        batches=TaskBatches(prepared.train, plan),
        objective=ModelLoss(),
        groups=parameter_groups(model, model.mix.parameters(), spec.train),
        evaluate=evaluate,
        keep=keep,
        folder=folder,
        seed=seed,
        identity=identity(spec, prepared.data.digest, seed),
        display=display,
    )
    ended = fit(job, spec.train, accelerator)
    if not latest:  # every step was done before this call: only the result is missing
        evaluate(model)
    result = _result(prepared, ended, latest[0], model, seed, accelerator)
    if accelerator.is_main_process:
        write_result(folder / "result.json", result)
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    accelerator.free_memory()
    return result


def _result(
    prepared: Prepared,
    ended: Fit,
    scores: Scores,
    model: models.BermoPreTrainedModel,
    seed: int,
    accelerator: Accelerator,
) -> SeedResult:
    return SeedResult(
        seed=seed,
        metric=scores.main,
        score=ended.best[scores.main],
        values=ended.best,
        last_score=ended.last[scores.main],
        diverged=diagnose(prepared, scores, ended),
        best_step=ended.best_step,
        steps=ended.steps,
        loss=ended.last_loss,
        seconds=round(ended.seconds, 2),
        rows_per_second=round(ended.num_rows / max(ended.seconds, 1e-9), 2),
        peak_memory_mib=round(_peak_memory(), 1),
        mix_layers=list(model.mix.layers),
        mix_weights=[round(float(weight), 6) for weight in model.mix.weights],
        num_parameters=sum(parameter.numel() for parameter in model.parameters()),
        unknown_share=prepared.train.unknown_share,
        truncated_share=prepared.train.truncated_share,
        device=_device_name(accelerator),
        versions={
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "accelerate": accelerate.__version__,
        },
    )


def _publish(out: Path, results: list[SeedResult]) -> None:
    """Put the best seed's model at `out/model`, by hard links where the disk has them."""
    best = max(results, key=lambda item: (item.diverged is None, item.score))
    with whole_folder(out / "model") as temporary:
        for file in (out / f"seed-{best.seed}" / "model").iterdir():
            try:
                os.link(file, temporary / file.name)
            except OSError:
                shutil.copy2(file, temporary / file.name)


def _reset_peak_memory() -> None:
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()


def _peak_memory() -> float:
    """Peak memory in MiB: of the GPU where one is used, else of this process."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def _device_name(accelerator: Accelerator) -> str:
    if accelerator.device.type == "cuda":
        return torch.cuda.get_device_name(accelerator.device)
    return f"{platform.machine()} CPU, {torch.get_num_threads()} threads"
