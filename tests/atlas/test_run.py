"""A whole atlas of the small box: table, page and pick; what is done is skipped, failures are named."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from bermo.atlas import methods as table
from bermo.atlas import speed as timing
from bermo.atlas.chain import Base, Chain, make_chain
from bermo.atlas.published import PKD_3
from bermo.atlas.run import AtlasRun
from bermo.atlas.steps import Export, Method, Shrink, Train
from bermo.cli import main
from bermo.errors import BermoError
from bermo.figures.data import read_findings
from bermo.interrupts import STOPPED
from bermo.progress import Quiet
from bermo.runs.trained import open_trained
from bermo.spec import RunSpec
from bermo.verbs import atlas as verb

COMMAND = (
    "atlas --tiny --limit 32 --epochs 1 --max-length 16 --device cpu --mix none --batch 1,2 --lengths 8"
    " --rounds 1 --methods student,bf16,static-mlp,tf-idf,static"
)


STUDENT = Train(is_taught=True, layers=1 / 3)
BF16 = Export(to="torch-bf16")
OWN = (
    Method(name="student", group="students", summary="a third", steps=(STUDENT,), published=(PKD_3,)),
    Method(name="bf16", group="quantisation", summary="half the bytes", steps=(BF16,)),
    Method(name="broken", group="chains", summary="nothing is dead", steps=(Shrink(), BF16)),
)
"""Methods whose form takes no tracing, which takes longer than all else of a test."""


@pytest.fixture(autouse=True)
def own_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    methods = {"dense": table.METHODS["dense"]} | {method.name: method for method in OWN}
    for place in ("methods", "run", "joining"):
        monkeypatch.setattr(f"bermo.atlas.{place}.METHODS", methods)
    monkeypatch.setattr(table, "NAMES", (*methods, *table.STUDENTS, *table.BASELINES))


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The verbs that methods have started; the second is interrupted."""
    known: list[str] = []
    call = verb.call

    def record(words: Sequence[str]) -> int:
        known.append(words[0])
        if len(known) == 2:
            raise KeyboardInterrupt
        return call(words)

    monkeypatch.setattr(verb, "call", record)
    return known


@pytest.mark.usefixtures("bench_here", "shallow_box", "warm_python")
def test_an_atlas_is_made_goes_on_and_names_what_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], started: list[str]
) -> None:
    out, texts = tmp_path / "atlas", tmp_path / "more.txt"
    texts.write_text("the cat sees the dogs\nthe girls see a horse\n")
    words = [*COMMAND.split(), "--unlabelled", str(texts), "--out", str(out)]
    assert main([*words, "--only", "train"]) == STOPPED
    assert main([*words, "--only", "train"]) == 0
    assert started == ["train"] * 3
    assert not (out / "bf16").exists()
    assert main([*words, "--only", "export"]) == 0
    measured = out / "bf16" / "seed-1" / "measured.json"
    known_bytes = measured.read_bytes()
    measured.unlink()
    plain = [out / name / "seed-1" / "measured.json" for name in ("static-mlp", "tf-idf", "static")]
    assert all(path.exists() for path in plain)
    assert main([*words, "--only", "export", "--on", "local", "--workers", "2"]) == 0
    assert measured.read_bytes() == known_bytes
    assert not (out / "bf16" / "bench.json").exists()
    assert main([*words, "--pick", "1 % of the score, smallest size"]) == 0
    assert started == [*["train"] * 3, "export"]
    printed = capsys.readouterr().out
    assert all(len(line) <= 80 for line in printed.splitlines() if "×" in line)
    known = json.loads((out / "atlas.json").read_text())
    rows = {row["name"]: row for row in known["rows"]}
    assert list(rows) == ["dense", "student", "bf16", "static-mlp", "tf-idf", "static"]
    assert (rows["dense"]["kept"], rows["dense"]["same_labels"]) == (100, 100)
    assert rows["bf16"]["size_gain"] == pytest.approx(2, abs=0.1)
    assert rows["student"]["parameters"] < rows["bf16"]["parameters"] == rows["dense"]["parameters"]
    assert all(row["speedup"] > 0 for row in rows.values())
    smallest = min(("student", "bf16"), key=lambda name: rows[name]["megabytes"])
    assert f"Picked for the smallest size: {smallest} " in known["picked"]
    assert open_trained(out / "picked").trained.task.kind == "classification"
    assert rows["static-mlp"]["seconds"] > 0
    assert (out / "static-mlp" / "seed-1" / "model" / "arrays.npz").exists()
    page = (out / "page.html").read_text()
    for text in ("Score kept against size", "BERT3-PKD", "bermo train --mix none --task box/object-number"):
        assert text in page
    said = "2 texts without labels (more.txt), answered by the dense model, were learned from too"
    assert known["unlabelled"] == f"{said}: student, static-mlp."
    assert said in page
    assert [name for name, row in rows.items() if "--unlabelled" in " ".join(row["commands"])] == ["student"]
    _, every, *_ = read_findings(out / "figures.json").sections
    table = every.figures[0]
    # A phone shows two columns, and what is a number is sorted by value.
    assert table.columns[:2] == ("method", "score")
    assert all(isinstance(row[table.columns.index("throughput ×")], float) for row in table.rows)

    # Called again, nothing is started; a method more is the only new one, and its failure is its own.
    monkeypatch.setattr(timing, "bench", None)
    before = {path: path.read_bytes() for path in out.rglob("*.json") if path.parent.name != "atlas"}
    assert main([*words, "--methods", "bf16,broken"]) == 1
    assert started[4:] == ["shrink"]
    assert "broken failed. broken/seed-1/1-shrink ended with 2: There is nothing dead" in _one_line(capsys)
    assert {path: path.read_bytes() for path in before} == before
    assert main([*words, "--lr", "1"]) == 2
    assert "other options: --lr was 0.0005, now 1.0. Give" in _one_line(capsys)
    assert main([word for word in words if word not in ("--unlabelled", str(texts))]) == 2
    assert "--unlabelled was more.txt, now not given; other texts without labels" in _one_line(capsys)
    texts.write_text("the cat sees the dogs\n")
    assert main(words) == 2
    assert "atlas was started with other options: other texts without labels. Give" in _one_line(capsys)


def _one_line(capsys: pytest.CaptureFixture[str]) -> str:
    printed = capsys.readouterr()
    return " ".join((printed.out + printed.err).split())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--tiny --methods bf18", 'There is no method "bf18". Did you mean "bf16"?'),
        ("--train my.csv", "needs --train FILE and --valid FILE"),
        ("--train my.csv --valid no.csv", "no.csv"),
        ("--tiny --train my.csv", "--tiny makes its own rows"),
        ("--tiny --pick fast", '"fast" cannot be read. Write bounds and one aim'),
        ("--tiny --budget soon", "such as 2h, 30min or 90s"),
        ("--tiny --out path", "path is not empty"),
        ("--tiny --unlabelled no.txt", "no.txt"),
        ("--train my.csv --valid dev.csv --unlabelled blank.txt", "blank.txt is empty"),
        ("--tiny --only train --pick 1MB", "has no aims"),
    ],
)
def test_mistakes_are_one_sentence_before_any_work(
    words: str, sentence: str, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (files / "blank.txt").write_text("\n\n")
    assert main(["atlas", *words.split()]) == 2
    assert sentence in _one_line(capsys)
    assert not (files / "runs").exists()


def test_one_model_that_cannot_be_timed_does_not_spoil_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = Base(
        spec=RunSpec(),
        num_layers=3,
        out=tmp_path,
        valid=tmp_path,
        judged=tmp_path,
        train=tmp_path,
        texts=tmp_path,
    )
    chains = [make_chain(method, 1, base) for method in table.METHODS.values()]
    timed: list[str] = []

    class Fails:
        device = "cpu"

        def time(self, chains: Sequence[Chain]) -> None:
            names = [chain.method.name for chain in chains]
            if "bf16" in names:
                raise BermoError("It is too large.")
            timed.append(names[-1])

    work = object.__new__(AtlasRun)
    work.display, work.failed = Quiet(), {}
    work._time(Fails(), chains)  # type: ignore[arg-type]
    assert timed == ["dense", "student", "broken"]
    assert work.failed == {"bf16": "It is too large."}
