"""Pretraining: a spec -> text, vocabulary, rows -> the loop -> an encoder, its held-out score, its card.

    loss = mean over masked tokens of −log p(token)  [+ that of the pair]  [+ 50 · that of "replaced or not"]
           [+ what is not explained of a teacher's vectors (teach.py)]

runs/mine/ = spec.json, plan.json (the steps), metrics.jsonl, result.json, figures.json, model/, and
checkpoints/ while it is under way. The same command goes on where it stopped.
"""

import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from torch import nn

from bermo.data.pretrain.corpus import unigram_entropy
from bermo.data.pretrain.packing import PackedBatches
from bermo.data.pretrain.taught import TaughtBatches
from bermo.encoders.trust import not_finite
from bermo.errors import BermoError
from bermo.fields import check
from bermo.figures.data import write_findings
from bermo.files import read_sealed, reading, restore, whole_folder, write_sealed, write_text
from bermo.methods.measure import device_name, peak_memory, reset_peak_memory, versions
from bermo.methods.pretraining.build import (
    Work,
    build_model,
    later_dropouts,
    load_text,
    make_batches,
    make_teacher,
)
from bermo.methods.pretraining.card import findings, model_card
from bermo.methods.pretraining.guess import score_guesses
from bermo.methods.pretraining.pace import plan_steps, step_settings, train_spec
from bermo.methods.pretraining.teach import TaughtLoss, held_objective, make_loss, score_taught
from bermo.models.pretraining import Pretraining
from bermo.models.saving import save_encoder
from bermo.pretrain_spec import PretrainSpec
from bermo.progress import Display, Quiet
from bermo.runs.folder import check_free, claim, identity, locked
from bermo.runs.model_files import warn_diverged
from bermo.sums import write_sums
from bermo.training.average import average_, averaged
from bermo.training.devices import make_accelerator
from bermo.training.job import Fit, Job
from bermo.training.loop import fit
from bermo.training.schedule import rate_groups
from bermo.values import normal

# Rows of held-out text that an evaluation scores.
NUM_SCORED = 1024
CHANCE_SHARE = 0.98
# In percent.
LEAST_DETECTION = 51.0


@dataclass(frozen=True, kw_only=True)
class PretrainResult:
    """What a pretraining gave on held-out text, from what, and at what cost."""

    objective: str
    values: dict[str, float]
    last_values: dict[str, float]
    unigram_entropy: float
    """Nats a token of a guesser that knows only how often each token comes; the loss must end well below."""
    diverged: str | None
    best_step: int
    steps: int
    loss: float
    seconds: float
    tokens_per_second: float
    peak_memory_mib: float
    num_parameters: int
    model_bytes: int
    vocabulary: int
    num_documents: int
    num_tokens: int
    epochs: float
    inner_weights: list[list[float]] | None
    device: str
    versions: dict[str, str]


def pretrain(spec: PretrainSpec, out: str | Path, display: Display | None = None) -> PretrainResult:
    """Train an encoder on bare text in `out`, going on where an earlier call stopped; return its result."""
    display, out, spec = display or Quiet(), Path(out), check(normal(spec))
    check_free(out, spec)
    accelerator = make_accelerator(train_spec(spec, epochs=1.0, evaluations=1), out, display.tell)
    display = display if accelerator.is_main_process else Quiet()
    for name in filter(None, (spec.shape.model, spec.objective.teacher)):
        warn_diverged(name, display.tell)
    with accelerator.main_process_first():
        corpus = load_text(spec, display.tell)
    teacher = make_teacher(spec, accelerator)
    work = Work(
        spec=spec,
        corpus=corpus,
        batches=make_batches(spec, corpus, teacher),
        out=out,
        display=display,
        accelerator=accelerator,
        teacher=teacher,
    )
    if len(work.batches.epoch(0)) < 1:
        raise BermoError(
            f"The text gives {work.batches.source.num_rows} rows of {spec.text.length} tokens, fewer than one"
            f" batch of {spec.pace.batch_size}. Add text, or make --batch-size or --length smaller."
        )
    if not accelerator.is_main_process:
        return _run(work)
    with locked(out):
        claim(out, spec, work.digest)
        return _run(work)


def _run(work: Work) -> PretrainResult:
    out, accelerator, done = work.out, work.accelerator, work.out / "result.json"
    if done.exists():
        with reading(done, "Delete it, and the same command trains the encoder again."):
            result = PretrainResult(**read_sealed(done))
        if accelerator.is_main_process:
            restore(out / "model")
            shutil.rmtree(out / "checkpoints", ignore_errors=True)
        return result
    if work.teacher is not None and isinstance(work.batches, TaughtBatches):
        work.teacher.measure_(work.batches)
    steps = plan_steps(work)
    reset_peak_memory()
    model = build_model(work.spec, work.corpus, work.teacher)
    ended = fit(_job(work, model, steps), step_settings(work, steps), accelerator)
    result = _result(work, model, ended)
    if accelerator.is_main_process:
        write_findings(out / "figures.json", findings(work.spec, asdict(result), out / "metrics.jsonl"))
        if (out / "model").is_dir():
            config = model.encoder.backbone.config
            write_text(out / "model" / "README.md", model_card(work.spec, asdict(result), config))
        # Last of all: a folder with a result is done.
        write_sealed(done, asdict(result))
        shutil.rmtree(out / "checkpoints", ignore_errors=True)
    accelerator.wait_for_everyone()
    return result


def _job(work: Work, model: Pretraining, steps: int) -> Job:
    spec, out, dropouts = work.spec, work.out, later_dropouts(work.spec)

    def keep(current: nn.Module) -> None:
        if not_finite(current):
            return
        with averaged(current), whole_folder(out / "model") as temporary:
            save_encoder(current, temporary, dropouts, spec.half)  # type: ignore[arg-type]
            work.corpus.tokenizer.save_pretrained(temporary)
            write_sums(temporary)

    score = _scorer(work)

    def evaluate(current: nn.Module) -> dict[str, float]:
        with averaged(current):
            return score(current)

    hooks = (average_(model, spec.pace.average),) if spec.pace.average else ()
    inner = getattr(model.encoder.backbone, "inner_mix", None)
    fast = [] if inner is None else [(list(inner.parameters()), spec.pace.mix_lr)]
    return Job(
        model=model,
        batches=work.batches,
        objective=make_loss(spec.objective, work.teacher),
        groups=rate_groups(model, step_settings(work, steps), fast),
        evaluate=evaluate,
        hooks=hooks,
        optimizer=spec.pace.optimizer,
        keep=keep,
        folder=out,
        seed=spec.seed,
        identity=identity(spec, f"{work.digest}/{steps}", spec.seed, out),
        display=work.display,
    )


def _scorer(work: Work) -> Callable[[nn.Module], dict[str, float]]:
    """Return the function that scores a model on held-out text."""
    spec, accelerator = work.spec, work.accelerator
    held = make_batches(spec, work.corpus, work.teacher, is_held=True)
    rows = np.arange(min(held.source.num_rows, NUM_SCORED))
    if not len(rows):
        raise BermoError(
            f"The held-out text is shorter than a row of {spec.text.length} tokens. Raise --held-out."
        )
    if isinstance(held, PackedBatches):
        packed = held
        return lambda current: score_guesses(current, packed, rows, accelerator)
    assert isinstance(held, TaughtBatches)
    taught, loss = held, make_loss(spec.objective, work.teacher)
    assert isinstance(loss, TaughtLoss)

    def score(current: nn.Module) -> dict[str, float]:
        guessed = score_guesses(current, taught.packed, rows, accelerator)
        explained = score_taught(current, loss, taught, rows, accelerator)
        if "detection" in guessed:  # which decides for ELECTRA, taught or not
            return guessed | explained
        return {"objective": held_objective(loss, guessed["likelihood"], explained)} | guessed | explained

    return score


def _why_diverged(ended: Fit, entropy: float) -> str | None:
    """Say why nothing was learned, or None."""
    if not ended.is_finite:
        return "the loss became infinite or not a number"
    if np.log(ended.last["perplexity"]) >= CHANCE_SHARE * entropy:
        return f"the words are guessed no better than by how often they come ({entropy:.2f} nats)"
    # The generator alone has learned.
    if ended.last.get("detection", 100.0) < LEAST_DETECTION:
        return (
            f"replaced tokens are not told from original ones (detection {ended.last['detection']:.1f},"
            " guessing 50)"
        )
    return None


def _spared(spec: PretrainSpec, steps: int) -> int:
    """Return how many tokens fewer were read because the first rows were short."""
    if spec.text.short_length is None or spec.text.short_steps is None:
        return 0
    num_short = min(steps, spec.text.short_steps) * spec.pace.batch_size
    return num_short * (spec.text.length - spec.text.short_length)


def _result(work: Work, model: Pretraining, ended: Fit) -> PretrainResult:
    spec, corpus = work.spec, work.corpus
    entropy = unigram_entropy(corpus)
    values = ended.best or ended.last
    inner = getattr(model.encoder.backbone, "inner_mix", None)
    num_tokens = ended.num_rows * spec.text.length - _spared(spec, ended.steps)
    return PretrainResult(
        objective=spec.objective.kind,
        values=values,
        last_values=ended.last,
        unigram_entropy=round(entropy, 4),
        diverged=_why_diverged(ended, entropy),
        best_step=ended.best_step,
        steps=ended.steps,
        loss=ended.last_loss,
        seconds=round(ended.seconds, 2),
        tokens_per_second=round(num_tokens / max(ended.seconds, 1e-9), 1),
        peak_memory_mib=round(peak_memory(), 1),
        num_parameters=sum(p.numel() for p in model.encoder.parameters()),
        model_bytes=sum(file.stat().st_size for file in (work.out / "model").glob("*.safetensors")),
        vocabulary=corpus.pieces.size,
        num_documents=corpus.train.num_documents,
        num_tokens=len(corpus.train.ids),
        epochs=round(num_tokens / spec.text.length / work.batches.source.num_rows, 3),
        inner_weights=None if inner is None else inner.weights.tolist(),
        device=device_name(work.accelerator),
        versions=versions(),
    )
