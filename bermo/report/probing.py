"""Results of probing as figures: a table by group, task × layer, the learned mixes, plain beside mixed."""

import math
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table as RichTable

from bermo.data.probing import GROUPS
from bermo.figures.data import Bars, Figure, Findings, Heat, Number, Section, Table
from bermo.methods.probing.frozen import Probed
from bermo.methods.probing.paired import Comparison
from bermo.runs.results import RunResult

EXPECTED = (
    "In Jawahar et al. 2019 surface tasks are read best from low layers of BERT, syntactic ones"
    " from the middle, semantic ones"
    " from higher up."
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
            " the centre of gravity is Σ j·s_j (Tenney et al. 2019).",
            figures=(_mix_heat(probed), _centres(probed)),
        ),
    ]
    return Findings(title="Probing frozen layers", facts=facts, sections=tuple(sections))


def frozen_table(probed: Sequence[Probed]) -> Table:
    """One row a task: the best layer by dev, the last, the mix, and what stands against them."""
    columns = (
        "group",
        "task",
        "classes",
        "best layer",
        "its test",
        "last",
        "mix",
        "centre",
        "bag of words",
        "largest class",
        "untrained",
        "control",
        "selectivity",
    )
    rows = [_row(item) for item in probed]
    doubts = [f" {item.task} is not to be believed: {item.doubt}." for item in probed if item.doubt]
    note = (
        "Test accuracy in %. best layer: by dev. mix: a probe on a learned mix of all layers. untrained:"
        " the same layer with random"
        " weights. control: random classes of word types, same layer. selectivity: test less control."
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
        item.num_classes,
        item.best,
        _round(item.accuracy[at]),
        _round(item.accuracy[last]),
        _round(item.mix_accuracy),
        _round(item.centre),
        _round(item.bag_of_words),
        _round(item.largest_class),
        _round(item.untrained[at] if item.untrained else None),
        _round(control),
        _round(None if control is None else item.accuracy[at] - control),
    )


def _summary(probed: Sequence[Probed]) -> str:
    """Say where each group is known best, on average."""
    parts = []
    for group in GROUPS:
        items = [item for item in probed if item.group == group and not item.doubt]
        if items:
            centre = sum(item.centre for item in items) / len(items)
            best = [item.best for item in items]
            parts.append(f"{group}: best layers {', '.join(best)}, mean centre of gravity {centre:.2f}")
    return "; ".join(parts) + "."


def _heats(probed: Sequence[Probed]) -> tuple[Figure, ...]:
    heats = [
        _heat(probed, "Test accuracy of each layer", [item.accuracy for item in probed], "%"),
        _heat(
            probed,
            "Points under the task's best layer",
            [tuple(a - max(item.accuracy) for a in item.accuracy) for item in probed],
            "points",
        ),
    ]
    if all(item.control for item in probed):
        heats.append(
            _heat(probed, "Selectivity of each layer", [i.selectivity for i in probed], "points", 0.0)
        )
    if all(item.untrained for item in probed):
        gains = [tuple(a - b for a, b in zip(i.accuracy, i.untrained, strict=True)) for i in probed]
        heats.append(_heat(probed, "Gain over the untrained encoder", gains, "points", 0.0))
    return tuple(heats)


def _heat(
    probed: Sequence[Probed],
    title: str,
    values: Sequence[Sequence[float]],
    unit: str,
    center: float | None = None,
) -> Heat:
    return Heat(
        title=title,
        x_label="layer",
        y_label="task",
        columns=probed[0].layers,
        rows=tuple(item.task for item in probed),
        values=tuple(tuple(_round(value) for value in row) for row in values),
        unit=unit,
        center=center,
        digits=1,
    )


def _mix_heat(probed: Sequence[Probed]) -> Heat:
    layers = tuple(name for name in probed[0].layers if name.isdigit())
    return Heat(
        title="Share of each layer in the learned mix",
        x_label="layer",
        y_label="task",
        columns=layers,
        rows=tuple(item.task for item in probed),
        values=tuple(tuple(round(share, 4) for share in item.mix_weights) for item in probed),
        digits=2,
        note=f"Even shares would be {1 / len(layers):.3f}.",
    )


def _centres(probed: Sequence[Probed]) -> Bars:
    return Bars(
        title="Centre of gravity of each task",
        x_label="task",
        y_label="layer",
        names=tuple(item.task for item in probed),
        series={"centre of gravity": tuple(_round(item.centre) for item in probed)},
    )


def finetune_findings(
    compared: Comparison,
    results: Mapping[str, RunResult],
    paper: Mapping[str, tuple[float, float]],
    facts: Mapping[str, str],
) -> Findings:
    """Put the fine-tuned arms of all tasks on a page, beside the paper's numbers."""
    tasks = compared.tasks
    bars = Bars(
        title="What the mix gains",
        x_label="task",
        y_label="points",
        names=tuple(pair.task for pair in tasks),
        series={
            "here": tuple(_round(pair.difference.mean) for pair in tasks),
            "the paper": tuple(_round(paper[p.task][1] - paper[p.task][0]) for p in tasks),
        },
        errors={"here": tuple(p.difference.interval or (p.difference.mean,) * 2 for p in tasks)},
        note="95 % intervals over seeds."
        f" The paper's mean over the semantic tasks that count here is {compared.claim:+.2f}.",
    )
    sections = [
        Section(
            title="Plain beside mixed",
            text=compared.verdict,
            figures=(finetune_table(compared, paper), groups_table(compared), bars),
        ),
        Section(
            title="What the trained mixes read",
            text="Shares of the layers after fine-tuning, the mean over seeds. They start at random and move"
            " little, so a single"
            " seed says nothing of a layer, and the mean of a few says little.",
            figures=_tuned_mixes([pair.task for pair in tasks], results),
        ),
    ]
    return Findings(title="Probing by fine-tuning", facts=facts, sections=tuple(sections))


def groups_table(compared: Comparison) -> Table:
    """One row a group: the means over its tasks that count, and their difference."""
    rows: list[tuple[str | Number, ...]] = []
    for group, pair in compared.groups.items():
        low, high = pair.difference.interval or (None, None)
        rows.append(
            (
                group,
                len(pair.tasks),
                _round(pair.plain),
                _round(pair.mix),
                _round(pair.difference.mean),
                _round(low),
                _round(high),
                round(pair.difference.p, 3),
                pair.difference.count,
            )
        )
    columns = ("group", "tasks", "plain", "mix", "difference", "from", "to", "p", "seeds")
    note = "Each seed is averaged over the tasks first; the interval is over seeds."
    return Table(title="Means by group", columns=columns, rows=tuple(rows), note=note)


def _tuned_mixes(tasks: Sequence[str], results: Mapping[str, RunResult]) -> tuple[Figure, ...]:
    """The mean share of each layer over the seeds that did not diverge, and its centre of gravity."""
    arms = [[s for s in results[f"{task}-mix"].seeds if s.diverged is None] for task in tasks]
    if not tasks:
        return ()
    layers = arms[0][0].mix_layers
    shares = [
        [math.fsum(seed.mix_weights[at] for seed in seeds) / len(seeds) for at in range(len(layers))]
        for seeds in arms
    ]
    heat = Heat(
        title="Share of each layer in the trained mix",
        x_label="layer",
        y_label="task",
        columns=tuple(map(str, layers)),
        rows=tuple(tasks),
        values=tuple(tuple(round(share, 4) for share in row) for row in shares),
        digits=2,
        note=f"Even shares would be {1 / len(layers):.3f}.",
    )
    centres = [math.fsum(j * s for j, s in zip(layers, row, strict=True)) for row in shares]
    bars = Bars(
        title="Centre of gravity of each trained mix",
        x_label="task",
        y_label="layer",
        names=tuple(tasks),
        series={"centre of gravity": tuple(_round(centre) for centre in centres)},
    )
    return heat, bars


def finetune_table(compared: Comparison, paper: Mapping[str, tuple[float, float]]) -> Table:
    """One row a task: both arms, their difference with its interval and p, and the paper's."""
    columns = (
        "group",
        "task",
        "plain",
        "mix",
        "difference",
        "from",
        "to",
        "p",
        "seeds",
        "diverged",
        "largest class",
        "paper plain",
        "paper mix",
        "counted",
    )
    rows: list[tuple[str | Number, ...]] = []
    for pair in compared.tasks:
        low, high = pair.difference.interval or (None, None)
        rows.append(
            (
                pair.group,
                pair.task,
                _round(pair.plain),
                _round(pair.mix),
                _round(pair.difference.mean),
                _round(low),
                _round(high),
                round(pair.difference.p, 3),
                pair.difference.count,
                "{} / {}".format(*pair.num_diverged),
                _round(pair.known.largest_class if pair.known else None),
                *paper[pair.task],
                "no" if pair.known and pair.known.doubt else "yes",
            )
        )
    note = (
        "Test accuracy in % after the last step; from, to: the 95 % interval of the difference. largest"
        " class: always giving the most"
        " frequent answer."
    )
    if compared.left_out:
        note += f" No mean counts {'; '.join(compared.left_out)}."
    return Table(title="Fine-tuned probes", columns=columns, rows=tuple(rows), note=note)


SHORT: Mapping[str, str] = {
    "task": "",
    "best layer": "layer",
    "its test": "test",
    "last": "last",
    "mix": "mix",
    "centre": "centre",
    "bag of words": "words",
    "untrained": "untrained",
    "selectivity": "select.",
    "plain": "plain",
    "difference": "±",
    "from": "from",
    "to": "to",
    "p": "p",
    "diverged": "diverged",
}
"""The columns that a terminal of 80 columns has room for, and what they are called there."""


def print_table(table: Table, console: Console | None = None) -> None:
    """Print a table with its groups as headings; all its columns are in figures.json."""
    console = console or Console(highlight=False)
    shown = RichTable(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    shown_columns = [at for at, name in enumerate(table.columns) if name in SHORT]
    for at in shown_columns:
        name = SHORT[table.columns[at]]
        shown.add_column(name, justify="right" if name else "left", no_wrap=True)
    group = None
    for row in table.rows:
        if row[0] != group:
            group = row[0]
            shown.add_row(f"[bold]{str(group).capitalize()}[/]")
        shown.add_row(*(_text(row[at]) for at in shown_columns))
    console.print(shown)
    console.print(f"\n{table.note}", markup=False)


def _text(value: str | Number) -> str:
    if value is None:
        return "–"
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _round(value: float | None) -> Number:
    return None if value is None or math.isnan(value) else round(value, 2)
