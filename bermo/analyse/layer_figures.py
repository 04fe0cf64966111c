"""What layers do, as figures; and which of them are alive."""

from collections.abc import Mapping, Sequence

from bermo.analyse.between import Between
from bermo.analyse.certainty import least_told, least_within, told
from bermo.analyse.curves import MIX
from bermo.analyse.head_figures import head_grid
from bermo.analyse.layers import TOLERANCE, CutScores, Kept, LayerFacts
from bermo.data.intervals import LEVEL
from bermo.figures.data import Bars, Figure, Heat, Lines, Section, Table, paragraphs
from bermo.printing import percent

ALMOST_ALL = 0.999
"""Kept share above which a model counts as whole: half-precision files hold a few exact zeros."""
ALMOST = 0.99
"""Cosine from which a cut output counts as the whole one, where there is no score."""


def layers_section(models: Mapping[str, LayerFacts]) -> Section:
    """Draw the alikeness of layers, the change of each, the mix, and what a cut leaves."""
    figures: list[Figure] = [_alike(name, item) for name, item in models.items()]
    depth = max(len(item.change) for item in models.values())
    axis = tuple(float(k) for k in range(1, depth + 1))
    figures += [
        Lines(
            title="How much each layer changes a word's vector",
            x_label="layer",
            y_label="change, as a share of its length",
            x=axis,
            series={n: _padded(item.change, depth) for n, item in models.items()},
            note="Mean of ‖h_k − h_(k−1)‖ / ‖h_(k−1)‖ over words.",
        ),
        Lines(
            title="Likeness of the output cut after a layer to the whole",
            x_label="cut after layer",
            y_label="mean cosine",
            x=axis,
            series={n: _padded(item.cut, depth) for n, item in models.items()},
            note="A mix is cut by giving its later shares to the earlier layers in proportion.",
        ),
    ]
    mixed = {name: item for name, item in models.items() if MIX in item.names and item.weights}
    if mixed:
        width = max(len(item.weights) for item in mixed.values())
        figures.append(
            Bars(
                title="Share of each layer in the mix",
                x_label="layer (0: embeddings)",
                y_label="share",
                names=tuple(map(str, range(width))),
                series={name: _padded(item.weights, width) for name, item in mixed.items()},
            )
        )
    return Section(title="Layers", text=_sentences(models), figures=tuple(figures))


def _alike(name: str, item: LayerFacts) -> Heat:
    return Heat(
        title=f"{name}: how alike its layers are",
        x_label="layer",
        y_label="layer",
        unit="CKA",
        columns=item.names,
        rows=item.names,
        values=item.alike,
        note="Unbiased linear centred kernel alignment; 1: the same up to rotation and scale.",
    )


def _padded(values: Sequence[float | None], width: int) -> tuple[float | None, ...]:
    return (*values, *(None,) * (width - len(values)))


def _sentences(models: Mapping[str, LayerFacts]) -> str:
    lines = []
    for name, item in models.items():
        strongest = max(range(len(item.change)), key=lambda k: item.change[k])
        most, last = (told(item.change[k], item.change_ends[k], ".1%") for k in (strongest, -1))
        text = (
            f"{name}: layer {strongest + 1} changes vectors most, by {most} of their length, the last by"
            f" {last}."
        )
        if MIX in item.names and item.centre is not None:
            text += f" Its mix has its centre of gravity at layer {item.centre:.2f}."
        lines.append(text)
    return paragraphs(lines)


def between_section(models: Mapping[str, Between]) -> Section:
    """Draw the alikeness of each model's layers with the first model's."""
    figures, lines = [], []
    for name, item in models.items():
        if not item.alike:
            lines.append(f"{name} is not compared: {item.reason}.")
            continue
        figures.append(
            Heat(
                title=f"{name} against {item.first}: how alike their layers are",
                x_label=f"layer of {item.first}",
                y_label=f"layer of {name}",
                unit="CKA",
                columns=item.columns,
                rows=item.rows,
                values=item.alike,
            )
        )
        mean = item.mean_of_same
        if mean is not None:
            lines.append(
                f"{name} against {item.first}: same layers are alike by {told(mean, item.same_ends)} on"
                " average."
            )
    return Section(title="Layers of two models", text=paragraphs(lines), figures=tuple(figures))


def kept_section(models: Mapping[str, Kept]) -> Section:
    """Draw where the pruned weights went."""
    figures: list[Figure] = []
    for name, item in models.items():
        if item.total > ALMOST_ALL:
            continue
        figures.append(
            Heat(
                title=f"{name}: share of weights kept, by layer and matrix",
                x_label="matrix",
                y_label="layer",
                unit="share kept",
                columns=item.matrices,
                rows=tuple(str(k + 1) for k in range(len(item.shares))),
                values=item.shares,
            )
        )
        if item.heads:
            figures.append(
                head_grid(
                    f"{name}: share of weights kept, by head",
                    item.heads,
                    "share kept",
                    "Rows of query, key and value that belong to the head.",
                )
            )
    text = paragraphs(
        f"{name} keeps {percent(item.total)} of its layers' weights"
        + (
            f", least in layer {1 + item.layers.index(min(item.layers))} ({percent(min(item.layers))})."
            if item.total <= ALMOST_ALL
            else ": nothing is pruned."
        )
        for name, item in models.items()
    )
    return Section(title="Where pruned weights went", text=text, figures=tuple(figures))


def cut_section(models: Mapping[str, CutScores]) -> Section:
    """Draw the score of the cut models."""
    depth = max(len(item.scores) for item in models.values())
    metric = next(iter(models.values())).metric
    figure = Lines(
        title="Score of the model cut after a layer",
        x_label="cut after layer",
        y_label=f"{metric} (%)",
        x=tuple(float(k) for k in range(1, depth + 1)),
        series={name: _padded(item.scores, depth) for name, item in models.items()},
        note="Nothing is trained again.",
    )
    text = paragraphs(
        f"{name} is within {TOLERANCE} points of its {item.scores[-1]:.2f}{_rows(item)}"
        f" with its first {_fewest(item)} {'layer' if enough(item) == 1 else 'layers'}. {_losses(item)}"
        for name, item in models.items()
    )
    return Section(title="Layers: cut", text=text, figures=(figure,))


def _rows(item: CutScores) -> str:
    ends = "no interval" if item.interval is None else "{:.1f} … {:.1f}".format(*item.interval)
    return f" ({ends}; {item.rows} rows)"


def _losses(item: CutScores) -> str:
    """Say of how many cuts the loss is more than chance."""
    if not item.chance:
        return "Whether a cut changes more than chance is not tested: there is no cut, or no right row."
    lost = [k for k, p in enumerate(item.chance, start=1) if p < LEVEL]
    return (
        f"Of {len(item.chance)} cuts {len(lost)} change the answers beyond chance (sign test, Holm's"
        f" correction){': after ' + ', '.join(map(str, lost)) if lost else ''}."
    )


def enough(item: CutScores) -> int:
    """Return the fewest first layers whose score is within the tolerance of the whole model's."""
    return int(least_within(range(1, len(item.scores) + 1), item.scores, TOLERANCE))


def _fewest(item: CutScores) -> str:
    """Write the fewest layers that are enough, with their interval."""
    return least_told(enough(item), item.enough_ends, ".0f", item.metric, item.rows)


def alive_section(
    layers: Mapping[str, LayerFacts],
    kept: Mapping[str, Kept],
    cut: Mapping[str, CutScores],
    between: Mapping[str, Between],
) -> Section:
    """Put all that is known of each layer into one table a model: which layers are alive?"""
    tables, lines = [], []
    for name, item in layers.items():
        tables.append(_alive_table(name, item, kept.get(name), cut.get(name), between.get(name)))
        lines.append(_verdict(name, item, cut.get(name)))
    return Section(title="Which layers are alive?", text=paragraphs(lines), figures=tuple(tables))


def _alive_table(
    name: str, item: LayerFacts, kept: Kept | None, cut: CutScores | None, between: Between | None
) -> Table:
    columns = ["layer", "share in the output", "change", "cosine if cut here"]
    columns += [f"{cut.metric} if cut here"] if cut else []
    columns += ["kept"] if kept else []
    columns += [f"CKA to {between.first}"] if between and between.alike else []
    rows = []
    for k in range(1, len(item.change) + 1):
        row: list[str | float | None] = [
            float(k),
            item.weights[k] if item.weights else None,
            item.change[k - 1],
            item.cut[k - 1],
        ]
        row += [cut.scores[k - 1]] if cut else []
        row += [kept.layers[min(k, len(kept.layers)) - 1]] if kept else []
        if between and between.alike:
            row.append(between.of_same.get(str(k)))
        rows.append(tuple(round(v, 4) if isinstance(v, float) else v for v in row))
    return Table(title=f"{name}: its layers one by one", columns=tuple(columns), rows=tuple(rows))


def _verdict(name: str, item: LayerFacts, cut: CutScores | None) -> str:
    depth = len(item.change)
    if cut is not None:
        k = enough(cut)
        rest = f" and {percent(sum(item.weights[k + 1 :]))} of the output's shares" if item.weights else ""
        above = "layer above adds" if depth - k == 1 else f"{depth - k} layers above add"
        lost = f"the {above} at most {TOLERANCE} points{rest}" if k < depth else ("every layer is needed")
        few = _fewest(cut)
        return f"{name}: with its first {few} of {depth} layers it scores as the whole{_rows(cut)}; {lost}."
    almost = [k for k, value in enumerate(item.cut, start=1) if value is not None and value >= ALMOST]
    if not almost:
        return f"{name}: no cut leaves the output as it is."
    if almost[0] == depth:
        return (
            f"{name}: every layer moves the output (no cut keeps a cosine of {ALMOST});"
            " give --data for scores."
        )
    kept = told(item.cut[almost[0] - 1] or 0.0, item.cut_ends[almost[0] - 1])
    return (
        f"{name}: cut after layer {almost[0]}, the output keeps a cosine of {kept}; give --data for scores."
    )
