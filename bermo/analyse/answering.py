"""What a model answers to one sentence, as numbers that can be followed: its head, its answer, its score.

    label, labels, value   the head of a trained model on the text's vector
    tags                   its head on each token
    words                  a masked-LM head at the mask tokens of the sentence
    vector                 a model without a head: the text's vector itself, and its cosine with another one

Axes: B copies of the sentence, T tokens, D units, K chosen numbers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from bermo.analyse.knowledge import load_masked
from bermo.encoders.backbone import load_encoder as load_plain
from bermo.encoders.trust import config_of
from bermo.errors import BermoError
from bermo.models.config import BermoConfig
from bermo.models.sentence import settings_of
from bermo.nn.heads import MULTI_LABEL, masked_mean, pooled_rows, take_rows
from bermo.runs.model_files import resolve_model
from bermo.runs.trained import open_trained
from bermo.spec import Pooling
from bermo.vectors import Encoder

AnswerKind: TypeAlias = Literal["label", "labels", "value", "tags", "words", "vector"]
KIND_OF: dict[str, AnswerKind] = {
    "BermoForTokenClassification": "tags",
    "BermoForMaskedLM": "words",
}
NO_ANSWER = "Its vector is looked at instead of an answer."


@dataclass(frozen=True, eq=False, kw_only=True)
class Answerer:
    """A head on vectors (B, T, D), what its numbers are called, and how texts are pooled for it."""

    kind: AnswerKind
    pooling: Pooling
    head: Callable[[Tensor], Tensor] | None = None
    labels: tuple[str, ...] = ()
    num_texts: int = 1
    """How many texts an example of the task has."""
    reason: str = ""
    """Why the vector stands for an answer although the model may have a head."""

    def logits(self, vectors: Tensor, mask: Tensor, rows: Tensor) -> Tensor:
        """Return (B, K, C): scores of C answers at the K places `rows` (B, K), or the vector as (B, 1, D)."""
        if self.kind in ("tags", "words"):
            return cast(Callable[[Tensor], Tensor], self.head)(take_rows(vectors, rows))
        if self.pooling == "mean":
            pooled = masked_mean(vectors, mask)
        else:
            pooled = take_rows(vectors, pooled_rows(self.pooling, mask))[:, 0]
        return (pooled if self.head is None else self.head(pooled))[:, None]

    def choose(self, logits: Tensor) -> Tensor:
        """Return the answer's index at each place, (1, K, 1); all units of a vector."""
        if self.kind == "vector":
            return torch.arange(logits.shape[-1], device=logits.device)[None, None]
        return logits.argmax(-1, keepdim=True)

    def chosen(self, logits: Tensor, answer: Tensor) -> Tensor:
        """Return the numbers that make the answer, (B, K)."""
        return logits.gather(-1, answer.expand(len(logits), -1, -1)).flatten(1)

    def score(self, logits: Tensor, answer: Tensor, whole: Tensor) -> Tensor:
        """Return how far logits say the same answer, (B,): probability, value, or cosine with the whole's."""
        match self.kind:
            case "vector":
                return cosine_similarity(logits[:, 0], whole[:, 0], dim=-1)
            case "value":
                return logits[:, 0, 0]
            case "labels":
                return self.chosen(torch.sigmoid(logits), answer).mean(1)
            case _:
                return self.chosen(torch.softmax(logits.float(), -1), answer).mean(1)

    def say(self, logits: Tensor, name_of: Callable[[int], str]) -> str:
        """Write what one copy's logits (K, C) answer."""
        match self.kind:
            case "vector":
                return ""
            case "value":
                return f"{float(logits[0, 0]):.3f}"
            case "labels":
                sure = [self.labels[k] for k, p in enumerate(torch.sigmoid(logits[0])) if p > 0.5]
                return ", ".join(sure) or "none"
            case "label":
                return self.labels[int(logits[0].argmax())]
            case "tags":
                return " ".join(self.labels[int(row.argmax())] for row in logits)
            case "words":
                return " ".join(name_of(int(row.argmax())) for row in logits)


def load_answerer(source: str, encoder: Encoder) -> Answerer:
    """Return the head of a model, or its vector where it has none that can be read layer by layer."""
    folder = resolve_model(source)
    config = config_of(folder)
    if not isinstance(config, BermoConfig):
        return _plain(source, folder, encoder)
    kind, pooling = (config.architectures or ["nothing"])[0], cast(Pooling, config.pooling)
    if kind == "BermoForMaskedLM":
        return _words(load_masked(source).head.to(encoder.device), encoder)
    if kind == "BermoForSentenceEmbedding":
        return Answerer(kind="vector", pooling=pooling)
    if kind not in ("BermoForSequenceClassification", "BermoForTokenClassification"):
        reason = f"The answer of a {kind} needs more than a sentence. {NO_ANSWER}"
        return Answerer(kind="vector", pooling=encoder.pooling, reason="" if kind == "BermoModel" else reason)
    opened = open_trained(source)
    if opened.is_apart:
        reason = f"{encoder.name} reads the two texts of a pair apart. {NO_ANSWER}"
        return Answerer(kind="vector", pooling=pooling, reason=reason)
    model = opened.load_bermo_model().requires_grad_(False)
    return Answerer(
        kind=KIND_OF.get(kind) or _text_kind(config),
        pooling=pooling,
        head=cast(nn.Module, model.head).to(encoder.device),
        labels=tuple(opened.trained.labels),
        num_texts=max(1, len(opened.trained.text)),
    )


def _text_kind(config: BermoConfig) -> AnswerKind:
    if config.problem_type == MULTI_LABEL:
        return "labels"
    return "value" if config.num_labels == 1 else "label"


def _words(head: Callable[[Tensor], Tensor], encoder: Encoder) -> Answerer:
    if encoder.tokenizer.mask_token_id is None:
        reason = f"The tokenizer of {encoder.name} has no mask token. {NO_ANSWER}"
        return Answerer(kind="vector", pooling=encoder.pooling, reason=reason)
    return Answerer(kind="words", pooling=encoder.pooling, head=head)


def _plain(source: str, folder: str, encoder: Encoder) -> Answerer:
    """A model of transformers: its masked-LM head where it brings one, else the text's vector."""
    try:
        has_words = load_plain(folder, with_head=True).head is not None
    except BermoError:
        has_words = False
    if has_words:
        return _words(load_masked(source).head.to(encoder.device), encoder)
    if not Path(folder).is_dir():
        return Answerer(kind="vector", pooling=encoder.pooling)
    return Answerer(kind="vector", pooling=settings_of(Path(folder)).pooling)


def places_of(
    answerer: Answerer, ids: Sequence[int], special: Sequence[bool], mask_id: int | None
) -> list[int]:
    """Return the tokens that the head answers for: the masks, every token that is not special, or none."""
    if answerer.kind == "words":
        return [k for k, token in enumerate(ids) if token == mask_id]
    return [k for k, is_special in enumerate(special) if not is_special] if answerer.kind == "tags" else []
