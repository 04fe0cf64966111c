"""A trained model -> a smaller one in a folder of its own: what `bermo shrink` does, in order.

[Fisher: choose and refit] -> delete what is dead -> [cut the vocabulary] -> [matrices of low rank] -> model,
tokenizer, task, card, shrink.json
"""

import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
from accelerate import Accelerator

from bermo.data.features import Features, make_features
from bermo.data.load import load_task
from bermo.data.scoring import score
from bermo.data.tensors import collate
from bermo.data.text import read_text
from bermo.encoders.card import Evaluated, with_header
from bermo.encoders.sites import encoder_of
from bermo.encoders.structure import groups_of
from bermo.encoders.tied import num_groups
from bermo.errors import BermoError
from bermo.files import whole_folder, write_json, write_text
from bermo.methods.evaluate import predict
from bermo.models.encoder import BermoPreTrainedModel, model_card
from bermo.models.low_rank import factorise_
from bermo.models.sentence import BermoForSentenceEmbedding
from bermo.progress import Display
from bermo.runs.folder import check_empty
from bermo.runs.model_files import (
    SHRINK_FILE,
    TASK_FILE,
    check_not_exported,
    divergence,
    model_folder,
    warn_diverged,
)
from bermo.runs.task_file import write_task
from bermo.runs.trained import TrainedFolder, open_trained
from bermo.ship.runtimes.run_data import with_files
from bermo.ship.shrink.delete import ModelSize, is_shrinkable, shrink, size_of
from bermo.ship.shrink.fisher import check_families, fisher_shrink
from bermo.ship.shrink.latency import Workload, latency_table
from bermo.ship.shrink.plain import cut_vocabulary, is_plain, load_plain
from bermo.ship.shrink.search import CostTable, weight_table
from bermo.ship.shrink.spec import READ_SHARE, FisherSpec, Ranks, check_fisher
from bermo.ship.shrink.stock import even_out, stock_card, stock_model
from bermo.ship.shrink.vocabulary import cut_embeddings_, cut_tokenizer, plan_cut
from bermo.spec import DataSpec, TrainSpec
from bermo.sums import write_sums
from bermo.training.devices import make_accelerator
from bermo.training.job import Batch

TUNE_SHARE = 4
"""The refit reads one in so many of the examples that the Fisher information is taken from."""


@dataclass(frozen=True, kw_only=True)
class Shrinking:
    """What came out: both sizes and, where there was data, both scores and speeds."""

    before: ModelSize
    after: ModelSize
    metric: str | None = None
    scores: tuple[float, float] | None = None
    rows_per_second: tuple[float, float] | None = None
    seconds: float


@dataclass(frozen=True, kw_only=True)
class _Scored:
    metric: str
    score: float
    rows_per_second: float


def make_small(
    source: Path,
    out: Path,
    display: Display,
    fisher: FisherSpec | None = None,
    vocabulary: Sequence[Path] = (),
    read_share: float = READ_SHARE,
    wants_stock: bool = False,
    ranks: Ranks | None = None,
) -> Shrinking:
    """Write a smaller model of a run or model folder into `out`, whole or not at all."""
    started = time.monotonic()
    check_empty(out)
    if not 0 <= read_share < 1:
        raise BermoError(f"read-share must be at least 0 and under 1, but got {read_share}.")
    if fisher is not None:
        check_fisher(fisher)
    texts = [line for file in vocabulary for line in _texts(file)]
    is_only_words = texts and fisher is None and not wants_stock and ranks is None
    if is_only_words and is_plain(model_folder(source)):
        return _cut_plain(model_folder(source), out, texts, display)
    opened = open_trained(source)
    warn_diverged(source, display.tell)
    model, tokenizer = opened.load_bermo_model(), opened.load_tokenizer()
    if num_groups(encoder_of(model)) is not None:
        raise BermoError(
            f"The layers of {source} share their weights (--tie-layers), so that none can be shrunk"
            " by itself. Export it as it is, or train it with fewer groups."
        )
    is_asked = fisher is not None or texts or wants_stock or ranks is not None
    if not is_asked and not is_shrinkable(model, read_share):
        raise BermoError(
            f"There is nothing dead in {source}: every head and neuron is read. Either it was not pruned by"
            " whole units, or by gates (--prune-by l0, soft-movement) in too few steps to close one. Train"
            " with --prune heads-and-neurons --density 0.5, or longer, or choose without training with"
            " --fisher --density 0.7, or cut the vocabulary with --vocabulary."
        )
    before, scored = size_of(model), None
    if fisher is not None:
        model, scored = _choose(opened, model, fisher, display)
    small = even_out(model, read_share) if wants_stock else shrink(model, read_share)
    cut = plan_cut(tokenizer, encoder_of(small).config, texts, display) if texts else None
    if cut is not None:
        cut_embeddings_(small, cut)
    if ranks is not None:
        factorise_(small, ranks.low_rank, ranks.embedding_rank)
    is_encoder = isinstance(small, BermoForSentenceEmbedding)  # saved in stock form where it can be
    stock = stock_model(small, opened.trained) if wants_stock and not is_encoder else None
    result = Shrinking(
        before=before,
        after=size_of(small),
        seconds=round(time.monotonic() - started, 1),
        metric=scored[0].metric if scored else None,
        scores=(scored[0].score, scored[1].score) if scored else None,
        rows_per_second=(scored[0].rows_per_second, scored[1].rows_per_second) if scored else None,
    )
    with whole_folder(out) as folder:
        if cut is None:
            tokenizer.save_pretrained(folder)
        else:
            cut_tokenizer(tokenizer, cut, folder, texts)
        evaluated = _evaluated(opened, result)
        card = (
            model_card(small, evaluated)
            if stock is None
            else stock_card(stock, opened.trained.task.kind, evaluated)
        )
        write_text(folder / "README.md", card + _card(result))
        (stock or small).save_pretrained(folder)
        write_task(folder, opened.trained)
        write_json(folder / SHRINK_FILE, asdict(result) | {"diverged": divergence(source)})
        write_sums(folder)
    return result


def _cut_plain(source: Path, out: Path, texts: Sequence[str], display: Display) -> Shrinking:
    """Write a model of transformers' own class with fewer words, which stock transformers loads."""
    started = time.monotonic()
    check_not_exported(source)
    found = load_plain(source)
    before = size_of(found.model)
    small, tokenizer = cut_vocabulary(found.model, found.tokenizer, texts, display)
    result = Shrinking(before=before, after=size_of(small), seconds=round(time.monotonic() - started, 1))
    with whole_folder(out) as folder:
        small.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        if (source / TASK_FILE).is_file():
            shutil.copyfile(source / TASK_FILE, folder / TASK_FILE)
        name = type(small).__name__
        body = f"# {name}\n\nMade with fewer words; `transformers.{name}.from_pretrained` loads it.\n"
        write_text(folder / "README.md", with_header(body + _card(result), title=name))
        write_json(folder / SHRINK_FILE, asdict(result) | {"diverged": divergence(source)})
        write_sums(folder)
    return result


def _texts(file: Path) -> list[str]:
    texts = [line for line in read_text(file).splitlines() if line.strip()]
    if not texts:
        raise BermoError(f"{file} holds no text, so no vocabulary can be made from it.")
    return texts


def _choose(
    opened: TrainedFolder, model: BermoPreTrainedModel, spec: FisherSpec, display: Display
) -> tuple[BermoPreTrainedModel, tuple[_Scored, _Scored]]:
    """Run the Fisher search on the run's own data, and score both models on its validation set."""
    groups = groups_of(model)
    check_families(groups)
    train, valid = _features(opened, spec, display)
    settings = TrainSpec(device=spec.device)
    accelerator = make_accelerator(settings, opened.folder)
    model.to(accelerator.device)
    table, budget = _budget(model, spec, accelerator, display)
    rows = np.random.default_rng(0).permutation(len(train))[: spec.examples]
    tune = rows[: max(1, len(rows) // TUNE_SHARE)]
    small, choice = fisher_shrink(
        model, _batches(train, rows, spec), _batches(train, tune, spec), table, budget, display
    )
    whole = table.total([group.kind for group in groups], [group.count for group in groups])
    display.tell(
        f"{choice.lost:.1%} of the importance is in what goes; what stays costs {_amount(choice.cost)} of"
        f" {_amount(whole)} {table.unit}."
    )
    scored = tuple(_score(item, valid, spec, accelerator) for item in (model, small))
    return small.cpu(), cast(tuple[_Scored, _Scored], scored)


def _budget(
    model: BermoPreTrainedModel, spec: FisherSpec, accelerator: Accelerator, display: Display
) -> tuple[CostTable, float]:
    groups = groups_of(model)
    if spec.density is not None:
        return weight_table(groups), spec.density * sum(g.cost * g.count for g in groups)
    workload = Workload(batch_size=spec.batch_size, length=spec.length, device=str(accelerator.device))
    table = latency_table(encoder_of(model).config, workload, display=display)
    now = table.total([g.kind for g in groups], [g.count for g in groups])
    return table, now / cast(float, spec.speedup)


def _amount(cost: float) -> str:
    """Write whole weights, or milliseconds with their digits."""
    return f"{cost:,.0f}" if cost >= 1000 else f"{cost:.4g}"


def _features(opened: TrainedFolder, spec: FisherSpec, display: Display) -> tuple[Features, Features]:
    given = (spec.folder, spec.train, spec.valid)
    run = opened.read_spec()
    if run is None and not any(given):
        raise BermoError(
            f"{opened.folder} does not say which data it was trained on. Name it: --data FOLDER for a named"
            " task, or --train FILE and --valid FILE."
        )
    trained = opened.trained
    own = DataSpec(task=trained.task.name) if run is None else run.data
    data = with_files(own, trained.task.kind, *given)
    known = replace(data, max_length=trained.max_length, stride=trained.stride)
    task = load_task(known)
    if task.task.kind != trained.task.kind or tuple(task.labels) != trained.labels:
        raise BermoError(
            f"The model answers {', '.join(trained.labels) or trained.task.kind}, but the data has"
            f" {', '.join(task.labels) or task.task.kind}. Give the data that it was trained on."
        )
    tokenizer = opened.load_tokenizer()
    segments, is_apart = opened.has_segments, opened.is_apart
    train, valid = (
        make_features(rows, task.task, task.labels, tokenizer, known, segments, is_apart=is_apart)
        for rows in (task.train, task.valid)
    )
    return train, valid


def _batches(features: Features, rows: np.ndarray, spec: FisherSpec) -> list[Batch]:
    """Put rows of like length together."""
    lengths = np.asarray(features.lengths)[rows]
    order = rows[np.argsort(lengths, kind="stable")]
    return [collate(features, order[k : k + spec.batch_size]) for k in range(0, len(order), spec.batch_size)]


def _score(
    model: BermoPreTrainedModel, valid: Features, spec: FisherSpec, accelerator: Accelerator
) -> _Scored:
    started = time.perf_counter()
    predictions = predict(model, valid, spec.batch_size, accelerator)
    seconds = time.perf_counter() - started
    scored = score(valid, predictions)
    return _Scored(metric=scored.main, score=scored.score, rows_per_second=round(len(valid) / seconds, 2))


def _evaluated(source: TrainedFolder, result: Shrinking) -> list[Evaluated]:
    if result.scores is None:
        return []
    return [Evaluated(task=source.trained.task.name, metric=str(result.metric), value=result.scores[1])]


def _card(result: Shrinking) -> str:
    rows = "\n".join(f"| {name} | {old} | {new} |" for name, old, new in result_rows(result))
    return f"\nMade smaller by bermo shrink:\n\n| | before | after |\n|---|---|---|\n{rows}\n"


def result_rows(result: Shrinking) -> list[tuple[str, str, str]]:
    """Return what changed, one row a measure: its name, before, after."""
    old, new = result.before, result.after
    rows = [
        ("parameters", f"{old.parameters:,}", f"{new.parameters:,}"),
        ("megabytes", f"{old.megabytes:.1f}", f"{new.megabytes:.1f}"),
    ]
    rows += [
        (name, f"{getattr(old, name):,}", f"{getattr(new, name):,}")
        for name in ("layers", "heads", "neurons", "vocabulary")
    ]
    if result.scores is not None and result.rows_per_second is not None:
        rows.append((str(result.metric), *(f"{value:.2f}" for value in result.scores)))  # type: ignore[arg-type]
        rows.append(("rows a second", *(f"{value:.0f}" for value in result.rows_per_second)))  # type: ignore[arg-type]
    return rows
