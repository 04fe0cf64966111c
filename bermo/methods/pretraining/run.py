"""Pretraining: a spec -> text, vocabulary, rows -> the loop -> an encoder, its held-out score, its card.

    loss = mean over masked tokens of −log p(token)  [+ that of the pair]  [+ 50 · that of "replaced or not"]

runs/mine/ = spec.json, plan.json (the steps), metrics.jsonl, result.json, figures.json, model/, and
checkpoints/ while it is under way. The same command goes on where it stopped.
"""

import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import nn

from bermo.data.pretrain.corpus import Corpus, load_corpus, unigram_entropy
from bermo.data.pretrain.masking import Masker
from bermo.data.pretrain.packing import PackedBatches, Pairs, Stream
from bermo.encoders.trust import not_finite
from bermo.errors import BermoError
from bermo.fields import check
from bermo.figures.data import write_findings
from bermo.files import read_sealed, reading, whole_folder, write_sealed, write_text
from bermo.methods.measure import device_name, peak_memory, reset_peak_memory, versions
from bermo.methods.pretraining.card import findings, model_card
from bermo.methods.pretraining.guess import GuessLoss, score_guesses
from bermo.models.pretraining import Pretraining, Shape, build_masked, build_replaced, save_encoder
from bermo.pretrain_spec import DEFAULT_STEPS, PretrainSpec
from bermo.progress import Display, Quiet
from bermo.runs.folder import check_free, claim, identity, locked
from bermo.spec import TrainSpec
from bermo.sums import write_sums
from bermo.training.devices import make_accelerator
from bermo.training.job import Fit, Job
from bermo.training.loop import fit
from bermo.training.schedule import rate_groups
from bermo.values import normal

# Two short trainings; their difference leaves the cost of starting out.
TRIAL_STEPS = (10, 30)
# Rows of held-out text that an evaluation scores.
NUM_SCORED = 1024
# The masks of held-out text are the same for every seed.
HELD_SEED = 0
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
    settings = _train_spec(spec, epochs=1.0, evaluations=1)
    accelerator = make_accelerator(settings, out, display.tell)
    tell = display.tell if accelerator.is_main_process else Quiet().tell
    with accelerator.main_process_first():
        corpus = load_corpus(spec.text, spec.shape.positions, tell)
    batches = make_batches(spec, corpus)
    if len(batches.epoch(0)) < 1:
        raise BermoError(
            f"The text gives {batches.source.num_rows} rows of {spec.text.length} tokens, fewer than one"
            f" batch of {spec.pace.batch_size}. Add text, or make --batch-size or --length smaller."
        )
    if not accelerator.is_main_process:
        return _run(spec, corpus, batches, out, Quiet(), accelerator)
    with locked(out):
        claim(out, spec, corpus.digest)
        return _run(spec, corpus, batches, out, display, accelerator)


def make_batches(spec: PretrainSpec, corpus: Corpus, is_held: bool = False) -> PackedBatches:
    """Pack training or held-out text into rows for the objective."""
    objective, seed = spec.objective, HELD_SEED if is_held else spec.seed
    tokens = corpus.held if is_held else corpus.train
    source: Stream | Pairs
    match objective.kind:
        case "mlm+nsp" | "mlm+sop":
            kind: Any = objective.kind.removeprefix("mlm+")
            source = Pairs(tokens, corpus.pieces, spec.text.length, seed, kind)
        case _:
            source = Stream(tokens, corpus.pieces, spec.text.length, seed)
    masker = Masker(corpus.pieces, objective.masking, objective.share, seed, objective.kind == "electra")
    return PackedBatches(source, masker, spec.pace.batch_size, seed)


def build_model(spec: PretrainSpec, corpus: Corpus) -> Pretraining:
    """Build the model of the spec with random weights drawn from its seed."""
    shape = Shape(
        **asdict(spec.shape.sizes),
        vocabulary=corpus.pieces.size,
        positions=spec.shape.positions,
        dropout=spec.shape.dropout,
        pad=corpus.pieces.pad,
        inner_mix=spec.shape.inner_mix,
    )
    torch.manual_seed(spec.seed)
    if spec.objective.kind == "electra":
        return build_replaced(shape)
    return build_masked(shape, has_pairs=spec.objective.kind != "mlm")


def _run(
    spec: PretrainSpec,
    corpus: Corpus,
    batches: PackedBatches,
    out: Path,
    display: Display,
    accelerator: Accelerator,
) -> PretrainResult:
    done = out / "result.json"
    if done.exists():
        with reading(done, "Delete it, and the same command trains the encoder again."):
            result = PretrainResult(**read_sealed(done))
        if accelerator.is_main_process:
            shutil.rmtree(out / "checkpoints", ignore_errors=True)
        return result
    steps = _plan(spec, corpus, batches, out, display, accelerator)
    reset_peak_memory()
    model = build_model(spec, corpus)
    ended = fit(
        _job(spec, corpus, batches, model, out, display, accelerator, steps),
        _settings(spec, batches, steps),
        accelerator,
    )
    result = _result(spec, corpus, batches, model, ended, out, accelerator)
    if accelerator.is_main_process:
        write_findings(out / "figures.json", findings(spec, asdict(result), out / "metrics.jsonl"))
        if (out / "model").is_dir():
            write_text(out / "model" / "README.md", model_card(spec, asdict(result)))
        # Last of all: a folder with a result is done.
        write_sealed(done, asdict(result))
        shutil.rmtree(out / "checkpoints", ignore_errors=True)
    accelerator.wait_for_everyone()
    return result


def _job(
    spec: PretrainSpec,
    corpus: Corpus,
    batches: PackedBatches,
    model: Pretraining,
    folder: Path,
    display: Display,
    accelerator: Accelerator,
    steps: int,
) -> Job:
    held = make_batches(spec, corpus, is_held=True)
    rows = np.arange(min(held.source.num_rows, NUM_SCORED))
    if not len(rows):
        raise BermoError(
            f"The held-out text is shorter than a row of {spec.text.length} tokens. Raise --held-out."
        )

    def keep(current: nn.Module) -> None:
        if not_finite(current):
            return
        with whole_folder(folder / "model") as temporary:
            save_encoder(current, temporary, spec.shape.later_dropout, spec.half)  # type: ignore[arg-type]
            corpus.tokenizer.save_pretrained(temporary)
            write_sums(temporary)

    settings = _settings(spec, batches, steps)
    inner = getattr(model.encoder.backbone, "inner_mix", None)
    fast = [] if inner is None else [(list(inner.parameters()), spec.pace.mix_lr)]
    return Job(
        model=model,
        batches=batches,
        objective=GuessLoss(),
        groups=rate_groups(model, settings, fast),
        evaluate=lambda current: score_guesses(current, held, rows, accelerator),
        keep=keep,
        folder=folder,
        seed=spec.seed,
        identity=identity(spec, f"{corpus.digest}/{steps}", spec.seed),
        display=display,
    )


def _train_spec(spec: PretrainSpec, epochs: float, evaluations: int) -> TrainSpec:
    pace = spec.pace
    return TrainSpec(
        epochs=epochs,
        evaluations=evaluations,
        batch_size=pace.batch_size,
        accumulation=pace.accumulation,
        lr=pace.lr,
        weight_decay=pace.weight_decay,
        warmup=pace.warmup,
        clip=pace.clip,
        precision=pace.precision,
        device=pace.device,
        checkpoint_minutes=pace.checkpoint_minutes,
        tracker=pace.tracker,
    )


def _settings(spec: PretrainSpec, batches: PackedBatches, steps: int) -> TrainSpec:
    """The loop's settings for so many steps; half a step less makes its rounding up exact."""
    per_epoch = len(batches.epoch(0))
    evaluations = max(1, round(spec.pace.evaluations * per_epoch / steps))
    return _train_spec(spec, (steps - 0.5) / per_epoch, evaluations)


def _plan(
    spec: PretrainSpec,
    corpus: Corpus,
    batches: PackedBatches,
    out: Path,
    display: Display,
    accelerator: Accelerator,
) -> int:
    """Return the number of steps: the one given, or the one that a trial finds to fill the minutes."""
    path = out / "plan.json"
    if spec.pace.minutes is None:
        return spec.pace.steps or DEFAULT_STEPS
    if not path.exists():
        display.tell("Measuring the speed of a step …")
        seconds = [_trial(spec, corpus, batches, out / ".trial", accelerator, n) for n in TRIAL_STEPS]
        a_step = (seconds[1] - seconds[0]) / (TRIAL_STEPS[1] - TRIAL_STEPS[0])
        # On a busy machine the shorter trial may take longer; then the whole of the other one counts.
        a_step = a_step if a_step > 0 else seconds[1] / TRIAL_STEPS[1]
        steps = max(1, int(60 * spec.pace.minutes / a_step))
        if accelerator.is_main_process:
            write_sealed(path, {"steps": steps, "seconds_a_step": a_step})
        accelerator.wait_for_everyone()
    with reading(path, "Delete it, and the same command tries again how many steps fit."):
        return int(read_sealed(path)["steps"])


def _trial(
    spec: PretrainSpec,
    corpus: Corpus,
    batches: PackedBatches,
    folder: Path,
    accelerator: Accelerator,
    steps: int,
) -> float:
    """Train a throw-away model for a few steps, and return the seconds they took."""
    if accelerator.is_main_process:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    accelerator.wait_for_everyone()
    model = build_model(spec, corpus)
    settings = _train_spec(spec, (steps - 0.5) / len(batches.epoch(0)), 1)
    job = Job(
        model=model,
        batches=batches,
        objective=GuessLoss(),
        groups=rate_groups(model, settings),
        evaluate=lambda current: {"none": 0.0},
        keep=lambda current: None,
        folder=folder,
        seed=spec.seed,
        identity="trial",
    )
    seconds = fit(job, settings, accelerator).seconds
    accelerator.free_memory()
    if accelerator.is_main_process:
        shutil.rmtree(folder, ignore_errors=True)
    return seconds


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


def _result(
    spec: PretrainSpec,
    corpus: Corpus,
    batches: PackedBatches,
    model: Pretraining,
    ended: Fit,
    out: Path,
    accelerator: Accelerator,
) -> PretrainResult:
    entropy = unigram_entropy(corpus)
    values = ended.best or ended.last
    inner = getattr(model.encoder.backbone, "inner_mix", None)
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
        tokens_per_second=round(ended.num_rows * spec.text.length / max(ended.seconds, 1e-9), 1),
        peak_memory_mib=round(peak_memory(), 1),
        num_parameters=sum(p.numel() for p in model.encoder.parameters()),
        model_bytes=sum(file.stat().st_size for file in (out / "model").glob("*.safetensors")),
        vocabulary=corpus.pieces.size,
        num_documents=corpus.train.num_documents,
        num_tokens=len(corpus.train.ids),
        epochs=round(ended.num_rows / batches.source.num_rows, 3),
        inner_weights=None if inner is None else inner.weights.tolist(),
        device=device_name(accelerator),
        versions=versions(),
    )
