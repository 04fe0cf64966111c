"""What `bermo evaluate` prints: the scores, a line for each class, which classes are taken for which, how far
probabilities can be believed, and the surest mistakes.

Every table fits 80 columns; what does not fit is in the JSON file. Names of labels come from a user's file:
they are cut, and control characters in them are not sent to the terminal.
"""

from collections.abc import Iterator, Sequence

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from bermo.data.evaluation import ClassScores, Evaluation
from bermo.data.intervals import LEVEL
from bermo.data.mistakes import Calibration, Change, Mistake
from bermo.printing import number_of, visible
from bermo.ship.runtimes.evaluate import Evaluated

WIDTH = 80
LONGEST_NAME = 24
MOST_CLASSES = 24
"""Classes that are listed; of more, the worst are."""
MOST_COLUMNS = 20
"""A matrix with more columns fits no terminal, whatever stands in it."""
MOST_CONFUSIONS = 10
MOST_MISTAKES = 5


def print_evaluation(evaluated: Evaluated, console: Console) -> None:
    """Print all tables of an evaluation."""
    for part in parts(evaluated):
        console.print(part, markup=False, highlight=False, soft_wrap=isinstance(part, str))


def parts(evaluated: Evaluated) -> Iterator[RenderableType]:
    """Yield what is printed, in its order."""
    result, labels = evaluated.result, evaluated.labels
    yield f"{evaluated.model} on {evaluated.file}: {number_of(result.num_rows, 'row')}"
    low, high = result.interval
    yield f"{result.metric} {result.score:.2f} (95 % interval {low:.2f} … {high:.2f}, {result.interval_by})\n"
    yield values_table(result)
    if evaluated.unknown:
        names = ", ".join(f'"{shown(name)}"' for name in sorted(evaluated.unknown))
        yield f"\nCounted as wrong, since the model cannot give them: {names}"
    if result.classes:
        yield ""
        yield classes_table(result)
    if len(result.classes) > MOST_CLASSES:
        yield f"The {MOST_CLASSES} lowest F1 of {len(result.classes)}; --out FILE.json writes all of them."
    if result.confusion:
        yield ""
        yield from _confusions(result, labels)
    if result.calibration is not None:
        yield ""
        yield about_calibration(result.calibration)
    if result.mistakes:
        num_wrong = result.num_rows - sum(row[k] for k, row in enumerate(result.confusion))
        yield f"\nThe surest of {num_wrong:,} wrong answers:"
        yield mistakes_table(result.mistakes)
    if evaluated.change is not None:
        yield f"\n{about_change(evaluated.change)}"
        if evaluated.change.lost:
            yield mistakes_table(evaluated.change.lost)


def about_calibration(found: Calibration) -> str:
    """Say how far probabilities can be believed, and whether that is more than chance."""
    low, high = found.interval
    more = "more than" if found.error > found.by_chance else "no more than"
    return (
        f"Probabilities are {found.error:.2f} points off on average (95 % interval {low:.2f} … {high:.2f}),"
        f"\n{more} chance explains (up to {found.by_chance:.2f} on so many rows)."
    )


def about_change(found: Change) -> str:
    """Say how many answers became wrong and right, and whether that is more than chance."""
    is_seen = "more than" if found.p < LEVEL else "no more than"
    return (
        f"{found.against} is right on {found.score:.2f} % of the rows.\n{found.num_lost:,} answers became"
        f" wrong, {found.num_won:,} right: {is_seen} chance explains\n(sign test, p = {found.p:.2g})."
    )


def mistakes_table(mistakes: Sequence[Mistake]) -> Table:
    """The first wrong answers, a line each: where, what, how sure, and how the text begins."""
    room = WIDTH - _width(_mistakes(mistakes, 1))
    return _mistakes(mistakes, max(1, room))


def _mistakes(mistakes: Sequence[Mistake], longest: int) -> Table:
    table = _table()
    for title, side in (("row", "right"), ("class", "left"), ("taken for", "left"), ("sure", "right")):
        table.add_column(title, justify=side)  # type: ignore[arg-type]
    table.add_column("text"[:longest])
    for item in mistakes[:MOST_MISTAKES]:
        names = (Text(shown(name)) for name in (item.label, item.given))
        text = Text(shown(" | ".join(item.text), longest))
        table.add_row(str(item.row), *names, f"{item.probability:.1%}", text)
    return table


def values_table(result: Evaluation) -> Table:
    """All metrics side by side; errors of numbers are in the labels' own units."""
    table = _table()
    for name in (*result.values, *result.errors):
        table.add_column(name, justify="right")
    values = [f"{value:.2f}" for value in result.values.values()]
    table.add_row(*values, *(f"{value:.4g}" for value in result.errors.values()))
    return table


def classes_table(result: Evaluation) -> Table:
    """Precision, recall and F1 of each class or type; of many, those with the lowest F1."""
    table = _table()
    table.add_column({"multi-label": "label", "tagging": "type"}.get(result.kind, "class"))
    for title in ("precision", "recall", "f1", "in file", "given"):
        table.add_column(title, justify="right")
    listed: list[ClassScores] = list(result.classes)
    if len(listed) > MOST_CLASSES:
        listed = sorted(listed, key=lambda item: item.f1)[:MOST_CLASSES]
    for item in listed:
        numbers = [f"{value:.2f}" for value in (item.precision, item.recall, item.f1)]
        table.add_row(Text(shown(item.name)), *numbers, str(item.support), str(item.given))
    return table


def _confusions(result: Evaluation, labels: tuple[str, ...]) -> Iterator[RenderableType]:
    matrix = matrix_table(result, labels) if len(labels) <= MOST_COLUMNS else None
    if matrix is not None and _width(matrix) <= WIDTH:
        yield "Rows: the file's class. Columns: the model's answer."
        yield matrix
        return
    found = largest_confusions(result)
    if found:
        yield f"The most frequent confusions, {len(found)} of {_num_confusions(result)} kinds:"
        yield confusions_table(result, labels, found)


def matrix_table(result: Evaluation, labels: tuple[str, ...]) -> Table:
    """The confusion matrix: a line for each class of the file, a column for each answer."""
    table = _table()
    table.add_column("")
    for name in labels:
        table.add_column(Text(shown(name)), justify="right")
    for name, row in zip(labels, result.confusion, strict=True):
        table.add_row(Text(shown(name)), *map(str, row))
    return table


def largest_confusions(result: Evaluation) -> list[tuple[int, int, int]]:
    """The most frequent (rows, class of the file, answer) of wrong answers."""
    wrong = [
        (-count, gold, given)
        for gold, row in enumerate(result.confusion)
        for given, count in enumerate(row)
        if count and gold != given
    ]
    return [(-count, gold, given) for count, gold, given in sorted(wrong)[:MOST_CONFUSIONS]]


def _num_confusions(result: Evaluation) -> int:
    cells = [(i, j, n) for i, row in enumerate(result.confusion) for j, n in enumerate(row)]
    return sum(count > 0 and gold != given for gold, given, count in cells)


def confusions_table(result: Evaluation, labels: tuple[str, ...], found: list[tuple[int, int, int]]) -> Table:
    """One line for each kind of confusion: how many rows, and which share of their class."""
    table = _table()
    for title, side in (("class", "left"), ("taken for", "left"), ("rows", "right"), ("of class", "right")):
        table.add_column(title, justify=side)  # type: ignore[arg-type]
    for count, gold, given in found:
        share = count / sum(result.confusion[gold])
        table.add_row(Text(shown(labels[gold])), Text(shown(labels[given])), str(count), f"{share:.1%}")
    return table


def shown(name: str, longest: int = LONGEST_NAME) -> str:
    """Return a label or text as it may stand in a terminal's cell: cut, without control characters."""
    cut = Text(" ".join(visible(name).split()))
    cut.truncate(longest, overflow="ellipsis")
    return cut.plain


def _table() -> Table:
    return Table(box=None, pad_edge=False, header_style="bold")


def _width(table: Table) -> int:
    return Console(width=10_000).measure(table).maximum
