"""Curves over layers with their intervals; a model's mix is no layer, but a level across all of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bermo.figures.data import Lines

MIX = "mix"
NOTHING = (0.0, 0.0)


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One value for each name, and its interval; no `ends` means none."""

    names: Sequence[str]
    values: Sequence[float]
    ends: Sequence[tuple[float, float]] = ()


def layers_of(names: Sequence[str]) -> list[int]:
    """Return the places of the layers among what was measured."""
    return [at for at, name in enumerate(names) if name != MIX]


def curves_by_layer(title: str, y_label: str, curves: Mapping[str, Curve], note: str) -> Lines:
    """Draw the layers of every curve, and its mix, where it has one, as a level."""
    depth = max(len(layers_of(curve.names)) for curve in curves.values())
    series: dict[str, tuple[float | None, ...]] = {}
    bands: dict[str, tuple[tuple[float, float], ...]] = {}
    for name, curve in curves.items():
        at = layers_of(curve.names)
        rest = depth - len(at)
        series[name] = (*(curve.values[k] for k in at), *(None,) * rest)
        if curve.ends:
            bands[name] = (*(curve.ends[k] for k in at), *(NOTHING,) * rest)
        if len(at) < len(curve.names):
            series[f"{name}: mix"] = (curve.values[-1],) * depth
    return Lines(
        title=title,
        x_label="layer (0: embeddings)",
        y_label=y_label,
        x=tuple(map(float, range(depth))),
        series=series,
        bands=bands,
        note=note,
    )
