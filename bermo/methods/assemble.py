"""Model, batches, objective, parameter groups and hooks of one training, made from a spec.

objective = labels [+ contrast, contrast.py] [+ teacher, distill.py] [+ penalty of masks, prune.py]
hooks     = [layers that replace others, theseus.py] [masks, prune.py] [mixout.py] [int8, quantize.py]
loss of a batch = one pass, or several (smooth.py)
"""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn
from transformers.utils import ModelOutput

from bermo.data.batches import BatchPlan, collate
from bermo.data.features import Features
from bermo.data.scoring import TaskScores
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
from bermo.methods.keep_tokens import start_filtering_
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
from bermo.models.tasks import LABEL_NAMES, BermoPreTrainedModel
from bermo.models.tied import tie_layers_
from bermo.nn.heads import IGNORED, labelled_loss, weighted_loss
from bermo.nn.masks import Mask
from bermo.progress import Display
from bermo.pruning.fold import folded_state
from bermo.pruning.schedule import RoundSchedule
from bermo.runs.task_file import trained_task, write_task
from bermo.spec import chosen
from bermo.sums import write_sums
from bermo.training.job import Batch, Batches, Hook, LossOf, ModelCall, Objective
from bermo.training.schedule import rate_groups


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
    longest: int | None = None
    """Pads texts to one of a few lengths up to this one, so that few shapes of batch occur; None: no more
    than needed."""

    def epoch(self, epoch: int) -> list[np.ndarray]:
        return self.plan.epoch(epoch)

    def collate(self, rows: np.ndarray) -> Batch:
        return collate(self.features, rows, self.longest)

    def padding_share(self) -> float:
        """The share of an epoch's tokens that is padding."""
        return self.plan.padding_share(is_bucketed=self.longest is not None)


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


def assemble(prepared: Prepared, seed: int, display: Display, accelerator: Accelerator) -> Assembled:
    """Make one seed's training; random weights are drawn from the seed."""
    spec = prepared.spec
    plan = BatchPlan(
        prepared.learned.lengths, chosen(spec.train.batch_size), seed, grouped=spec.train.group_lengths
    )
    is_graphed = accelerator.device.type == "cuda"
    longest = int(prepared.learned.lengths.max()) if is_graphed else None
    own = TaskBatches(prepared.learned, plan, longest)
    batches: Batches = own
    if prepared.unlabelled is not None:
        batches = PartlyLabelled(own, len(prepared.train))
    teacher = prepared.teacher
    torch.manual_seed(seed)
    model = _model(prepared, teacher)
    weights_C = class_weights(spec.train.class_weights, prepared.train)
    # Before the head: it starts from what the mix gives at the first step.
    path = spec.method.mix_path
    moving = None if path is None else MixHook(model, path, prepared.num_steps)
    if spec.model.head == "probe":
        start_head_(model, prepared.train, eval_rows(spec), accelerator, weights_C)
    if weights_C is not None:
        weights_C = weights_C.to(accelerator.device)
    objective: Objective = LabelLoss(model, weights_C)
    if spec.train.contrast:
        most_rows = math.ceil(chosen(spec.train.batch_size) / accelerator.num_processes)
        objective = ContrastLoss(objective, model, spec.train.contrast, most_rows, accelerator.num_processes)
    fast: list[tuple[Iterable[nn.Parameter], float]] = [(model.mix.parameters(), spec.train.mix_lr)]
    hooks: tuple[Hook, ...] = ()
    if teacher is not None and spec.method.theseus is not None:
        teacher.model.to(accelerator.device)
        hooks = (start_replacing_(model, teacher.model, prepared.num_steps, seed),)
    elif teacher is not None:
        teacher.model.to(accelerator.device)
        taught = DistilledLoss(objective, teacher, model, spec.distill)
        taught.attach_(model)
        objective = taught
        if needs_only_logits(spec.distill):
            logits = _answers(prepared, teacher, accelerator, display)
            batches = TaughtBatches(batches, prepared.learned, logits)
    if prepared.answers is not None:
        objective = AnsweredLoss(objective, prepared.data.task.kind, spec.distill)
        batches = TaughtBatches(batches, prepared.learned, prepared.answers)
    masked: tuple[tuple[Mask, nn.Parameter], ...] = ()
    best_from = 0
    if spec.prune.method != "none":
        pruner = start_pruning_(model, spec.prune, prepared.num_steps, seed)
        rounds = pruner.schedule
        rewind = Rewind(model, rounds.jumps) if isinstance(rounds, RoundSchedule) else None
        objective, hooks = PrunedLoss(objective, pruner.penalty), (*hooks, PruneHook(pruner, rewind))
        fast.append((pruner.score_parameters(), spec.prune.lr))
        masked = pruner.simple_masks()
        # The last proximal step comes after that step's evaluation.
        best_from = pruner.schedule.last_step + (spec.prune.method == "proximal")
    if spec.method.keep_tokens is not None:
        kind = prepared.data.task.kind
        tokens = start_filtering_(model, spec.method.keep_tokens, prepared.num_steps, kind)
        objective, hooks = PrunedLoss(objective, tokens.penalty), (*hooks, tokens)
        fast.append((tokens.learning.parameters(), tokens.rate))
        best_from = max(best_from, tokens.hard_step + 1)
    if spec.method.lora is not None:
        rate = rate_of_lora(chosen(spec.train.lr), spec.method.lora_lr)
        fast.append((start_lora_(model, spec.method.lora), rate))
    if spec.method.mixout is not None:
        hooks = (*hooks, MixoutHook(model, spec.method.mixout, seed))
    if moving is not None:
        hooks, best_from = (*hooks, moving), max(best_from, moving.last_step)
    if spec.method.quantize is not None:
        if splits := is_split(spec):
            display.tell(SPLIT_NOTE)
        quantizing = start_quantizing_(model, spec.method, prepared.num_steps, splits)
        hooks, best_from = (*hooks, quantizing), max(best_from, quantizing.first_step + 1)
    groups = rate_groups(model, spec.train, fast)
    return Assembled(
        model=model,
        batches=batches,
        objective=objective,
        groups=groups,
        hooks=hooks,
        loss_of=make_loss_of(spec.method, model, prepared.data.task.kind),
        masked=masked,
        best_from=best_from,
        padding_share=own.padding_share(),
    )


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
    with whole_folder(folder) as temporary, saved_form(model), as_shipped, shifted(model, shift_C):
        card = model_card(cast(BermoPreTrainedModel, model), evaluated, prepared.spec.data.hub)
        write_text(temporary / "README.md", card)
        model.save_pretrained(temporary, state_dict=folded_state(model))  # type: ignore[operator]
        prepared.tokenizer.save_pretrained(temporary)
        write_task(temporary, trained_task(prepared.data, prepared.spec.data))
        write_sums(temporary)


@contextmanager
def saved_form(model: nn.Module) -> Iterator[None]:
    """Let a model in training be read as it is saved: no projections to a teacher, weights that are not yet
    int8.
    """
    with set_aside(model), set_aside(model, TOKENS), without_quantizers(model):
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
        model = make_successor(teacher.model, prepared.spec.method.theseus, prepared.spec.model.mix.kind)
    elif teacher is None or layers is None:
        model = build_model(prepared)
    else:
        neurons = prepared.spec.distill.student_neurons
        model = student_from_teacher(teacher.model, layers, prepared.spec.model.mix, neurons)
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
