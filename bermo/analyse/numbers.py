"""Is a number's value in its vector (Wallace et al. 2019, "Do NLP models know numbers?")?

"The number 42 is written here."   the vector of 42, at each layer, to 42 by a linear map
interpolation   other numbers of the same range        extrapolation   numbers beyond it
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bermo.analyse.attention import Advance
from bermo.analyse.contexts import word_spans
from bermo.analyse.curves import Curve, curves_by_layer, layers_of
from bermo.analyse.read_out import ReadOut, halves, read_out
from bermo.analyse.words import has_mix, layer_names, pool_words
from bermo.figures.data import Lines, Section, paragraphs
from bermo.vectors import Encoder, stream_vectors

RANGE, BEYOND = 200, 250
START, END = "The number ", " is written here."


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """The error of a number's value read from its vector, by layer, inside and beyond the fitted range."""

    names: tuple[str, ...]
    inside: tuple[ReadOut, ...]
    beyond: tuple[ReadOut, ...]


def measure_numbers(encoder: Encoder, advance: Advance = lambda done: None) -> Numbers:
    """Read every number's vector at every layer, fit on most of the range, and measure on the rest."""
    vectors = number_vectors(encoder)
    values = torch.arange(BEYOND, dtype=torch.double)
    fitted, held = halves(RANGE, 0.8)
    inside, beyond = [], []
    for layer in vectors:
        known, far = read_out(
            (layer[fitted], values[fitted]), (layer[held], values[held]), (layer[RANGE:], values[RANGE:])
        )
        inside.append(known)
        beyond.append(far)
        advance(1)
    return Numbers(names=layer_names(encoder), inside=tuple(inside), beyond=tuple(beyond))


def number_vectors(encoder: Encoder) -> list[Tensor]:
    """Return the vectors of 0, 1, …, one tensor (N, D) a layer; the pieces of a number are averaged."""
    texts = [f"{START}{value}{END}" for value in range(BEYOND)]
    found: dict[int, list[Tensor]] = {}
    for batch in stream_vectors(encoder, texts, with_mix=has_mix(encoder), max_length=32):
        words = pool_words(batch)
        for value in batch.rows.tolist():
            first, last = len(START), len(texts[value]) - len(END)
            spans = word_spans(encoder, texts[value], 32)
            own = {k for k, (start, end) in spans.items() if start < last and end > first}
            at = [
                k
                for k, (row, place) in enumerate(zip(words.rows, words.positions, strict=True))
                if row == value and place in own
            ]
            found[value] = [layer[at].float().mean(0).cpu() for layer in words.vectors]
    return [torch.stack(layer) for layer in zip(*(found[value] for value in range(BEYOND)), strict=True)]


def numbers_section(models: Mapping[str, Numbers]) -> Section:
    """Draw the error by layer, inside the fitted range and beyond it."""
    figures = tuple(
        read_out_lines(
            f"Error of a number's value read from its vector, {where}",
            "mean error",
            {name: (item.names, getattr(item, field)) for name, item in models.items()},
        )
        for where, field in ((f"below {RANGE}", "inside"), (f"{RANGE} to {BEYOND - 1}", "beyond"))
    )
    lines = []
    for name, item in models.items():
        best = min(layers_of(item.names), key=lambda k: item.inside[k].error)
        near, far = item.inside[best], item.beyond[best]
        lines.append(
            f"{name}: best at layer {item.names[best]}, off by {near.error:.1f}"
            f" ({near.low:.1f} … {near.high:.1f}) on held-out numbers below {RANGE}, where guessing is off by"
            f" {near.guess:.1f}; beyond, off by {far.error:.1f} ({far.low:.1f} … {far.high:.1f}), where"
            f" guessing is off by {far.guess:.1f}."
        )
    return Section(title="Numbers", text=paragraphs(lines), figures=figures)


def read_out_lines(
    title: str, label: str, models: Mapping[str, tuple[tuple[str, ...], tuple[ReadOut, ...]]]
) -> Lines:
    """Draw errors by layer with their intervals, and what guessing the mean reaches."""
    lines = curves_by_layer(
        title,
        label,
        {
            name: Curve(
                names=names,
                values=[item.error for item in items],
                ends=[(item.low, item.high) for item in items],
            )
            for name, (names, items) in models.items()
        },
        "Linear map by ridge regression on other rows. Bands: 95 %, bootstrap over the rows.",
    )
    guess = next(iter(models.values()))[1][0].guess
    return replace(lines, series={**lines.series, "guessing the mean": (guess,) * len(lines.x)})
