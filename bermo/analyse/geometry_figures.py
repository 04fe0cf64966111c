"""The geometry of contextual vectors, as figures."""

from collections.abc import Mapping

from bermo.analyse.certainty import told
from bermo.analyse.curves import MIX, NOTHING, layers_of
from bermo.analyse.geometry import MIN_USES, Geometry, mean_of
from bermo.data.intervals import Interval
from bermo.figures.data import Bars, Figure, Lines, Section, Table, paragraphs

SHOWN = 12


def geometry_section(models: Mapping[str, Geometry]) -> Section:
    """Draw the four curves over the layers, every model in each, and the words at the ends."""
    curves = {
        "Anisotropy: mean cosine of two words from different texts": (
            "anisotropy",
            "0: all directions are used. Bands: 95 %, by resampling the texts",
        ),
        "Self-similarity: a word in different texts": (
            "self_similarity",
            "less the anisotropy. Bands: 95 %, over words",
        ),
        "Intra-sentence similarity: a word and its sentence": ("intra_sentence", "less the anisotropy"),
        "Maximum explained variance: how static a word is": ("explained", "less that of random words"),
    }
    figures: list[Figure] = [_curve(models, title, name, note) for title, (name, note) in curves.items()]
    mixed = {name: item for name, item in models.items() if item.layers[-1] == MIX}
    if mixed:
        figures.append(_mix_bars(mixed))
    for name, item in models.items():
        if item.words:
            figures.append(_word_table(name, item))
    return Section(title="Geometry", text=_sentences(models), figures=tuple(figures))


def _curve(models: Mapping[str, Geometry], title: str, field: str, note: str) -> Lines:
    depth = max(len(_plain(item)) for item in models.values())
    series = {
        name: tuple((list(getattr(item, field)[: len(_plain(item))]) + [None] * depth)[:depth])
        for name, item in models.items()
    }
    return Lines(
        title=title,
        x_label="layer (0: embeddings)",
        y_label="cosine" if field != "explained" else "share",
        x=tuple(map(float, range(depth))),
        series=series,
        bands=_bands(models, field, depth),
        note=note,
    )


def _bands(models: Mapping[str, Geometry], field: str, depth: int) -> dict[str, tuple[Interval, ...]]:
    """Return the intervals of the models that have one at every layer."""
    bands: dict[str, tuple[Interval, ...]] = {}
    for name, item in models.items():
        known = {"anisotropy": item.anisotropy_ends, "self_similarity": item.similarity_ends}.get(field, ())
        ends = [pair for pair in known[: len(_plain(item))] if pair is not None]
        if ends and len(ends) == len(_plain(item)):
            bands[name] = (*ends, *(NOTHING,) * (depth - len(ends)))
    return bands


def _plain(item: Geometry) -> tuple[str, ...]:
    return tuple(item.layers[at] for at in layers_of(item.layers))


def _mix_bars(models: Mapping[str, Geometry]) -> Bars:
    """Anisotropy of the mix beside the last layer and the mean of all layers."""
    series: dict[str, tuple[float | None, ...]] = {}
    for name, item in models.items():
        values = [value for value in item.anisotropy[:-1] if value is not None]
        series[name] = (mean_of(values), item.anisotropy[-2], item.anisotropy[-1])
    return Bars(
        title="Anisotropy of the mix beside its layers",
        x_label="vectors",
        y_label="mean cosine",
        names=("mean of the layers", "last layer", MIX),
        series=series,
        note="0: all directions are used alike",
    )


def _word_table(name: str, item: Geometry) -> Table:
    last = len(_plain(item)) - 1
    order = sorted(item.words, key=lambda word: word.self_similarity[last])
    ends = [("most", word) for word in order[:SHOWN]]
    ends += [("least", word) for word in reversed(order[SHOWN:][-SHOWN:])]
    return Table(
        title=f"{name}: the words most and least bound to their context",
        columns=("context-bound", "word", "texts", "self-similarity, last layer"),
        rows=tuple((side, word.word, word.uses, round(word.self_similarity[last], 4)) for side, word in ends),
        note="Self-similarity less the anisotropy; low means that the word's vector follows its context.",
    )


def _sentences(models: Mapping[str, Geometry]) -> str:
    lines = []
    for name, item in models.items():
        last = len(_plain(item)) - 1
        first, end = item.anisotropy[0], item.anisotropy[last]
        if first is None or end is None:
            lines.append(
                f"{name}: fewer than two texts have words, so no angle between texts can be measured."
            )
            continue
        text = (
            f"{name}: anisotropy goes from {told(first, item.anisotropy_ends[0])} at the embeddings to"
            f" {told(end, item.anisotropy_ends[last])} at layer {last}"
        )
        similar = item.self_similarity[last]
        if similar is not None:
            text += f"; adjusted self-similarity there is {told(similar, item.similarity_ends[last])}"
            lines.append(text + f" over {len(item.words)} words.")
        else:
            lines.append(f"{text}. No word stands in {MIN_USES} texts, so none can be compared.")
    return paragraphs(lines)
