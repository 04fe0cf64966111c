"""What a student learns from a teacher, and the losses of papers as settings of its parts.

distilbert   2 · labels + 5 · answers (T = 2) + 1 · (1 − cos) of the last hidden states; the labels stand
             where the authors have masked words. Sanh et al. 2019
pkd          0.5 · labels + 0.5 · answers (T = 10) + 100 · ‖s/‖s‖ − t/‖t‖‖² / D of the first token, the
             mean over all layers but the last. The authors searched weights of 0.2 to 0.7, temperatures
             of 5 to 20 and factors of 10 to 1000. Sun et al. 2019
tinybert     answers (T = 1) + embeddings + Σ over layers (hidden states + attention scores before the
             softmax), no labels. Jiao et al. 2020
minilm       labels + KL of the last layer's attention + KL of its relations of values; the authors teach
             without labels first. Wang et al. 2020
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from bermo.fields import Rules, option

Paper = Literal["distilbert", "pkd", "tinybert", "minilm"]
PAPERS: Mapping[Paper, Mapping[str, Any]] = {
    "distilbert": {"hard": 2.0, "soft": 5.0, "temperature": 2.0, "cosine": 1.0},
    "pkd": {"hard": 0.5, "soft": 0.5, "temperature": 10.0, "patient": 100.0},
    "tinybert": {
        "hard": 0.0,
        "soft": 1.0,
        "temperature": 1.0,
        "hidden": 1.0,
        "embeddings": 1.0,
        "attention": 1.0,
    },
    "minilm": {"hard": 1.0, "soft": 0.0, "last_attention": 1.0},
}
INNER = ("hidden", "relations", "embeddings", "cosine", "patient", "attention", "last_attention")
"""The weights of parts that read the teacher's layers."""


@dataclass(frozen=True, kw_only=True)
class DistillSpec:
    """What a student learns from a teacher beside the labels."""

    teacher: str | None = option(None, "a run or model folder that teaches")
    named: Paper | None = option(
        None, "learn by the loss of a paper: it sets all weights and the temperature below", "distill-as"
    )
    answers: str | None = option(None, "a file of probabilities, a column a class", "teacher-answers")
    unlabelled: str | None = option(
        None,
        "texts without labels that are trained on too, by the teacher's answers alone: one a line, or"
        " a table",
    )
    hard: float = option(0.1, "weight of the labels", "distill-hard")
    soft: float = option(0.9, "weight of the teacher's answers", "distill-soft")
    temperature: float = option(2.0, "softens both sides' answers")
    hidden: float = option(0.0, "weight of the teacher's hidden states", "distill-hidden")
    relations: float = option(0.0, "weight of its attention relations (MiniLM)", "distill-relations")
    embeddings: float = option(0.0, "weight of its embedding output", "distill-embeddings")
    cosine: float = option(0.0, "weight of the direction of its last hidden states", "distill-cosine")
    patient: float = option(
        0.0, "weight of the direction of its first token in all layers but the last", "distill-patient"
    )
    attention: float = option(0.0, "weight of its attention scores in each layer", "distill-attention")
    last_attention: float = option(
        0.0, "weight of its last layer's attention and relations of values", "distill-last-attention"
    )
    neighbours: float = option(
        0.0,
        "sentence encoders: weight of how alike the vectors of a batch are to each other",
        "distill-neighbours",
    )
    layer_map: tuple[int, ...] | None = option(None, "teacher layer for each student layer; default: even")
    student_layers: tuple[int, ...] | None = option(None, "build the student from these teacher layers")
    student_neurons: float = option(
        1.0, "share of each of their layers' neurons that the student keeps", over=0, most=1
    )
    student_heads: float = option(
        1.0, "share of each of their layers' heads that the student keeps", over=0, most=1
    )

    @property
    def parts(self) -> "DistillSpec":
        """The spec with the weights and the temperature of the paper that it names."""
        return self if self.named is None else replace(self, **PAPERS[self.named])

    @property
    def sums_layers(self) -> bool:
        """Whether each layer has the whole weight, and not its share of it."""
        return self.named == "tinybert"

    @property
    def has_inner(self) -> bool:
        """Whether the teacher's layers are learned from, and not its answers alone."""
        return any(getattr(self.parts, name) for name in INNER)

    def rules(self) -> Rules:
        usual = {item.name: item.default for item in fields(self)}
        weights = ("hard", "soft", "temperature", "neighbours", *INNER)
        given = [name for name in weights if getattr(self, name) != usual[name]]
        flags = [name if name == "temperature" else f"distill-{name.replace('_', '-')}" for name in given]
        return [
            (
                self.named is None or not given,
                f"--distill-as {self.named} sets all weights of a teacher, but got --{flags[0]} too. Leave"
                " one out."
                if given
                else "",
            )
        ]
