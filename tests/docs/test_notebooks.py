"""Every notebook runs, and its page shows the code that was run and the same kind of output."""

import re
import time
from pathlib import Path

import pytest

from scripts.make_notebooks import FOLDER, cells, page, run
from tests.docs.documents import blocks

NOTEBOOKS = sorted(FOLDER.glob("*.py"))
SECONDS = 60.0
"""CPU seconds that a notebook may take: idle it is under 30, beside other work the same takes longer."""


def without_output(text: str) -> str:
    """Return a page without what was printed, which depends on the processor to some digits."""
    return re.sub(r"^```text\n.*?^```", "```text", text, flags=re.S | re.M)


def test_there_are_four_notebooks() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["mix", "probe", "prune", "ship"]


@pytest.mark.usefixtures("quick_traces")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_its_page_is_of_it(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, real_box: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    started = time.process_time()
    ran = list(run(path))
    assert time.process_time() - started < SECONDS
    shown = path.with_suffix(".md")
    assert blocks(shown, "python") == [f"{cell.body}\n" for cell in cells(path) if not cell.is_text]
    assert without_output(page(ran)) == without_output(shown.read_text(encoding="utf-8"))
