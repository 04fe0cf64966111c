"""A spec -> the task's features and a model with the right head; raises all errors in the user's files."""

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import transformers

from bermo.data.features import Features, make_features
from bermo.data.load import load_task
from bermo.data.rows import ApartRows, Rows, TextRows, digest
from bermo.data.tasks import TaskData
from bermo.data.teacher_answers import read_answers
from bermo.data.unknown import check_ids
from bermo.data.unlabelled import join_features, read_unlabelled
from bermo.encoders.backbone import limit_length_, load_config, load_tokenizer
from bermo.encoders.families import family_of, num_layers
from bermo.encoders.pooling import trained_pooling
from bermo.encoders.tied import check_groups
from bermo.encoders.trust import config_of
from bermo.encoders.where import resolve
from bermo.errors import BermoError
from bermo.methods.class_weights import check_class_weights
from bermo.methods.defaults import Facts, resolve_defaults
from bermo.methods.fewer_tokens import check_model, has_fewer_tokens
from bermo.methods.keep import kept_layers
from bermo.methods.student import student_from_teacher
from bermo.methods.teacher import Teacher, check_segments, check_teacher, load_teacher
from bermo.methods.thresholds import check_thresholds
from bermo.models import tasks as models
from bermo.models.sentence import BermoForSentenceEmbedding, options_of, settings_of
from bermo.nn.heads import MULTI_LABEL
from bermo.progress import Display
from bermo.runs.model_files import model_folder, warn_diverged
from bermo.spec import ModelSpec, Pairs, RunSpec, chosen, replace_in
from bermo.training.schedule import num_steps


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """Everything of a run that its seeds share."""

    spec: RunSpec
    data: TaskData
    digest: str
    tokenizer: transformers.PreTrainedTokenizerBase
    train: Features
    valid: Features
    unlabelled: Features | None = None
    """Texts without labels, for which only the teacher's answers count."""
    facts: Facts
    reasons: tuple[str, ...] = ()
    """What was chosen for the user, and why."""
    layers: tuple[int, ...] | None = None
    """The layers of the encoder that are used, where not all are."""
    teacher: Teacher | None = None
    answers: npt.NDArray[np.float32] | None = None
    """A teacher's answers to the training rows, where a file has them."""
    has_segments: bool = False
    """Whether the tokens have segment ids, which tell the texts of a pair."""

    @cached_property
    def learned(self) -> Features:
        """All rows of a training: those with labels, then those without."""
        return self.train if self.unlabelled is None else join_features(self.train, self.unlabelled)

    @property
    def num_steps(self) -> int:
        """Optimiser steps of one training."""
        train = self.spec.train
        return num_steps(math.ceil(len(self.learned) / chosen(train.batch_size)), chosen(train.epochs))


def prepare(spec: RunSpec, display: Display, data: TaskData | None = None) -> Prepared:
    """Read the data where none is given, check and tokenise it; every error in files is raised here."""
    data = load_task(spec.data) if data is None else data
    if isinstance(data.train, ApartRows):
        check_apart(spec, data.train)
    check_class_weights(spec.train.class_weights, data)
    check_thresholds(spec.train.tune_thresholds, data)
    bare = _unlabelled(spec, data)
    source = _source(spec)
    for model in filter(None, (spec.distill.teacher, spec.model.backbone)):
        warn_diverged(model, display.tell)
    # Read before the tokenizer, whose loader reads it too and would say less of a damaged one.
    config = models.read_config(source)
    tokenizer = load_tokenizer(source, spec.data.lowercase)
    folders = {source, _teacher_folder(spec) or source}
    for name in folders:
        limit_length_(tokenizer, models.read_config(name))
    # A student without segments leaves them out by itself; its teacher may need them.
    has_segments = any(models.has_segments(name) for name in folders)
    teacher_pairs = _teacher_pairs(spec)
    progress, is_apart = _tokenising(display), (spec.model.pairs or teacher_pairs) == "apart"
    train, valid = (
        make_features(rows, data.task, data.labels, tokenizer, spec.data, has_segments, progress, is_apart)
        for rows in (data.train, data.valid)
    )
    unlabelled = None
    if bare is not None:
        unlabelled = make_features(
            bare, data.task, data.labels, tokenizer, spec.data, has_segments, progress, is_apart
        )
    largest = max(part.largest_id for part in (train, valid, unlabelled) if part is not None)
    check_ids(largest, int(config.vocab_size), tokenizer)
    fewer = [name for name in folders if has_fewer_tokens(config_of(resolve(name)))]
    for name in fewer:
        check_model(spec, data.task.kind, name, is_read=name == source)
    known = num_layers(config) - 1
    _check_layers(spec.model, known)
    if spec.method.tie_layers is not None:
        own = spec.distill.student_layers
        kept = spec.model.first_layers or spec.model.keep_layers or known
        check_groups(kept if own is None else len(own), spec.method.tie_layers)
    teacher = None
    if spec.distill.teacher is not None:
        teacher = load_teacher(spec.distill.teacher)
        check_teacher(teacher, data.task, data.labels, tokenizer)
        check_segments(teacher, train)
        if data.task.kind == "embedding" and teacher.model.config.hidden_size != config.hidden_size:
            raise BermoError(
                f"The teacher's vectors have {teacher.model.config.hidden_size} units, the student's"
                f" {config.hidden_size}. Choose a student of the same width, or --student-layers."
            )
    num_rows = len(train) + (0 if unlabelled is None else len(unlabelled))
    facts = replace(_facts(source, config, data, num_rows), teacher_pairs=teacher_pairs)
    resolved = resolve_defaults(spec, facts)
    return Prepared(
        teacher=teacher,
        answers=_answers(spec, data, bare),
        layers=kept_layers(spec.model, known, train),
        spec=resolved.spec,
        facts=facts,
        reasons=resolved.reasons,
        data=data,
        digest=_digest(spec, data, bare),
        tokenizer=tokenizer,
        train=train,
        valid=valid,
        unlabelled=unlabelled,
        has_segments=has_segments,
    )


def with_pairs(prepared: Prepared, pairs: Pairs) -> Prepared:
    """Return a run whose features are of joined pairs with another way to read them."""
    spec = replace_in(prepared.spec, model={"pairs": pairs})
    if pairs == "joined":
        return replace(prepared, spec=spec)
    data, tokenizer, segments = prepared.data, prepared.tokenizer, prepared.has_segments
    bare = [] if prepared.unlabelled is None else [prepared.unlabelled.rows]
    train, valid, *unlabelled = (
        make_features(rows, data.task, data.labels, tokenizer, spec.data, segments, is_apart=True)
        for rows in (data.train, data.valid, *bare)
    )
    return replace(prepared, spec=spec, train=train, valid=valid, unlabelled=next(iter(unlabelled), None))


def check_apart(spec: RunSpec, rows: ApartRows) -> None:
    """Refuse a training of a sentence encoder that has nothing to learn from, or not from whole batches."""
    size = len(rows.texts[0])
    if size == 1 and spec.distill.teacher is None:
        raise BermoError(
            f"{spec.data.train} has texts alone, and nothing says what their vectors should be. Give pairs,"
            " or a teacher (bermo compress --texts does all of it)."
        )
    if size == 1 and spec.distill.parts.hard:
        raise BermoError(
            f"{spec.data.train} has texts alone, without labels. Pass --distill-hard 0 --distill-soft 1."
        )
    if rows.labels is None and spec.train.accumulation > 1 and size > 1:
        raise BermoError("Pairs are told apart within whole batches. Leave --accumulation out.")


def longest_text(prepared: Prepared) -> int:
    """Tokens of the longest text that the model reads."""
    return min(prepared.spec.data.max_length, prepared.tokenizer.model_max_length)


def _check_layers(spec: ModelSpec, known: int) -> None:
    for name, count in (("first-layers", spec.first_layers), ("keep-layers", spec.keep_layers)):
        if count is not None and count > known:
            raise BermoError(
                f"{name} must be at most {known}, as many as {spec.backbone} has, but got {count}."
            )


def _facts(source: str, config: transformers.PretrainedConfig, data: TaskData, num_rows: int) -> Facts:
    """Gather what open values of the spec are chosen from."""
    return Facts(
        width=int(config.hidden_size),
        is_box=resolve(source) == resolve("box"),
        kind=data.task.kind,
        num_rows=num_rows,
        family_pooling=family_of(config).pooling,
        trained_pooling=trained_pooling(source),
        has_pairs=isinstance(data.train, TextRows) and data.train.second is not None,
        has_fewer_tokens=has_fewer_tokens(config_of(resolve(source))),
    )


def _source(spec: RunSpec) -> str:
    """Where the tokenizer comes from: the encoder, or the teacher whose layers become the student."""
    teacher = _teacher_folder(spec)
    return spec.model.backbone if teacher is None or not spec.has_teachers_layers else teacher


def _teacher_folder(spec: RunSpec) -> str | None:
    return None if spec.distill.teacher is None else str(model_folder(spec.distill.teacher))


def _teacher_pairs(spec: RunSpec) -> Pairs | None:
    folder = _teacher_folder(spec)
    return None if folder is None else getattr(config_of(folder), "pairs", "joined")


def _unlabelled(spec: RunSpec, data: TaskData) -> Rows | None:
    path = spec.distill.unlabelled
    if path is None:
        return None
    return read_unlabelled(Path(path).expanduser(), data, spec.data.text, spec.data.separator_character)


def _answers(spec: RunSpec, data: TaskData, bare: Rows | None) -> npt.NDArray[np.float32] | None:
    if spec.distill.answers is None:
        return None
    if data.task.kind != "classification":
        raise BermoError(
            f"--teacher-answers are probabilities of classes, but {data.task.name} is {data.task.kind}. Use"
            " --teacher with a trained model."
        )
    path = Path(spec.distill.answers)
    parts = [rows for rows in (data.train, bare) if rows is not None]
    return np.concatenate([read_answers(path, rows, data.labels, spec.data.text) for rows in parts])


def _digest(spec: RunSpec, data: TaskData, bare: Rows | None) -> str:
    """Name the content that decides the numbers: the rows, the user's own metric, the teacher's weights."""
    total = hashlib.sha256(data.digest.encode())
    if bare is not None:
        total.update(digest(bare).encode())
    if data.task.own_metric is not None:
        total.update(f"{data.task.own_metric.name} {data.task.own_metric.digest}".encode())
    teacher = _teacher_folder(spec)
    files = sorted(Path(teacher).glob("*.safetensors")) if teacher is not None else []
    files += [] if spec.distill.answers is None else [Path(spec.distill.answers)]
    for file in files:
        with file.open("rb") as handle:
            total.update(hashlib.file_digest(handle, "sha256").digest())
    return total.hexdigest()


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
    sentences = [*prepared.data.notes, *prepared.data.doubts]
    sentences.append(f"{len(train):,} training and {len(valid):,} validation inputs.")
    if prepared.unlabelled is not None:
        name = Path(str(spec.distill.unlabelled)).name
        sentences.append(f"{len(prepared.unlabelled):,} texts without labels ({name}), taught alone.")
    if prepared.reasons:
        sentences.append(f"Chosen for them: {', '.join(prepared.reasons)}.")
    if prepared.layers is not None and spec.model.keep_layers is not None:
        sentences.append(f"Of the encoder's layers {', '.join(map(str, prepared.layers))} are kept.")
    longest = min(spec.data.max_length, prepared.tokenizer.model_max_length)
    if longest < spec.data.max_length:
        sentences.append(f"The encoder reads {longest} tokens at most, not {spec.data.max_length}.")
    if train.truncated_share > 0:
        sentences.append(
            f"{train.truncated_share:.1%} of the training texts are longer than {longest} tokens and are cut"
            " (--max-length)."
        )
    return sentences


def build_model(prepared: Prepared) -> models.BermoPreTrainedModel:
    """Build the encoder, mix and head for the task; what starts at random is drawn from torch's generator."""
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
        case "multi-label":
            extra = names | {"problem_type": MULTI_LABEL}
            kind = models.BermoForSequenceClassification
        case "regression":
            kind, extra = models.BermoForSequenceClassification, {"num_labels": 1}
        case "tagging":
            kind, extra = models.BermoForTokenClassification, names
        case "span":
            kind, extra = models.BermoForQuestionAnswering, {}
        case "choice":
            kind, extra = models.BermoForMultipleChoice, {}
        case "reranker":
            extra = {"num_labels": 1, "problem_type": MULTI_LABEL}
            kind = models.BermoForSequenceClassification
        case "embedding":
            settings = replace(settings_of(resolve(model_spec.backbone)), max_length=longest_text(prepared))
            kind, extra = BermoForSentenceEmbedding, {"sentence": options_of(settings)}
            model_spec = replace(model_spec, pooling=model_spec.pooling or settings.pooling)
    backbone = model_spec.backbone
    model = kind.from_backbone(
        load_config(backbone) if model_spec.untrained else backbone,
        mix=model_spec.mix,
        pooling=model_spec.pooling,
        head_dropout=model_spec.head_dropout,
        pairs=chosen(model_spec.pairs),
        **extra,
    )
    if prepared.layers is None:
        return model
    return student_from_teacher(model, prepared.layers, model_spec.mix)
