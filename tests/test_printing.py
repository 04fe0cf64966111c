"""Names and labels of users on the terminal: no markup is read from them, no control is obeyed."""

import io
import re
from pathlib import Path

import pytest

import bermo
from bermo.cli import main
from bermo.printing import percent, say, visible
from bermo.report.console import PlainConsole
from bermo.report.terminal import TerminalDisplay, results_table
from bermo.runs.statistics import summarise
from tests.results import seed_result

HOSTILE = "[/bar] [red]x[/red] :smile: {a} \x1b[31m\x9b2J\x07\r"
SHOWN = r"[/bar] [red]x[/red] :smile: {a} \x1b[31m\x9b2J\x07\x0d"


def test_controls_are_shown_and_lines_and_tabs_stay() -> None:
    assert visible(HOSTILE) == SHOWN
    assert visible("naïve\tκόσμος\n") == "naïve\tκόσμος\n"


def test_a_share_is_written_as_a_percent_in_one_place() -> None:
    assert percent(0.1234) == "12.3 %"
    assert percent(1.0, 0) == "100 %"
    by_hand = re.compile(r"\{100 \* .*\} %")
    house = Path(bermo.__file__).parent
    found = [path.name for path in house.rglob("*.py") if by_hand.search(path.read_text(encoding="utf-8"))]
    assert found == ["printing.py"]


def test_what_is_said_is_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    say(HOSTILE)
    assert capsys.readouterr().out == SHOWN + "\n"


def test_cells_of_tables_and_sentences_are_printed_letter_by_letter() -> None:
    out = io.StringIO()
    console = PlainConsole(file=out, width=200)
    console.print(results_table({HOSTILE: summarise([seed_result(1, 50.0)])}))
    TerminalDisplay(console).tell(HOSTILE)
    assert out.getvalue().count(SHOWN) == 2


def test_progress_of_something_with_any_name_is_shown() -> None:
    out = io.StringIO()
    display = TerminalDisplay(PlainConsole(file=out, width=200, force_terminal=True))
    display.start(HOSTILE, 2, 0)
    display.step(1, None)
    display.close()
    assert SHOWN in out.getvalue()


def test_a_run_with_labels_that_look_like_markup_ends(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "".join(f"a film number {k % 3},{['[/bar]', '[red]'][k % 2]}\n" for k in range(16))
    for name in ("my.csv", "dev.csv"):
        (files / name).write_text("text,label\n" + rows)
    small = "--max-length 16 --epochs 1 --batch-size 8 --device cpu --out run --head random --lr 0"
    assert main(f"train --train my.csv --valid dev.csv {small}".split()) == 0
    assert main(["predict", "run", "texts.txt"]) == 0
    assert main(["evaluate", "run", "dev.csv"]) == 0
    assert "[/bar]" in capsys.readouterr().out
