"""Model, batches, objective, parameter groups and hooks of one training, made from a spec.

objective = labels [+ contrast, contrast.py] [+ teacher, distill.py] [+ penalty of masks, prune.py]
hooks     = [layers that replace others, theseus.py] [masks, prune.py] [mixout.py] [int8, quantize.py]
            [the mean of the weights, training/average.py]
loss of a batch = one pass, or several (smooth.py)
"""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn
from transformers.utils import ModelOutput

from bermo.data.batches import LABEL_NAMES, BatchPlan
from bermo.data.features import Features
from bermo.data.scoring import TaskScores
from bermo.data.tensors import collate
from bermo.encoders.card import Evaluated
from bermo.encoders.tied import num_groups
from bermo.files import whole_folder, write_text
from bermo.methods.answers import AnsweredLoss
from bermo.methods.checks import check_tied
from bermo.methods.class_weights import class_weights
from bermo.methods.contrast import ContrastLoss
from bermo.methods.distill import DistilledLoss, needs_only_logits, set_aside
from bermo.methods.evaluate import eval_rows
from bermo.methods.head import start_head_
from bermo.methods.keep_tokens import NAME as TOKENS
from bermo.methods.keep_tokens import check_reading, start_filtering_
from bermo.methods.lora import rate_of_lora, start_lora_
from bermo.methods.mix_schedule import MixHook, shipped_form
from bermo.methods.mixout import MixoutHook
from bermo.methods.prepare import Prepared, build_model
from bermo.methods.prune import PrunedLoss, PruneHook, start_pruning_
from bermo.methods.quantize import SPLIT_NOTE, is_split, start_quantizing_
from bermo.methods.rewind import Rewind
from bermo.methods.smooth import make_loss_of
from bermo.methods.student import student_from_teacher
from bermo.methods.teacher import Logits, TaughtBatches, Teacher, teacher_logits
from bermo.methods.theseus import make_successor, start_replacing_
from bermo.methods.thresholds import shifted
from bermo.methods.unlabelled import HAS_LABEL, PartlyLabelled
from bermo.models.encoder import model_card
from bermo.models.low_rank import factorise_
from bermo.models.quantized import MARK, without_quantizers
from bermo.models.tasks import BermoPreTrainedModel
from bermo.models.tied import tie_layers_
from bermo.nn.heads import IGNORED, labelled_loss, weighted_loss
from bermo.nn.masks import Mask
from bermo.progress import Display
from bermo.pruning.fold import folded_state
from bermo.pruning.schedule import RoundSchedule
from bermo.runs.task_file import trained_task, write_task
from bermo.spec import chosen
from bermo.sums import write_sums
from bermo.training.average import NAME as AVERAGE
from bermo.training.average import average_, averaged
from bermo.training.job import Batch, Batches, Hook, LossOf, ModelCall, Objective
from bermo.training.schedule import rate_groups

FORGETTING = 2.0
"""How fast the mean of the weights forgets: it reaches back over about half of the steps."""


@dataclass(frozen=True, kw_only=True)
class Assembled:
    """All that `fit` needs for one seed, except the evaluation."""

    model: BermoPreTrainedModel
    batches: Batches
    objective: Objective
    groups: list[dict[str, Any]]
    hooks: tuple[Hook, ...]
    loss_of: LossOf
    masked: tuple[tuple[Mask, nn.Parameter], ...]
    best_from: int
    padding_share: float


@dataclass(frozen=True)
class TaskBatches:
    """The training rows of a task, in the order of the plan."""

    features: Features
    plan: BatchPlan
    widths: tuple[int, ...] = ()
    """The lengths to which batches are padded, so that few shapes occur; none: no more than needed."""

    def epoch(self, epoch: int) -> list[np.ndarray]:
        return self.plan.epoch(epoch)

    def collate(self, rows: np.ndarray) -> Batch:
        return collate(self.features, rows, self.widths)

    def padding_share(self) -> float:
        """The share of an epoch's tokens that is padding."""
        return self.plan.padding_share(widths=self.widths)


class LabelLoss:
    """The loss of the labels as the model defines it: a mean over rows or, for tags, over labelled tokens.

    With weights each row, word or label that a row has counts by that of its class. Of a batch in which some
    rows have no label, these add 0.
    """

    call = ModelCall(only_for_loss=frozenset((*LABEL_NAMES, HAS_LABEL)))

    def __init__(self, model: BermoPreTrainedModel, weights_C: Tensor | None = None) -> None:
        self.loss_of = cast(Callable[..., Tensor], model.loss_of)
        self.problem_type = model.config.problem_type
        self.weights_C = weights_C

    def count(self, batch: Batch) -> int:
        labels = batch.get("labels")
        return int((labels != IGNORED).sum()) if labels is not None else len(batch["input_ids"])

    def __call__(self, outputs: ModelOutput, batch: Batch) -> Tensor:
        if HAS_LABEL in batch:
            has_label_B = batch[HAS_LABEL]
            return labelled_loss(
                outputs["logits"], batch["labels"], has_label_B, self.problem_type, self.weights_C
            )
        if self.weights_C is not None:
            return weighted_loss(outputs["logits"], batch["labels"], self.weights_C)
        return self.loss_of(outputs, **{name: batch[name] for name in LABEL_NAMES if name in batch})


@dataclass(kw_only=True)
class _Parts:
    """A training that grows: each method adds a loss, hooks, weights with a rate of their own."""

    model: BermoPreTrainedModel
    batches: Batches
    objective: Objective
    rates: list[tuple[Iterable[nn.Parameter], float]]
    hooks: list[Hook] = field(default_factory=list)
    masked: tuple[tuple[Mask, nn.Parameter], ...] = ()
    best_from: int = 0
    """The first step whose model may be kept."""


def assemble(prepared: Prepared, seed: int, display: Display, accelerator: Accelerator) -> Assembled:
    """Make one seed's training; random weights are drawn from the seed."""
    spec = prepared.spec
    own = _own_batches(prepared, seed, accelerator)
    torch.manual_seed(seed)
    model = _model(prepared, prepared.teacher)
    if model.config.kept_tokens is not None:
        check_reading(model, spec.model.backbone)
    weights_C = class_weights(spec.train.class_weights, prepared.train)
    # Before the head: it starts from what the mix gives at the first step.
    path = spec.method.mix_path
    moving = None if path is None else MixHook(model, path, prepared.num_steps)
    if spec.model.head == "probe":
        start_head_(model, prepared.train, eval_rows(spec), accelerator, weights_C)
    parts = _Parts(
        model=model,
        batches=own if prepared.unlabelled is None else PartlyLabelled(own, len(prepared.train)),
        objective=LabelLoss(model, None if weights_C is None else weights_C.to(accelerator.device)),
        rates=[(model.mix.parameters(), spec.train.mix_lr)],
    )
    _add_contrast(parts, prepared, accelerator)
    _add_teacher(parts, prepared, seed, accelerator, display)
    _add_pruning(parts, prepared, seed)
    _add_fewer_tokens(parts, prepared)
    if spec.method.lora is not None:
        rate = rate_of_lora(chosen(spec.train.lr), spec.method.lora_lr)
        parts.rates.append((start_lora_(model, spec.method.lora), rate))
    if spec.method.mixout is not None:
        parts.hooks.append(MixoutHook(model, spec.method.mixout, seed))
    if moving is not None:
        parts.hooks.append(moving)
        parts.best_from = max(parts.best_from, moving.last_step)
    _add_quantizing(parts, prepared, display)
    if spec.train.average == "on":
        parts.hooks.append(average_(model, forgetting=FORGETTING))
    return Assembled(
        model=model,
        batches=parts.batches,
        objective=parts.objective,
        groups=rate_groups(model, spec.train, parts.rates),
        hooks=tuple(parts.hooks),
        loss_of=make_loss_of(spec.method, model, prepared.data.task.kind),
        masked=parts.masked,
        best_from=parts.best_from,
        padding_share=own.padding_share(),
    )


def _own_batches(prepared: Prepared, seed: int, accelerator: Accelerator) -> TaskBatches:
    lengths, train = prepared.learned.lengths, prepared.spec.train
    plan = BatchPlan(lengths, chosen(train.batch_size), seed, grouped=train.group_lengths)
    is_graphed = accelerator.device.type == "cuda"
    return TaskBatches(prepared.learned, plan, plan.widths(chosen(train.epochs)) if is_graphed else ())


def _add_contrast(parts: _Parts, prepared: Prepared, accelerator: Accelerator) -> None:
    train, processes = prepared.spec.train, accelerator.num_processes
    if train.contrast:
        most_rows = math.ceil(chosen(train.batch_size) / processes)
        parts.objective = ContrastLoss(parts.objective, parts.model, train.contrast, most_rows, processes)


def _add_teacher(
    parts: _Parts, prepared: Prepared, seed: int, accelerator: Accelerator, display: Display
) -> None:
    """Let a teacher's layers be replaced, or its answers and states be learned; or answers from a file."""
    spec, teacher = prepared.spec, prepared.teacher
    if teacher is not None:
        teacher.model.to(accelerator.device)
        if spec.method.theseus is not None:
            parts.hooks.append(start_replacing_(parts.model, teacher.model, prepared.num_steps, seed))
        else:
            taught = DistilledLoss(parts.objective, teacher, parts.model, spec.distill)
            taught.attach_(parts.model)
            parts.objective = taught
            if needs_only_logits(spec.distill):
                logits = _answers(prepared, teacher, accelerator, display)
                parts.batches = TaughtBatches(parts.batches, prepared.learned, logits)
    if prepared.answers is not None:
        parts.objective = AnsweredLoss(parts.objective, prepared.data.task.kind, spec.distill)
        parts.batches = TaughtBatches(parts.batches, prepared.learned, prepared.answers)


def _add_pruning(parts: _Parts, prepared: Prepared, seed: int) -> None:
    spec = prepared.spec.prune
    if spec.method == "none":
        return
    pruner = start_pruning_(parts.model, spec, prepared.num_steps, seed)
    rounds = pruner.schedule
    rewind = Rewind(parts.model, rounds.jumps) if isinstance(rounds, RoundSchedule) else None
    parts.objective = PrunedLoss(parts.objective, pruner.penalty)
    parts.hooks.append(PruneHook(pruner, rewind))
    parts.rates.append((pruner.score_parameters(), spec.lr))
    parts.masked = pruner.simple_masks()
    # The last proximal step comes after that step's evaluation.
    parts.best_from = pruner.schedule.last_step + (spec.method == "proximal")


def _add_fewer_tokens(parts: _Parts, prepared: Prepared) -> None:
    share = prepared.spec.method.keep_tokens
    if share is None:
        return
    tokens = start_filtering_(parts.model, share, prepared.num_steps, prepared.data.task.kind)
    parts.objective = PrunedLoss(parts.objective, tokens.penalty)
    parts.hooks.append(tokens)
    parts.rates.append((tokens.learning.parameters(), tokens.rate))
    parts.best_from = max(parts.best_from, tokens.hard_step + 1)


def _add_quantizing(parts: _Parts, prepared: Prepared, display: Display) -> None:
    spec = prepared.spec
    if spec.method.quantize is None:
        return
    if splits := is_split(spec):
        display.tell(SPLIT_NOTE)
    quantizing = start_quantizing_(parts.model, spec.method, prepared.num_steps, splits)
    parts.hooks.append(quantizing)
    parts.best_from = max(parts.best_from, quantizing.first_step + 1)


def save_model(
    model: nn.Module,
    prepared: Prepared,
    folder: Path,
    latest: TaskScores | None = None,
    shift_C: np.ndarray | None = None,
) -> None:
    """Save a model in training as an ordinary one: masks folded, no projections to a teacher, its scores on
    the card, thresholds in its head.
    """
    task, values = prepared.data.task.name, latest.values if latest is not None else {}
    evaluated = [Evaluated(task=task, metric=name, value=value) for name, value in values.items()]
    as_shipped = shipped_form(cast(BermoPreTrainedModel, model), prepared.spec.method.mix_path)
    with (
        averaged(model),
        whole_folder(folder) as temporary,
        saved_form(model),
        as_shipped,
        shifted(model, shift_C),
    ):
        card = model_card(cast(BermoPreTrainedModel, model), evaluated, prepared.spec.data.hub)
        write_text(temporary / "README.md", card)
        model.save_pretrained(temporary, state_dict=folded_state(model))  # type: ignore[operator]
        prepared.tokenizer.save_pretrained(temporary)
        write_task(temporary, trained_task(prepared.data, prepared.spec.data))
        write_sums(temporary)


@contextmanager
def saved_form(model: nn.Module) -> Iterator[None]:
    """Let a model in training be read as it is saved: no projections to a teacher, no means of weights,
    weights that are not yet int8.
    """
    with set_aside(model), set_aside(model, TOKENS), set_aside(model, AVERAGE), without_quantizers(model):
        yield


def _answers(prepared: Prepared, teacher: Teacher, accelerator: Accelerator, display: Display) -> Logits:
    """Return the teacher's answers to all rows; those without labels have a cache of their own."""
    rows, cache = eval_rows(prepared.spec), prepared.spec.data.cache
    parts = [part for part in (prepared.train, prepared.unlabelled) if part is not None]
    answers = [teacher_logits(teacher, part, rows, accelerator, display, cache) for part in parts]
    return answers[0] if len(answers) == 1 else np.concatenate(answers)


def _model(prepared: Prepared, teacher: Teacher | None) -> BermoPreTrainedModel:
    layers = prepared.spec.distill.student_layers
    if teacher is not None and prepared.spec.method.theseus is not None:
        model = make_successor(
            teacher.model, prepared.spec.method.theseus, chosen(prepared.spec.model.mix.kind)
        )
    elif teacher is None or layers is None:
        model = build_model(prepared)
    else:
        taught = prepared.spec.distill
        model = student_from_teacher(
            teacher.model, layers, prepared.spec.model.mix, taught.student_neurons, taught.student_heads
        )
        model.requires_grad_(True)
    if prepared.spec.method.tie_layers is not None:
        tie_layers_(model, prepared.spec.method.tie_layers)
    elif num_groups(model.core.backbone) is not None:
        check_tied(prepared.spec)
    if prepared.spec.method.has_factors:
        factorise_(model, prepared.spec.method.low_rank, prepared.spec.method.embedding_rank)
    # A student of a model that was trained for int8 is not.
    vars(model.config).pop(MARK, None)
    if prepared.spec.model.freeze_embeddings:
        model.freeze_embeddings_()
    return model
