"""Distillation: a student learns from the labels and from a teacher's logits and hidden states.

    loss = hard · labels + soft · logits + hidden · layers + relations · attention + embeddings · h_0 + …

The weights default to the paper's 0.1 · CE + 0.9 · KL(teacher ‖ student) · T², T = 2; those of other papers
are named in distill_spec.py. The terms are those of
nn/losses.py, each a mean over the same rows or tokens as the labels' loss. Where only the teacher's logits
are needed, the batch brings them from a cache; else the teacher runs in each step.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from bermo.data.tasks import Kind
from bermo.encoders.projections import Projections
from bermo.errors import BermoError
from bermo.methods.checks import check_distill
from bermo.methods.teacher import LOGITS, Teacher
from bermo.models.config import BermoConfig
from bermo.models.tasks import BermoPreTrainedModel
from bermo.nn.heads import IGNORED, pooled_rows, take_rows
from bermo.nn.losses import (
    attention_distance,
    cosine_distance,
    even_map,
    hidden_distance,
    last_attention_distance,
    mean_over,
    neighbour_distance,
    patient_distance,
    relation_distance,
    soft_labels,
    soft_spans,
    soft_tags,
    soft_targets,
    soft_values,
    soft_vectors,
)
from bermo.spec import DistillSpec
from bermo.training.job import Batch, Objective

NAME = "distillation"
"""The student's submodule in which the learned projections live while it is taught."""


def needs_only_logits(spec: DistillSpec) -> bool:
    """Tell whether the teacher's cached logits are enough, so that it need not run in training."""
    return not spec.has_inner


class DistilledLoss:
    """The labels' loss plus the terms of a teacher, whose logits come with the batch or who runs in the step.

    Between `attach_` and `detach_` the learned projections (only where widths differ) are a submodule of the
    student, so that optimiser, clipping, checkpoints and several processes treat them as any other weight. A
    student is saved inside `set_aside(student)`. The queries, keys and values of both models are read by
    hooks on their layers.
    """

    def __init__(
        self,
        hard: Objective,
        teacher: Teacher,
        student: BermoPreTrainedModel,
        spec: DistillSpec,
    ) -> None:
        check_distill(spec)
        spec = spec.parts
        self.hard, self.teacher, self.spec = hard, teacher, spec
        if spec.attention or spec.last_attention:
            self.num_heads = _heads(_config(student), _config(teacher.model))
        self.layer_map = _layer_map(spec, _config(student), _config(teacher.model))
        self.projections = _projections(spec, _config(student), _config(teacher.model))
        self.call = replace(
            hard.call,
            only_for_loss=hard.call.only_for_loss | {LOGITS},
            hidden_states=any((spec.hidden, spec.embeddings, spec.cosine, spec.patient)),
        )
        self._relations: tuple[Projections, Projections] | None = None

    def parameters(self) -> Iterator[nn.Parameter]:
        """The learned projections."""
        return self.projections.parameters()

    def attach_(self, student: BermoPreTrainedModel) -> None:
        """Make the projections a part of the student; put hooks on both models if relations are learned."""
        if len(self.projections):
            student.add_module(NAME, self.projections.to(student.device))
        if self.spec.relations or self.spec.attention or self.spec.last_attention:
            is_every = self.spec.attention > 0
            self._relations = Projections(student, is_every), Projections(self.teacher.model, is_every)

    def detach_(self, student: BermoPreTrainedModel) -> None:
        """Take projections and hooks off student and teacher again."""
        if NAME in student._modules:
            delattr(student, NAME)
        for projections in self._relations or ():
            projections.remove()
        self._relations = None

    def count(self, batch: Batch) -> int:
        """Return the number of labels, as the labels' loss counts them."""
        return self.hard.count(batch)

    def __call__(self, outputs: Any, batch: Batch) -> Tensor:
        """Return the weighted sum; a term of the teacher with weight 0 is not computed.

        Texts without labels have no loss of their own.
        """
        is_bare = self.teacher.trained.task.kind == "embedding" and not self.spec.hard
        loss = logits_of(outputs).new_zeros(()) if is_bare else self.spec.hard * self.hard(outputs, batch)
        cached = batch.get(LOGITS)
        teacher = None if cached is not None and needs_only_logits(self.spec) else self._call_teacher(batch)
        counts_B, mask_BT = counts_of(batch), batch["attention_mask"].flatten(0, -2)
        if self.spec.soft:
            logits = logits_of(teacher) if cached is None else cached
            kind, temperature = self.teacher.trained.task.kind, self.spec.temperature
            losses_B = answer_distance(kind, logits_of(outputs), logits, batch, temperature)
            loss = loss + self.spec.soft * mean_over(losses_B, counts_B)
        if self.spec.neighbours:
            vectors = logits_of(teacher) if cached is None else cached
            losses_B = neighbour_distance(logits_of(outputs), vectors)
            loss = loss + self.spec.neighbours * mean_over(losses_B, counts_B)
        if teacher is not None:
            inner_B = self._inner(outputs.hidden_states, teacher.hidden_states, mask_BT)
            # Each ending of a multiple choice is a sequence, with an equal part of its row's weight.
            endings = len(mask_BT) // len(counts_B)
            loss = loss + mean_over(inner_B.view(-1, endings).mean(1), counts_B)
        return loss

    def _call_teacher(self, batch: Batch) -> Any:
        teacher, device = self.teacher.model, batch["input_ids"].device
        if teacher.device != device:
            teacher.to(device)  # type: ignore[arg-type]
        with torch.no_grad():
            return teacher(**self.call.arguments(batch))

    def _inner(self, student: Any, teacher: Any, mask_BT: Tensor) -> Tensor:
        """Return the weighted distances to the teacher's hidden states and relations, one a sequence."""
        spec, total_B = self.spec, torch.zeros(len(mask_BT), device=mask_BT.device)
        if spec.embeddings:
            project = self._projection("embeddings")
            distance_B = hidden_distance(project(student[0]), teacher[0], mask_BT)
            total_B = total_B + spec.embeddings * distance_B
        if spec.hidden:
            project = self._projection("hidden")
            for own_layer, layer in enumerate(self.layer_map, start=1):
                distance_B = hidden_distance(project(student[own_layer]), teacher[layer], mask_BT)
                total_B = total_B + self._of_layer(spec.hidden) * distance_B
        if spec.cosine:
            project = self._projection("cosine")
            total_B = total_B + spec.cosine * cosine_distance(project(student[-1]), teacher[-1], mask_BT)
        if spec.patient:
            total_B = total_B + spec.patient * self._patience(student, teacher, mask_BT)
        if self._relations is not None:
            own, theirs = (projections.take_all() for projections in self._relations)
            total_B = total_B + self._attention(own, theirs, mask_BT)
        return total_B

    def _of_layer(self, weight: float) -> float:
        """One layer's part of a weight: the mean over layers, so that it means the same at any depth, unless
        a paper sums.
        """
        return weight if self.spec.sums_layers else weight / len(self.layer_map)

    def _patience(self, student: Any, teacher: Any, mask_BT: Tensor) -> Tensor:
        """Return how far the first tokens of all layers but the last point from the teacher's."""
        project, first_B1 = self._projection("patient"), pooled_rows("first", mask_BT)
        layers = self.layer_map[:-1] or self.layer_map
        gaps = [
            patient_distance(
                take_rows(project(student[own]), first_B1)[:, 0], take_rows(teacher[layer], first_B1)[:, 0]
            )
            for own, layer in enumerate(layers, start=1)
        ]
        return torch.stack(gaps).mean(0)

    def _attention(self, own: list[list[Tensor]], theirs: list[list[Tensor]], mask_BT: Tensor) -> Tensor:
        """Return the weighted distances of queries, keys and values, one a sequence."""
        spec, total_B = self.spec, torch.zeros(len(mask_BT), device=mask_BT.device)
        if spec.relations:
            total_B = total_B + spec.relations * relation_distance(own[-1], theirs[-1], mask_BT)
        if spec.last_attention:
            distance_B = last_attention_distance(own[-1], theirs[-1], mask_BT, self.num_heads)
            total_B = total_B + spec.last_attention * distance_B
        if spec.attention:
            for layer, its in zip(own, self.layer_map, strict=True):
                distance_B = attention_distance(layer, theirs[its - 1], mask_BT, self.num_heads)
                total_B = total_B + self._of_layer(spec.attention) * distance_B
        return total_B

    def _projection(self, name: str) -> nn.Module:
        return self.projections[name] if name in self.projections else nn.Identity()


def answer_distance(
    kind: Kind, student: Tensor, teacher: Tensor, batch: Batch, temperature: float = 1.0
) -> Tensor:
    """Return how far a student's answers are from a teacher's, one number a row, as suits the task."""
    match kind:
        case "regression":
            return soft_values(student, teacher)
        case "embedding":
            return soft_vectors(student, teacher)
        case "reranker" | "multi-label":
            return soft_labels(student, teacher, temperature)
        case "tagging":
            return soft_tags(student, teacher, batch["labels"], temperature)
        case "span":
            return soft_spans(student, teacher, batch["attention_mask"], temperature)
        case _:
            return soft_targets(student, teacher, temperature)


@contextmanager
def set_aside(model: nn.Module, name: str = NAME) -> Iterator[None]:
    """Take the learned projections, or another part that only training has, out of a model inside the block,
    so that they are not saved with it.
    """
    projections = model._modules.pop(name, None)
    try:
        yield
    finally:
        if projections is not None:
            model.add_module(name, projections)


def logits_of(outputs: Any) -> Tensor:
    """Return (B, C), (B, T, C) for tags, or (B, T, 2) for the start and end of spans."""
    if "start_logits" in outputs:
        return torch.stack([outputs.start_logits, outputs.end_logits], dim=-1)
    return cast(Tensor, outputs.logits)


def counts_of(batch: Batch) -> Tensor:
    """Return how much of each row the labels' loss counts: its labelled tokens, or 1 for the row itself."""
    labels = batch.get("labels")
    if labels is None:
        return torch.ones(len(batch["input_ids"]), device=batch["input_ids"].device)
    return (labels != IGNORED).view(len(labels), -1).sum(1)


def _layer_map(spec: DistillSpec, student: BermoConfig, teacher: BermoConfig) -> tuple[int, ...]:
    own, theirs = student.num_hidden_layers, teacher.num_hidden_layers
    if spec.layer_map is None:
        return even_map(own, theirs)
    if len(spec.layer_map) != own or not all(1 <= layer <= theirs for layer in spec.layer_map):
        raise BermoError(
            f"layer-map must name a teacher layer, 1 to {theirs}, for each of the student's {own} layers,"
            f" but got {spec.layer_map}. For example: {','.join(map(str, even_map(own, theirs)))}."
        )
    return spec.layer_map


def _heads(student: BermoConfig, teacher: BermoConfig) -> int:
    """Return how many heads each layer of both has; attention is compared head by head."""
    counts = [config.backbone.num_attention_heads for config in (student, teacher)]
    if counts[0] != counts[1]:
        raise BermoError(
            f"The student has {counts[0]} attention heads a layer and its teacher {counts[1]}, so that their"
            " attention cannot be compared head by head. Use --distill-relations, which needs no equal heads."
        )
    if student.structure is not None or teacher.structure is not None:
        raise BermoError(
            "The student or its teacher was shrunk, so that heads are missing whose attention would be"
            " compared. Use --distill-hidden or --distill-cosine."
        )
    return int(counts[0])


def _projections(spec: DistillSpec, student: BermoConfig, teacher: BermoConfig) -> nn.ModuleDict:
    """Build the maps of hidden states and embeddings to the teacher's width, where widths differ."""
    sizes = student.hidden_size, teacher.hidden_size
    wanted = {name: getattr(spec, name) for name in ("hidden", "embeddings", "cosine", "patient")}
    return nn.ModuleDict(
        {name: nn.Linear(*sizes, bias=False) for name, weight in wanted.items() if weight}
        if sizes[0] != sizes[1]
        else {}
    )


def _config(model: BermoPreTrainedModel) -> BermoConfig:
    return cast(BermoConfig, model.config)
