"""What `bermo evaluate` prints fits 80 columns, however many classes there are and whatever their names."""

from io import StringIO
from itertools import pairwise

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console

from bermo.data.evaluation import Evaluation, class_scores
from bermo.data.mistakes import Calibration, Mistake
from bermo.report.evaluation import largest_confusions, print_evaluation
from bermo.ship.runtimes.evaluate import Evaluated


def evaluated(names: tuple[str, ...]) -> Evaluated:
    """An evaluation with random answers."""
    size = len(names)
    matrix = np.random.default_rng(0).integers(0, 9, (size, size))
    totals = zip(names, np.diag(matrix), matrix.sum(0), matrix.sum(1), strict=True)
    result = Evaluation(
        kind="classification",
        num_rows=int(matrix.sum()),
        metric="accuracy",
        score=50.0,
        interval=(40.0, 60.0),
        interval_by="Wilson",
        values={"accuracy": 50.0, "macro_f1": 49.0, "matthews": 1.0, "weighted_f1": 50.0},
        classes=tuple(class_scores(*row) for row in totals),
        confusion=tuple(map(tuple, matrix.tolist())),
        calibration=Calibration(error=3.0, interval=(2.0, 12.0), by_chance=11.0, bins=()),
        mistakes=tuple(
            Mistake(row=k, text=("a text " * 40, "\x1b[31m b"), label=a, given=b, probability=1.0)
            for k, (a, b) in enumerate(pairwise(names), start=99_990)
        ),
    )
    return Evaluated(
        model="m",
        runtime="torch",
        precision="fp32",
        file="f",
        digest="",
        labels=names,
        unknown={},
        result=result,
    )


def printed(names: tuple[str, ...]) -> list[str]:
    """What a terminal of 80 columns shows."""
    file = StringIO()
    print_evaluation(evaluated(names), Console(file=file, width=80))
    return file.getvalue().splitlines()


def test_few_classes_show_the_whole_matrix() -> None:
    lines = printed(("ant", "bee"))
    start = lines.index("Rows: the file's class. Columns: the model's answer.")
    assert lines[start + 1].split() == ["ant", "bee"]
    matrix = evaluated(("ant", "bee")).result.confusion
    assert [line.split() for line in lines[start + 2 : start + 4]] == [
        ["ant", *map(str, matrix[0])],
        ["bee", *map(str, matrix[1])],
    ]


@pytest.mark.parametrize(
    "names",
    [
        tuple(f"a class with a long name, number {k}" for k in range(4)),
        tuple(f"class {k}" for k in range(150)),
        ("[/bar]", "[bold]x", "\x1b[31mred", "tab\there", "两个很长的标签名字在这里两个很长的标签名字在这里"),
    ],
    ids=["long", "many", "odd"],
)
def test_every_line_fits_80_columns_and_no_name_reaches_the_terminal_raw(names: tuple[str, ...]) -> None:
    lines = printed(names)
    assert max(map(cell_len, lines)) <= 80
    assert not any("\x1b" in line for line in lines)
    assert any(names[0][:6] in line for line in lines) or len(names) == 150


def test_of_many_classes_the_worst_and_the_most_frequent_confusions_are_listed() -> None:
    lines = printed(tuple(f"class {k}" for k in range(150)))
    assert "The 24 lowest F1 of 150; --out FILE.json writes all of them." in lines
    assert any(line.startswith("The most frequent confusions, 10 of") for line in lines)
    result = evaluated(("a", "b", "c")).result
    matrix = np.array(result.confusion)
    np.fill_diagonal(matrix, 0)
    assert largest_confusions(result)[0][0] == matrix.max()
