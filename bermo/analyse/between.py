"""How alike the layers of two models are, on the same words (CKA, Kornblith et al. 2019)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch

from bermo.analyse.certainty import Ends, ends_left_out
from bermo.analyse.curves import MIX
from bermo.analyse.layers import Sample, alikeness, grid_of_alikeness, take_sample
from bermo.analyse.words import layer_names
from bermo.vectors import Encoder

GROUPS = 10
"""Of texts, each left out once."""


@dataclass(frozen=True, kw_only=True)
class Between:
    """Alikeness of each layer of a model with each of the first model's, or why there is none."""

    first: str
    alike: tuple[tuple[float | None, ...], ...]
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    """The names of the model's layers, and of the first model's: numbers, then the mix if it has one."""
    same_ends: Ends = None
    """Of the mean alikeness of the same layers, leaving out a tenth of the texts at a time."""
    reason: str = ""

    @property
    def of_same(self) -> dict[str, float | None]:
        """The alikeness of each layer with the first model's layer of its number; a mix is no layer."""
        at = {name: k for k, name in enumerate(self.columns) if name != MIX}
        rows = zip(self.rows, self.alike, strict=True)
        return {name: row[at[name]] for name, row in rows if name in at}

    @property
    def mean_of_same(self) -> float | None:
        return _mean_of_known(self.of_same.values())


def measure_between(first: Encoder, other: Encoder, texts: Sequence[str], max_length: int) -> Between:
    """Compare the layers of two models on the same words."""
    one, two = (take_sample(encoder, texts, max_length) for encoder in (first, other))
    if one.keys != two.keys:
        reason = f"{first.name} and {other.name} cut the texts into different tokens"
        return Between(first=first.name, alike=(), reason=reason)
    alike = grid_of_alikeness(two.vectors, one.vectors)
    found = Between(first=first.name, alike=alike, rows=layer_names(other), columns=layer_names(first))
    return replace(found, same_ends=_same_ends(one, two, len(found.of_same), found.mean_of_same))


def _mean_of_known(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _same_ends(one: Sample, two: Sample, depth: int, mean: float | None) -> Ends:
    """Return the interval of the mean alikeness of the same layers, the first `depth` of both models."""
    texts = torch.tensor([row for row, _, _ in one.keys])
    groups = texts.unique().tensor_split(GROUPS)
    without = []
    for group in groups:
        kept = ~torch.isin(texts, group)
        pairs = zip(one.vectors[:depth, kept], two.vectors[:depth, kept], strict=True)
        mean_without = _mean_of_known([alikeness(a, b) for a, b in pairs])
        if not len(group) or mean_without is None:
            return None
        without.append(mean_without)
    return None if mean is None else ends_left_out(mean, without)
