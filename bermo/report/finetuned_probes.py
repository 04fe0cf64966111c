"""Fine-tuned probes as figures: plain beside mixed, the paper's numbers, what the trained mixes read."""

import math
from collections.abc import Mapping, Sequence

from bermo.figures.data import Bars, Figure, Findings, Heat, Number, Section, Table
from bermo.methods.probing.paired import Comparison
from bermo.report.probe_table import rounded
from bermo.runs.results import RunResult


def finetune_findings(
    compared: Comparison,
    results: Mapping[str, RunResult],
    paper: Mapping[str, tuple[float, float]],
    facts: Mapping[str, str],
) -> Findings:
    """Put the fine-tuned arms of all tasks on a page, beside the paper's numbers."""
    tasks = compared.tasks
    intervals = [pair.difference.interval for pair in tasks]
    known = tuple(interval for interval in intervals if interval is not None)
    has_all = len(known) == len(tasks)
    bars = Bars(
        title="What the mix gains",
        x_label="task",
        y_label="points",
        names=tuple(pair.task for pair in tasks),
        series={
            "here": tuple(rounded(pair.difference.mean) for pair in tasks),
            "the paper": tuple(rounded(paper[p.task][1] - paper[p.task][0]) for p in tasks),
        },
        errors={"here": known} if has_all else {},
        note=("95 % intervals over seeds." if has_all else "One seed has no interval.")
        + f" The paper's mean over the semantic tasks that count here is {compared.claim:+.2f}.",
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
                rounded(pair.plain),
                rounded(pair.mix),
                rounded(pair.difference.mean),
                rounded(low),
                rounded(high),
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
        series={"centre of gravity": tuple(rounded(centre) for centre in centres)},
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
                rounded(pair.plain),
                rounded(pair.mix),
                rounded(pair.difference.mean),
                rounded(low),
                rounded(high),
                round(pair.difference.p, 3),
                pair.difference.count,
                "{} / {}".format(*pair.num_diverged),
                rounded(pair.known.largest_class if pair.known else None),
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
