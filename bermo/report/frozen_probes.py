"""Probes of frozen layers as figures: a table by group, task × layer, the learned mixes."""

from collections.abc import Mapping, Sequence

from bermo.analyse.certainty import ends_of_mean, told
from bermo.data.intervals import wilson
from bermo.data.probing import GROUPS
from bermo.figures.data import Bars, Figure, Findings, Number, Section, Table
from bermo.methods.probing.frozen import Probed
from bermo.report.probe_heats import control_heats, layer_heat, mix_heat
from bermo.report.probe_table import rounded

EXPECTED = (
    "In Jawahar et al. 2019 surface tasks are read best from low layers of BERT, syntactic ones from the"
    " middle, semantic ones from higher up."
)


def frozen_findings(probed: Sequence[Probed], facts: Mapping[str, str]) -> Findings:
    """Put the frozen probes of all tasks on a page."""
    probed = sorted(probed, key=lambda item: GROUPS.index(item.group))
    sections = [
        Section(title="Every task", text=_summary(probed), figures=(frozen_table(probed), _rows(probed))),
        Section(title="Where it is known", text=EXPECTED, figures=_heats(probed)),
        Section(
            title="The learned mix of frozen layers",
            text="One share a layer, learned with a linear probe;"
            " the centre of gravity is the mean layer, weighted by the shares (Tenney et al. 2019).",
            figures=(mix_heat(probed), _centres(probed)),
        ),
    ]
    return Findings(title="Probing frozen layers", facts=facts, sections=tuple(sections))


def frozen_table(probed: Sequence[Probed]) -> Table:
    """One row a task: the best layer by dev, the last, the mix, and what stands against them."""
    columns = (
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
        "bag of words",
        "largest class",
        "untrained",
        "control",
        "memoriser",
        "selectivity",
    )
    rows = [_row(item) for item in probed]
    doubts = [f" {item.task} is not to be believed: {item.doubt}." for item in probed if item.doubt]
    note = (
        "Test accuracy in %. best layer: by dev; its least and most: 95 % of its test accuracy, by"
        " the test rows (Wilson). mix: a probe on a learned mix of all layers. untrained:"
        " the same layer with random weights. control: random classes of frequent words, same layer."
        " memoriser: a bag of words on the control. selectivity: test less control."
    ) + "".join(doubts)
    return Table(title="Probes by group", columns=columns, rows=tuple(rows), note=note)


def _rows(probed: Sequence[Probed]) -> Table:
    """Say how many rows each part has, and what was left out of the files."""
    return Table(
        title="Rows of each task",
        columns=("group", "task", "train", "dev", "test", "what was read"),
        rows=tuple((i.group, i.task, *i.rows, "; ".join(i.notes) or "the files' own splits") for i in probed),
        note="No sentence is in two parts, whatever its capitals, unless the files' own splits share one.",
    )


def _row(item: Probed) -> tuple[str | Number, ...]:
    at = item.layers.index(item.best)
    last = max(
        (k for k, name in enumerate(item.layers) if name.isdigit()),
        key=lambda k: int(item.layers[k]),
    )
    control = item.control[at] if item.control else None
    return (
        item.group,
        item.task,
        item.best,
        rounded(item.accuracy[at]),
        *(rounded(end) for end in _interval(item)),
        item.num_classes,
        rounded(item.accuracy[last]),
        rounded(item.mix_accuracy),
        rounded(item.centre),
        rounded(item.bag_of_words),
        rounded(item.largest_class),
        rounded(item.untrained[at] if item.untrained else None),
        rounded(control),
        rounded(item.memoriser),
        rounded(None if control is None else item.accuracy[at] - control),
    )


def _interval(item: Probed) -> tuple[float, float]:
    """Return the 95 % interval of the best layer's test accuracy, in percent."""
    accuracy, rows = item.accuracy[item.layers.index(item.best)], item.rows[2]
    low, high = wilson(round(accuracy * rows / 100), rows)
    return 100 * low, 100 * high


def _as_good(item: Probed) -> int:
    """Return how many other layers have a test accuracy within the best one's interval, or above it."""
    low, _ = _interval(item)
    proper = zip(item.layers, item.accuracy, strict=True)
    return sum(value >= low for name, value in proper if name.isdigit() and name != item.best)


def _summary(probed: Sequence[Probed]) -> str:
    """Say where each group is known best, on average, and how many layers are not shown to be worse."""
    parts = []
    for group in GROUPS:
        items = [item for item in probed if item.group == group and not item.doubt]
        if items:
            centres = [item.centre for item in items]
            centre = told(sum(centres) / len(centres), ends_of_mean(centres), ".2f", "tasks")
            best = [f"{item.best} ({_as_good(item)})" for item in items]
            parts.append(f"{group}: best layers {', '.join(best)}, mean centre of gravity {centre}")
    explained = "In brackets: other layers within the interval of the best, which are not shown to be worse."
    return f"{'; '.join(parts)}. {explained}"


def _heats(probed: Sequence[Probed]) -> tuple[Figure, ...]:
    heats = [
        layer_heat(probed, "Test accuracy of each layer", [item.accuracy for item in probed], "%"),
        layer_heat(
            probed,
            "Points over the layer that dev finds best",
            [
                tuple(a - item.accuracy[item.layers.index(item.best)] for a in item.accuracy)
                for item in probed
            ],
            "points",
            0.0,
        ),
    ]
    heats += control_heats(probed)
    return tuple(heats)


def _centres(probed: Sequence[Probed]) -> Bars:
    return Bars(
        title="Centre of gravity of each task",
        x_label="task",
        y_label="layer",
        names=tuple(item.task for item in probed),
        series={"centre of gravity": tuple(rounded(item.centre) for item in probed)},
    )
