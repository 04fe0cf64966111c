"""How frozen layers are read and probed. No torch is imported."""

from dataclasses import dataclass
from typing import Literal

from bermo.spec import Pieces, Pooling, Precision

Protocol = Literal["frozen", "finetune"]
ProbeKind = Literal["linear", "hidden"]


@dataclass(frozen=True, kw_only=True)
class ProbeSpec:
    """How layers are read and probed; no `layers` means all of them."""

    probe: ProbeKind = "linear"
    pooling: Pooling | None = None
    layers: tuple[int, ...] | None = None
    controls: bool = True
    max_length: int = 128
    batch_size: int = 64
    precision: Precision = "fp32"
    max_unknown: float = 0.05
    seed: int = 0
    cache: str | None = None
    pieces: Pieces = "mean"
    """Of tasks of words: what a word's vector is."""
    rank: int = 64
    """Of trees: dimensions in which distances and depths are measured, at most those of a layer."""
