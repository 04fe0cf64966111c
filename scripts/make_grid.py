"""The grid of encoders, tasks and pruning methods as a page with its heat map, from one JSON file.

    python scripts/make_grid.py [results/grid.json] [--out FOLDER]

Writes grid.md and grid.svg. What a row of the file holds: scripts/tables/grid.py.
"""

import argparse
import json
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from bermo.figures.draw import to_panels_file  # noqa: E402
from bermo.files import write_text  # noqa: E402
from scripts.tables.grid import Grid, grid  # noqa: E402
from scripts.tables.grid_pages import arms_of, counted, defaults, elsewhere, heats, seeds_wanted  # noqa: E402

SOURCE = ROOT / "results" / "grid.json"
HEAD = (
    "A number is the mean of the last evaluation on the dev set over the seeds that live, ± half of its"
    " 95 % interval (Student's t), with the number of seeds in brackets. † counts dead seeds: one answer to"
    " everything. The best is the highest mean of a pruned arm whose seeds all live and that had no"
    " teacher; being the highest of several, it is a little too high. Differences are between means, not"
    " paired by seed, with Welch's interval. What is kept is the share of the weights that pruning can"
    " remove, the least and the most of an arm's trainings. They ran on an H200, in bf16, unless a line above"
    " the table names another device."
)
SEEDS = (
    "To pair two arms by their seeds hardly narrows an interval, so that more seeds are what does. Of the"
    " default on SST-2: the deviation of one training, the interval of the mean as it is, and how many seeds"
    " would bring it to ± 0.3 if they deviate as much."
)
TITLE = "Points behind the best pruned model of a task"
NOTE = (
    "0 is the best. – is an arm with a dead seed, or one that was not run. Tasks with one arm are left"
    " out. Colours end at −5. ★: the default. SST-2 part: 20,000 rows. Paper's start: by size, with a random"
    " head and frozen embeddings; random head and frozen: with one of the two."
)


def page(known: Grid) -> str:
    """Return the whole page: the default everywhere, the heat map, and a table for each encoder."""
    parts = [
        "# Every encoder, task and pruning method",
        _wrapped(HEAD) + "\n\nMade from [grid.json](grid.json) by `python scripts/make_grid.py`.",
        "## The default beside the best",
        _wrapped(counted(known)),
        defaults(known),
        f"![{TITLE}](grid.svg)",
    ]
    if wanted := seeds_wanted(known):
        parts += ["## How many seeds", _wrapped(SEEDS), wanted]
    for encoder in known.encoders:
        said = f"The best pruned arm of each task is bold. {elsewhere(known, encoder)}".strip()
        parts += [f"## {encoder}", _wrapped(said), arms_of(known, encoder)]
    return "\n\n".join(parts) + "\n"


def figure(known: Grid) -> str:
    """Return the heat maps of all encoders, one below the other, as one SVG file."""
    return to_panels_file(TITLE, [[one] for one in heats(known)], NOTE)


def _wrapped(text: str) -> str:
    return textwrap.fill(text, width=119, break_long_words=False, break_on_hyphens=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("source", type=Path, nargs="?", default=SOURCE)
    parser.add_argument("--out", type=Path, default=SOURCE.parent)
    options = parser.parse_args()
    known = grid(json.loads(options.source.read_text(encoding="utf-8")))
    write_text(options.out / "grid.md", page(known))
    write_text(options.out / "grid.svg", figure(known))
    print(counted(known))


if __name__ == "__main__":
    main()
