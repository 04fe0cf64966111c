"""Maps of words or texts at several layers: points that are near in the encoder's space are drawn near.

    t-SNE (van der Maaten and Hinton 2008) by scikit-learn where it is installed, else the two main axes (PCA)
    together   the share of points whose nearest other point, by cosine in all units, is of the same group,
               and the share that a random point would be (chance)

Groups are the words, their senses, or the labels of the texts.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec

import torch
from torch import Tensor
from torch.nn.functional import normalize

from bermo.analyse.attention import Advance
from bermo.analyse.contexts import word_spans
from bermo.analyse.curves import MIX, Curve, curves_by_layer, layers_of
from bermo.analyse.words import has_mix, layer_names, pool_words
from bermo.data.intervals import wilson
from bermo.data.senses import SenseSentence
from bermo.figures.data import Figure, Lines, Points, Section, paragraphs
from bermo.nn.heads import masked_mean
from bermo.printing import percent
from bermo.vectors import Encoder, stream_vectors

WHOLE = "texts"
MOST_POINTS = 300
SHOWN_LAYERS = 4
FEWEST = 5
AROUND = 30
Numbers = tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Plane:
    """One layer's map."""

    layer: str
    x: Numbers
    y: Numbers


@dataclass(frozen=True, kw_only=True)
class LayerMap:
    """Points with names and groups, their maps at some layers, and how far groups stay together at all."""

    names: tuple[str, ...]
    groups: tuple[str, ...]
    planes: tuple[Plane, ...]
    layers: tuple[str, ...]
    together: Numbers
    chance: float
    method: str
    reason: str = ""


@dataclass(frozen=True, eq=False)
class Point:
    """A thing to be drawn: its vector at every layer."""

    name: str
    group: str
    vectors: tuple[Tensor, ...]


def word_points(
    encoder: Encoder, texts: Sequence[str], words: Sequence[str], longest: int
) -> Iterator[Point]:
    """Yield the uses of the words in the texts; a use is named by what stands around it."""
    wanted = {word.lower() for word in words}
    chosen = [text for text in texts if any(word in text.lower() for word in wanted)]
    for batch in stream_vectors(encoder, chosen, with_mix=has_mix(encoder), max_length=longest):
        pooled = pool_words(batch)
        for k, (row, place) in enumerate(zip(pooled.rows, pooled.positions, strict=True)):
            text = chosen[row]
            start, end = word_spans(encoder, text, longest)[place]
            word = text[start:end].strip().lower()
            if word in wanted:
                around = text[max(0, start - AROUND) : end + AROUND]
                yield Point(around, word, tuple(layer[k].float().cpu() for layer in pooled.vectors))


def sense_points(
    encoder: Encoder, sentences: Sequence[SenseSentence], words: Sequence[str], longest: int
) -> Iterator[Point]:
    """Yield the uses of lemmas that carry a sense, grouped by it."""
    wanted = {word.lower() for word in words}
    chosen = [one for one in sentences if any(tag.lemma in wanted for tag in one.tagged)]
    texts = [list(one.words) for one in chosen]
    for batch in stream_vectors(encoder, texts, with_mix=has_mix(encoder), max_length=longest):
        pooled = pool_words(batch)
        at = {place: k for k, place in enumerate(zip(pooled.rows, pooled.positions, strict=True))}
        for row in batch.rows.tolist():
            for tag in chosen[row].tagged:
                k = at.get((row, tag.start))
                if tag.lemma in wanted and k is not None:
                    near = " ".join(chosen[row].words[max(0, tag.start - 4) : tag.end + 4])
                    yield Point(near, tag.keys[0], tuple(layer[k].float().cpu() for layer in pooled.vectors))


def text_points(
    encoder: Encoder, texts: Sequence[str], labels: Mapping[str, str], longest: int
) -> Iterator[Point]:
    """Yield texts by the mean of their tokens, grouped by their labels."""
    chosen = texts[:: max(1, len(texts) // MOST_POINTS)][:MOST_POINTS]
    for batch in stream_vectors(encoder, chosen, with_mix=has_mix(encoder), max_length=longest):
        pooled = [masked_mean(layer.float(), batch.is_token).cpu() for layer in batch.vectors]
        for k, row in enumerate(batch.rows.tolist()):
            text = chosen[row]
            yield Point(text[: 2 * AROUND], labels.get(text, WHOLE), tuple(layer[k] for layer in pooled))


def measure_map(encoder: Encoder, points: Sequence[Point], advance: Advance = lambda done: None) -> LayerMap:
    """Draw the points at a few layers, and count at all of them how many have a neighbour of their group."""
    points = points[:: max(1, len(points) // MOST_POINTS)][:MOST_POINTS]
    layers = layer_names(encoder)
    if len(points) < FEWEST:
        reason = f"A map needs {FEWEST} points, but the texts have {len(points)}."
        return LayerMap(
            names=(), groups=(), planes=(), layers=layers, together=(), chance=0.0, method="", reason=reason
        )
    stacked = [torch.stack([point.vectors[k] for point in points]) for k in range(len(layers))]
    groups = tuple(point.group for point in points)
    depth = encoder.num_layers - 1
    shown = sorted({round(depth * k / (SHOWN_LAYERS - 1)) for k in range(SHOWN_LAYERS)})
    shown += [len(layers) - 1] if layers[-1] == MIX else []
    planes = []
    for k in shown:
        flat = project(stacked[k])
        planes.append(Plane(layer=layers[k], x=tuple(flat[:, 0].tolist()), y=tuple(flat[:, 1].tolist())))
        advance(1)
    counts = [groups.count(group) for group in groups]
    return LayerMap(
        names=tuple(point.name for point in points),
        groups=groups,
        planes=tuple(planes),
        layers=layers,
        together=tuple(together(vectors, groups) for vectors in stacked),
        chance=sum(count - 1 for count in counts) / len(counts) / (len(counts) - 1),
        method="t-SNE" if has_tsne() else "the two main axes (PCA), since scikit-learn is not installed",
    )


def has_tsne() -> bool:
    """Tell whether scikit-learn is installed."""
    return find_spec("sklearn") is not None


def project(vectors: Tensor) -> Tensor:
    """Return (N, 2): by t-SNE, or by PCA without scikit-learn."""
    if not has_tsne():
        return main_axes(vectors)
    from sklearn.manifold import TSNE

    perplexity = min(30.0, (len(vectors) - 1) / 3)
    made = TSNE(n_components=2, perplexity=perplexity, init="pca", random_state=0)
    return torch.from_numpy(made.fit_transform(vectors.double().numpy())).double()


def main_axes(vectors: Tensor) -> Tensor:
    """Return the two main axes of the vectors, (N, 2)."""
    centred = vectors.double() - vectors.double().mean(0)
    left, sizes, _ = torch.linalg.svd(centred, full_matrices=False)
    return left[:, :2] * sizes[:2]


def together(vectors: Tensor, groups: Sequence[str]) -> float:
    """Return the share of points whose nearest other point is of their group."""
    unit = normalize(vectors.double(), dim=-1)
    cosines = unit @ unit.T
    cosines.fill_diagonal_(-2)
    nearest = cosines.argmax(1).tolist()
    return sum(groups[k] == groups[other] for k, other in enumerate(nearest)) / len(groups)


def map_section(models: Mapping[str, LayerMap]) -> Section:
    """Draw the maps, and how far groups stay together by layer."""
    lines = [f"{name}: {item.reason}" for name, item in models.items() if item.reason]
    able = {name: item for name, item in models.items() if not item.reason}
    figures: list[Figure] = []
    if any(len(set(item.groups)) > 1 for item in able.values()):
        figures.append(_by_layer(able))
    for name, item in able.items():
        figures += [_points(name, item, plane) for plane in item.planes]
        lines.append(_said(name, item))
    return Section(title="Layer maps", text=paragraphs(lines), figures=tuple(figures))


def _points(name: str, item: LayerMap, plane: Plane) -> Points:
    what = "the mix" if plane.layer == MIX else f"layer {plane.layer}"
    return Points(
        title=f"{name}: map at {what}",
        x_label="first axis",
        y_label="second axis",
        x=plane.x,
        y=plane.y,
        names=item.names,
        groups=item.groups,
        is_named=len(item.names) <= 40,
        note=f"By {item.method}; only what is near means something, not the axes.",
    )


def _by_layer(models: Mapping[str, LayerMap]) -> Lines:
    lines = curves_by_layer(
        "Share of points whose nearest neighbour is of their group",
        "share",
        {
            name: Curve(
                names=item.layers,
                values=item.together,
                ends=[wilson(round(share * len(item.names)), len(item.names)) for share in item.together],
            )
            for name, item in models.items()
        },
        "Nearest by cosine in all units. Bands: 95 % (Wilson).",
    )
    chance = next(iter(models.values())).chance
    return replace(lines, series={**lines.series, "chance": (chance,) * len(lines.x)})


def _said(name: str, item: LayerMap) -> str:
    best = max(layers_of(item.layers), key=lambda k: item.together[k])
    count = len(item.names)
    low, high = wilson(round(item.together[best] * count), count)
    if len(set(item.groups)) < 2:
        return f"{name}: {count} points of one group."
    return (
        f"{name}: {count} points of {len(set(item.groups))} groups stay together best at layer"
        f" {item.layers[best]}: {percent(item.together[best], 0)} have a nearest neighbour of their group"
        f" ({100 * low:.0f} … {percent(high, 0)}; chance {percent(item.chance, 0)})."
    )
