"""The package's rooms as a tree and as floors, from the table that tests/test_architecture.py enforces."""

from textwrap import wrap

from tests.test_architecture import ROOMS

WIDTH = 24
LINE = 100
BESIDE = {
    "benchmarks/": "what was measured, as scripts, each with its command in its first lines",
    "results/": "what was measured, as JSON, with tables and figures made from it",
    "docs/": "tutorial, how-to, explanation, reference, notebooks",
    "scripts/": "what makes the box, the tables, figures and reference of the documents, and the site",
    "tests/": "mirrors bermo/; test_architecture.py holds this tree",
}


def _line(name: str, text: str, indent: str = "") -> str:
    return f"{indent}{name:<{WIDTH - len(indent)}}{text}"


def tree() -> str:
    """Every room with its line, the highest floor first."""
    rooms = [_line(room, text, "  ") for floor in ROOMS for room, text in floor.items()]
    beside = [_line(name, text) for name, text in BESIDE.items()]
    return "\n".join(["```text", "bermo/", *rooms, *beside, "```"])


def floors() -> str:
    """The floors by number: a room imports only from lower floors."""
    lines = []
    for number, rooms in zip(range(len(ROOMS) - 1, -1, -1), ROOMS, strict=True):
        lines += wrap(f"{number:>2}  {'  '.join(rooms)}", LINE, subsequent_indent=" " * 4, tabsize=1)
    return "\n".join(["```text", *lines, "```"])
