"""Run docs/notebooks/*.py, cell by cell, and write each with its output as a Markdown page beside it.

    python scripts/make_notebooks.py [NAME …]

A cell begins with `# %%`; `# %% [markdown]` is text. Nothing is downloaded; each ends in seconds.
"""

import argparse
import contextlib
import io
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from bermo.files import write_text  # noqa: E402

FOLDER = ROOT / "docs" / "notebooks"
CELL = re.compile(r"^# %%(?P<kind> \[markdown\])?\n", flags=re.M)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Text, or code with what it printed."""

    is_text: bool
    body: str
    printed: str = ""


def cells(path: Path) -> list[Cell]:
    """Return a notebook's cells, not yet run."""
    parts = CELL.split(path.read_text(encoding="utf-8"))[1:]
    return [
        Cell(is_text=kind is not None, body=body.strip())
        for kind, body in zip(parts[::2], parts[1::2], strict=True)
    ]


def run(path: Path) -> Iterator[Cell]:
    """Run a notebook's cells in one namespace, in the working folder, and yield them with what they print."""
    names: dict[str, Any] = {"__name__": path.stem}
    for cell in cells(path):
        if cell.is_text:
            yield cell
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
            exec(compile(cell.body, path.name, "exec"), names)
        yield Cell(is_text=False, body=cell.body, printed=printed.getvalue().rstrip())


def page(ran: list[Cell]) -> str:
    """Return a notebook as Markdown."""
    parts = []
    for cell in ran:
        if cell.is_text:
            parts.append(re.sub(r"^# ?", "", cell.body, flags=re.M))
        else:
            parts.append(f"```python\n{cell.body}\n```")
            if cell.printed:
                shown = "\n".join(line.rstrip() for line in cell.printed.splitlines())
                parts.append(f"```text\n{shown}\n```")
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    os.environ["COLUMNS"] = "100"
    for path in sorted(FOLDER.glob("*.py")):
        if options.names and path.stem not in options.names:
            continue
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            os.environ["BERMO_CACHE"] = folder
            text = page(list(run(path)))
        write_text(path.with_suffix(".md"), text)
        print(path.with_suffix(".md"))


if __name__ == "__main__":
    main()
