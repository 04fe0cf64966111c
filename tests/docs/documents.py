"""The documents as data: which there are, their blocks of code, their tables, their headings and links."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(?P<kind>\w*)\n(?P<body>.*?)^```", flags=re.S | re.M)


def documents() -> list[Path]:
    """Every Markdown file of the repository that a reader may open."""
    loose = ("README.md", "CONTRIBUTING.md", "AGENTS.md", "SECURITY.md", "CHANGELOG.md", "LOG.md")
    folders = ("docs", "results")
    return [ROOT / name for name in loose] + sorted(p for f in folders for p in (ROOT / f).rglob("*.md"))


def name_of(path: Path) -> str:
    """Return a document's path in the repository."""
    return path.relative_to(ROOT).as_posix()


def blocks(path: Path, kind: str) -> list[str]:
    """Return the fenced blocks of one language."""
    text = path.read_text(encoding="utf-8")
    return [fence["body"] for fence in FENCE.finditer(text) if fence["kind"] == kind]


def prose(path: Path) -> str:
    """Return a document without its fenced blocks."""
    return FENCE.sub("", path.read_text(encoding="utf-8"))


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command of a document, and the lines that the document says it prints."""

    words: tuple[str, ...]
    printed: tuple[str, ...] = ()


def commands(path: Path) -> list[Command]:
    """Return every command of the bash and console blocks, in their order."""
    text = path.read_text(encoding="utf-8")
    known: list[Command] = []
    for fence in FENCE.finditer(text):
        body = fence["body"].replace("\\\n", " ")
        if fence["kind"] == "bash":
            known += [Command(words=tuple(shlex.split(line))) for line in body.splitlines() if line.strip()]
        elif fence["kind"] == "console":
            for part in re.split(r"^\$ ", body, flags=re.M)[1:]:
                line, _, printed = part.partition("\n")
                known.append(Command(words=tuple(shlex.split(line)), printed=tuple(printed.splitlines())))
    return known


def tables(path: Path) -> Iterator[tuple[str, str]]:
    """Yield every table outside of code: the line before it that is not empty, and its rows."""
    lines, before, rows = prose(path).splitlines(), "", list[str]()
    for line in [*lines, ""]:
        if line.startswith("|"):
            rows.append(line)
            continue
        if rows:
            yield before, "\n".join(rows)
            rows = []
        before = line or before


def rows_of(table: str) -> list[dict[str, str]]:
    """Return a Markdown table's rows by the names of its columns."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return [dict(zip(lines[0], line, strict=True)) for line in lines[2:]]


def slug(heading: str) -> str:
    """Return the anchor of a heading, as GitHub and the site make it."""
    words = re.sub(r"[`*]|\]\([^)]*\)|\[", "", heading).strip().lower()
    return re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", words))
