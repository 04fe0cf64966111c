"""An evaluation as figures for a page: confusions, each class, calibration, the surest mistakes, and what
changed from another model to this one.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from bermo.data.evaluation import Evaluation
from bermo.data.mistakes import Calibration, Mistake
from bermo.errors import BermoError
from bermo.figures.data import Bars, Figure, Findings, Heat, Lines, Section, Table
from bermo.report.evaluation import about_calibration, about_change
from bermo.ship.runtimes.evaluate import Evaluated

MOST_CLASSES = 40
"""Classes of a grid; of more, the table of classes and the terminal's confusions tell."""
LONGEST_TEXT = 300


def check_figures(kind: str, folder: Path) -> None:
    """Refuse figures of a task whose answers are no classes."""
    if kind != "classification":
        raise BermoError(
            f"{folder} would show errors of classes, but the task is {kind}. Leave --figures out."
        )


def evaluation_findings(evaluated: Evaluated) -> Findings:
    """Return what a page shows of a model's answers to a file."""
    low, high = evaluated.result.interval
    facts = {
        "model": evaluated.model,
        "file": f"{evaluated.file}, {evaluated.result.num_rows:,} rows",
        evaluated.result.metric: f"{evaluated.result.score:.2f} ({low:.2f} … {high:.2f})",
    }
    title = f"Errors of {Path(evaluated.model).name} on {Path(evaluated.file).name}"
    return Findings(title=title, facts=facts, sections=tuple(_sections(evaluated)))


def _sections(evaluated: Evaluated) -> Iterator[Section]:
    result = evaluated.result
    figures: list[Figure] = [class_bars(result)]
    if len(evaluated.labels) <= MOST_CLASSES:
        figures.insert(0, confusion_grid(result, evaluated.labels))
    yield Section(title="Classes", text="", figures=tuple(figures))
    if result.calibration is not None:
        text = about_calibration(result.calibration).replace("\n", " ")
        yield Section(title="Calibration", text=text, figures=(reliability(result.calibration),))
    if result.mistakes:
        note = "Wrong answers, those first of which the model is surest."
        table = mistakes_figure("The surest mistakes", result.mistakes, note)
        yield Section(title="Mistakes", text="", figures=(table,))
    if evaluated.change is not None:
        table = mistakes_figure(
            "Right before, wrong now", evaluated.change.lost, "Those first that are surest."
        )
        text = about_change(evaluated.change).replace("\n", " ")
        yield Section(title="What changed", text=text, figures=(table,) if evaluated.change.lost else ())


def confusion_grid(result: Evaluation, labels: tuple[str, ...]) -> Heat:
    """Shares of each class of the file that were given each answer."""
    rows = tuple(tuple(100 * count / max(1, sum(row)) for count in row) for row in result.confusion)
    return Heat(
        title="What each class is taken for",
        x_label="answer",
        y_label="class of the file",
        columns=labels,
        rows=labels,
        values=rows,
        unit="%",
        limits=(0.0, 100.0),
        digits=1,
        note="Percent of the rows of a class; a row sums to 100.",
    )


def class_bars(result: Evaluation) -> Bars:
    """Precision, recall and F1 of each class."""
    kinds = {"precision": "precision", "recall": "recall", "F1": "f1"}
    return Bars(
        title="Precision, recall and F1 of each class",
        x_label="class",
        y_label="percent",
        names=tuple(item.name for item in result.classes),
        series={name: tuple(getattr(item, kind) for item in result.classes) for name, kind in kinds.items()},
    )


def reliability(found: Calibration) -> Lines:
    """The share of right answers over their probability, beside the line on which both are equal."""
    x = tuple(item.probability for item in found.bins)
    return Lines(
        title="How many answers of a probability are right",
        x_label="mean probability of the answers (%)",
        y_label="right (%)",
        x=x,
        series={"right answers": tuple(item.right for item in found.bins), "as probable": x},
        bands={"right answers": tuple(item.interval for item in found.bins)},
        note="Answers in ten bins by their probability; the band is each bin's 95 % interval (Wilson).",
    )


def mistakes_figure(title: str, mistakes: Sequence[Mistake], note: str) -> Table:
    """Wrong answers with their texts."""
    rows = tuple(
        (item.label, item.given, round(100 * item.probability, 1), _cut(" | ".join(item.text)), item.row)
        for item in mistakes
    )
    return Table(title=title, columns=("class", "taken for", "sure (%)", "text", "row"), rows=rows, note=note)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"
