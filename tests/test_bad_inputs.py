"""Every bad input gets its sentence and its exit code; there is no traceback, and nothing is written.

The table is tests/bad_inputs/table.txt; the folder that its commands run in is made by world.py beside it.
"""

import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

from bermo.cli import main
from tests.bad_inputs.world import build

TABLE = Path(__file__).parent / "bad_inputs" / "table.txt"
SHORT = {
    "DATA": "--train my.csv --valid dev.csv --model encoder --device cpu --max-length 16 --epochs 1"
    " --batch-size 8 --out out",
    "LONG": "x" * 300,
}
Snapshot = dict[str, tuple[int, int]]


@dataclass(frozen=True)
class Line:
    """One bad input: the exit code, words of the sentence in their order, and the command."""

    code: int
    words: tuple[str, ...]
    command: str


def read_table() -> list[Line]:
    """Read the lines of the table, all but its comments."""
    lines = []
    for text in TABLE.read_text(encoding="utf-8").splitlines():
        if not text.startswith("#"):
            code, words, command = (part.strip() for part in text.split(" | ", 2))
            lines.append(Line(int(code), tuple(words.split(" … ")), command))
    return lines


@dataclass
class World:
    """The folder that commands run in, and what was in it after the last of them."""

    root: Path
    known: Snapshot


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    root = tmp_path_factory.mktemp("world")
    build(root)
    return World(root, snapshot(root))


def snapshot(root: Path) -> Snapshot:
    """Every path below a folder, with its size and the time of its last change."""
    stats = ((path, path.lstat()) for path in root.rglob("*"))
    return {str(path): (stat.st_size, stat.st_mtime_ns) for path, stat in stats}


@pytest.mark.parametrize("line", read_table(), ids=lambda line: line.command)
def test_a_bad_input_is_one_sentence_and_leaves_nothing(
    line: Line,
    world: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(world.root)
    monkeypatch.setenv("BERMO_CACHE", str(tmp_path))
    given = shlex.split(line.command)
    words = [part for word in given for part in (SHORT[word].split() if word in SHORT else [word])]
    code = main(words)
    before, world.known = world.known, snapshot(world.root)
    printed = capsys.readouterr()
    said = [text for text in printed.err.splitlines() if text.startswith("bermo: ")]
    assert code == line.code, printed.err
    assert len(said) == 1, printed.err
    for part in line.words:
        assert part in said[0]
    assert "Traceback" not in printed.err + printed.out
    assert not (tmp_path / "tracebacks").exists(), said[0]
    assert world.known == before


def test_the_table_is_long_and_has_no_line_twice() -> None:
    commands = [line.command for line in read_table()]
    assert len(commands) >= 200
    assert len(set(commands)) == len(commands)
