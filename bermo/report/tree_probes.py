"""Structural probes as figures: scores by layer beside their baselines, and trees drawn over a sentence."""

from collections.abc import Mapping

from bermo.figures.data import Arcs, Figure, Findings, Lines, Number, Section, Table
from bermo.methods.probing.trees import TreeProbed, TreeScores
from bermo.report.probe_table import rounded, rounded_ends

COLUMNS = (
    "group",
    "layer",
    "UUAS",
    "least",
    "most",
    "dev UUAS",
    "root",
    "root least",
    "root most",
    "distance Spearman",
    "depth Spearman",
)


def tree_findings(probed: TreeProbed, facts: Mapping[str, str]) -> Findings:
    """Put the structural probes on a page."""
    return Findings(
        title="Trees in the geometry of frozen layers",
        facts=facts,
        sections=(
            Section(
                title="Trees by layer",
                text=tree_verdict(probed),
                figures=(_curves(probed), tree_table(probed)),
            ),
            Section(
                title="Sentences",
                text="The true tree stands above the words, the spanning tree of the best layer's predicted"
                " distances below. Arcs that the other tree lacks are dashed; punctuation has no arcs.",
                figures=_drawn(probed),
            ),
        ),
    )


def tree_table(probed: TreeProbed) -> Table:
    """One row a layer, and the baselines."""
    rows: list[tuple[str | Number, ...]] = [
        ("layers", name, *_cells(probed.scores[at], probed.dev_uuas[at]))
        for at, name in enumerate(probed.layers)
    ]
    rows.append(("baselines", "linear chain", *_cells(probed.chain)))
    rows += [
        ("baselines", f"{probed.layers[at]}, untrained", *_cells(scores))
        for at, scores in zip(probed.proper, probed.untrained, strict=False)
    ]
    return Table(
        title="Structural probes",
        columns=COLUMNS,
        rows=tuple(rows),
        note=f"Test, in %, of {probed.rows[2]:,} sentences; rank {probed.rank}. UUAS: share of the true edges"
        " that are in the predicted spanning tree, without punctuation. root: the least deep word is the"
        " root. least, most: 95 % over resamples of the sentences. Spearman: mean over the lengths 5 to 50.",
    )


def _cells(scores: TreeScores, dev_uuas: float | None = None) -> tuple[Number, ...]:
    root = scores.root_interval or (None, None)
    return (
        rounded(scores.uuas),
        *(rounded(end) for end in scores.uuas_interval),
        rounded(dev_uuas),
        rounded(scores.root),
        *(rounded(end) for end in root),
        rounded(scores.distance_spearman),
        rounded(scores.depth_spearman),
    )


def tree_verdict(probed: TreeProbed) -> str:
    """Say which layer holds trees best, and whether that is more than the baselines."""
    best = probed.scores[probed.best]
    low, high = best.uuas_interval
    baselines = {"the linear chain": probed.chain}
    if "0" in probed.layers:
        baselines["layer 0"] = probed.scores[probed.layers.index("0")]
    if probed.untrained:
        baselines["the best untrained layer"] = max(probed.untrained, key=lambda scores: scores.uuas)
    beaten = [
        f"{name} ({item.uuas:.1f}, {_beside(item.uuas, low, high)})" for name, item in baselines.items()
    ]
    ordered = "" if best.distance_spearman is None else f", orders distances by {best.distance_spearman:.2f}"
    return (
        f"Layer {probed.layers[probed.best]}, chosen on dev, has an UUAS of {best.uuas:.1f} % (interval"
        f" {low:.1f} to {high:.1f}){ordered} and finds the root of {best.root or 0:.1f} %."
        f" Beside it: {', '.join(beaten)}."
    )


def _beside(value: float, low: float, high: float) -> str:
    if value < low:
        return "below its interval"
    return "above its interval" if value > high else "inside its interval"


def _curves(probed: TreeProbed) -> Lines:
    at = probed.proper
    count = len(at)
    series: dict[str, tuple[Number, ...]] = {"UUAS": tuple(rounded(probed.scores[k].uuas) for k in at)}
    series["root"] = tuple(rounded(probed.scores[k].root) for k in at)
    series["UUAS of the linear chain"] = (rounded(probed.chain.uuas),) * count
    if probed.untrained:
        series["UUAS, untrained"] = tuple(rounded(scores.uuas) for scores in probed.untrained)
    return Lines(
        title="Trees by layer",
        x_label="layer",
        y_label="test score (%)",
        x=tuple(float(probed.layers[k]) for k in at),
        series=series,
        bands={"UUAS": tuple(rounded_ends(probed.scores[k].uuas_interval) for k in at)},
        note="The band is the 95 % interval over resamples of the sentences.",
    )


def _drawn(probed: TreeProbed) -> tuple[Figure, ...]:
    return tuple(
        Arcs(
            title=f"Sentence {number}",
            words=example.words,
            above=example.true,
            below=example.predicted,
            names=("true tree", f"predicted from layer {probed.layers[probed.best]}"),
        )
        for number, example in enumerate(probed.examples, start=1)
    )
