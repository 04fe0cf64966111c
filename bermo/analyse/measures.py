"""The groups of measures that a user can name with --measures. No torch is imported."""

from typing import Literal, get_args

Measure = Literal[
    "geometry",
    "senses",
    "identity",
    "attention",
    "heads",
    "layers",
    "knowledge",
    "order",
    "tuned",
    "map",
    "sentence",
    "relations",
]
MEASURES: tuple[Measure, ...] = get_args(Measure)
