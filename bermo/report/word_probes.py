"""Probes of words as figures: a table, accuracy by layer, codes, mixes, and the order of the pipeline."""

from collections.abc import Mapping, Sequence
from itertools import combinations

from bermo.analyse.certainty import told
from bermo.figures.data import Bars, Figure, Findings, Lines, Number, Section, Table
from bermo.methods.probing.words import WordProbed
from bermo.printing import number_of
from bermo.report.probe_heats import control_heats, layer_heat, mix_heat
from bermo.report.probe_table import rounded, rounded_ends

LEVELS: Mapping[str, int] = {"tags": 0, "features": 0, "chunks": 1, "relations": 2, "entities": 3}
"""The order of Tenney et al. 2019: part of speech, constituents, dependencies, entities."""
COLUMNS = (
    "group",
    "task",
    "best layer",
    "its test",
    "its least",
    "its most",
    "classes",
    "last",
    "mix",
    "centre",
    "expected",
    "compression",
    "memoriser",
    "largest class",
    "untrained",
    "control",
    "control memoriser",
    "selectivity",
)
"""Layer and score come first: a phone has room for four columns."""


def word_findings(probed: Sequence[WordProbed], facts: Mapping[str, str]) -> Findings:
    """Put the probes of all tasks of words on a page."""
    return Findings(
        title="Probing the words of frozen layers",
        facts=facts,
        sections=(
            Section(title="Every task", text=_summary(probed), figures=(word_table(probed), _rows(probed))),
            Section(title="The order of the pipeline", text=order_verdict(probed), figures=(_order(probed),)),
            Section(
                title="Where it is known",
                text="Bands are 95 % intervals over resamples of the test sentences.",
                figures=(_curves(probed), *_heats(probed)),
            ),
            Section(
                title="The learned mix of frozen layers",
                text="One share a layer, learned with a linear probe; and the accuracy of mixes of the layers"
                " up to each, from which the expected layer is taken (Tenney et al. 2019).",
                figures=(mix_heat(probed), _prefix_curves(probed)),
            ),
        ),
    )


def word_table(probed: Sequence[WordProbed]) -> Table:
    """One row a task: the best layer by dev, the mix, and what stands against them."""
    return Table(
        title="Probes of words",
        columns=COLUMNS,
        rows=tuple(_row(item) for item in probed),
        note="Test accuracy in %. best layer: by dev; its least and most: 95 % of its test accuracy, over"
        " resamples of the sentences. mix: a learned mix of all layers. centre: the mean layer, weighted by"
        " the mix's shares."
        " expected: the layer at which mixes of more and more layers gain, on average. compression: of the"
        " labels' online code at the best layer. memoriser: the most frequent label of each word. untrained:"
        " the same layer with random weights. control: each word has a random label, same layer."
        " selectivity: test less control.",
    )


def _row(item: WordProbed) -> tuple[str | Number, ...]:
    at, last = item.best, item.proper[-1]
    control = item.control[at] if item.control else None
    return (
        item.group,
        item.task,
        item.layers[at],
        *(rounded(values[at]) for values in (item.accuracy, item.least, item.most)),
        item.num_classes,
        rounded(item.accuracy[last]),
        rounded(item.mix_accuracy),
        rounded(item.centre),
        rounded(item.expected),
        rounded(item.compression[at]),
        rounded(item.memoriser),
        rounded(item.largest_class),
        rounded(item.untrained[at] if item.untrained else None),
        rounded(control),
        rounded(item.control_memoriser),
        rounded(None if control is None else item.accuracy[at] - control),
    )


def _rows(probed: Sequence[WordProbed]) -> Table:
    return Table(
        title="Labelled words of each task",
        columns=("group", "task", "train", "dev", "test", "what was read"),
        rows=tuple((i.group, i.task, *i.rows, "; ".join((i.source, *i.notes))) for i in probed),
        note="A relation is a word with its head; a chunk or an entity is a span of words.",
    )


def _summary(probed: Sequence[WordProbed]) -> str:
    """Say of each task its best layer, the interval, and how many layers are not shown to be worse."""
    parts = []
    for item in probed:
        at = item.best
        alike = sum(item.accuracy[k] >= item.least[at] for k in item.proper if k != at)
        parts.append(
            f"{item.task} is read best from layer {item.layers[at]} ({item.accuracy[at]:.1f} %, interval"
            f" {item.least[at]:.1f} to {item.most[at]:.1f}; {alike} other layers within it or above)"
        )
    return f"{'; '.join(parts)}."


def order_verdict(probed: Sequence[WordProbed]) -> str:
    """Compare the expected layers with the literature's order, pair by pair, by their intervals."""
    pairs = [
        (a, b) if LEVELS[a.group] < LEVELS[b.group] else (b, a)
        for a, b in combinations(probed, 2)
        if LEVELS[a.group] != LEVELS[b.group] and a.expected_interval and b.expected_interval
    ]
    literature = "Tenney et al. 2019: part of speech before constituents, dependencies and entities"
    if not pairs:
        return f"No two kinds of tasks are here whose order could be that of the literature ({literature})."
    lines = [_compared(a, b) for a, b in pairs]
    agree = sum(line.endswith("as in the literature") for line in lines)
    against = sum(line.endswith("against the literature") for line in lines)
    return (
        f"Of {number_of(len(pairs), 'pair')} of tasks {agree} come in the literature's order ({literature}),"
        f" {against} against it, and of {len(pairs) - agree - against} no order is shown: {'; '.join(lines)}."
    )


def _compared(first: WordProbed, second: WordProbed) -> str:
    assert first.expected_interval is not None
    assert second.expected_interval is not None
    shown = " and ".join(
        f"{item.task} at {told(item.expected or 0.0, item.expected_interval, '.2f')}"
        for item in (first, second)
    )
    if first.expected_interval[1] < second.expected_interval[0]:
        return f"{shown}, as in the literature"
    if second.expected_interval[1] < first.expected_interval[0]:
        return f"{shown}, against the literature"
    return f"{shown}, whose intervals overlap"


def _order(probed: Sequence[WordProbed]) -> Bars:
    items = sorted(probed, key=lambda item: (item.expected is None, item.expected or 0.0))
    return Bars(
        title="At which layer each task is solved",
        x_label="task",
        y_label="layer",
        names=tuple(item.task for item in items),
        series={
            "expected layer": tuple(rounded(item.expected) for item in items),
            "centre of gravity": tuple(rounded(item.centre) for item in items),
        },
        errors={"expected layer": tuple(rounded_ends(item.expected_interval) for item in items)},
        note="Whiskers: 95 % over resamples of the test sentences.",
    )


def _curves(probed: Sequence[WordProbed]) -> Lines:
    proper = probed[0].proper
    return Lines(
        title="Test accuracy by layer",
        x_label="layer",
        y_label="accuracy (%)",
        x=tuple(float(probed[0].layers[at]) for at in proper),
        series={item.task: tuple(rounded(item.accuracy[at]) for at in proper) for item in probed},
        bands={
            item.task: tuple((round(item.least[at], 2), round(item.most[at], 2)) for at in proper)
            for item in probed
        },
    )


def _prefix_curves(probed: Sequence[WordProbed]) -> Lines:
    proper = probed[0].proper
    return Lines(
        title="Test accuracy of mixes of the layers up to each",
        x_label="last layer of the mix",
        y_label="accuracy (%)",
        x=tuple(float(probed[0].layers[at]) for at in proper),
        series={item.task: tuple(map(rounded, item.prefixes)) for item in probed},
    )


def _heats(probed: Sequence[WordProbed]) -> list[Figure]:
    heats: list[Figure] = [
        layer_heat(
            probed, "Compression of the labels' code by layer", [i.compression for i in probed], "times"
        )
    ]
    heats += control_heats(probed)
    return heats
