"""The folder of an analysis."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bermo.analyse import parts
from bermo.analyse.run import analyse
from bermo.analyse.subject import Request
from bermo.errors import BermoError
from bermo.models.pretraining import BermoForMaskedLM
from bermo.progress import Quiet
from tests.analyse.conftest import TEXTS
from tests.tiny import make_config, make_tokenizer, save_backbone


def test_what_a_full_disk_left_of_the_first_file_does_not_bar_the_folder(tmp_path: Path) -> None:
    save_backbone("bert", tmp_path / "encoder")
    out = tmp_path / "out"
    out.mkdir()
    (out / ".analyse.json.0-1-2.tmp").write_text("{")
    request = Request(models=(str(tmp_path / "encoder"),), texts=TEXTS, measures=("geometry",), device="cpu")
    analyse(request, out, Quiet())
    assert (out / "figures.json").is_file()
    (out / "analyse.json").rename(out / "other.json")
    with pytest.raises(BermoError, match="holds no analysis"):
        analyse(request, out, Quiet())


def test_another_request_is_refused_by_name_and_a_field_from_later_is_no_difference(tmp_path: Path) -> None:
    save_backbone("bert", tmp_path / "encoder")
    out = tmp_path / "out"
    request = Request(models=(str(tmp_path / "encoder"),), texts=TEXTS, measures=("geometry",), device="cpu")
    analyse(request, out, Quiet())
    known = json.loads((out / "analyse.json").read_text())
    del known["max_unknown"], known["crc32"]
    (out / "analyse.json").write_text(json.dumps(known))
    analyse(request, out, Quiet())
    with pytest.raises(BermoError, match=r"What differs: --max-length was 128, now 9; other texts\. Give"):
        analyse(replace(request, max_length=9, texts=TEXTS[:1]), out, Quiet())
    with pytest.raises(BermoError, match=r"--base was not given, now box\. Give"):
        analyse(replace(request, base="box"), out, Quiet())


class Counting(Quiet):
    """A display that notes how many rows a measure was to have, and how many it said were done."""

    def __init__(self) -> None:
        self.counts: dict[str, tuple[int, int]] = {}
        self.now = ""

    def start(self, what: str, total: int, done: int) -> None:
        self.now, self.counts[what] = what, (total, done)

    def step(self, done: int, loss: float | None) -> None:
        self.counts[self.now] = (self.counts[self.now][0], done)


def test_every_measure_counts_to_its_end_and_not_beyond(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "PAIRS", 2)
    monkeypatch.setattr(parts, "REASONING", 2)
    BermoForMaskedLM.from_backbone(make_config("bert")).save_pretrained(tmp_path / "masked")
    make_tokenizer().save_pretrained(tmp_path / "masked")
    request = Request(
        models=(str(tmp_path / "masked"),),
        texts=TEXTS,
        measures=("geometry", "identity", "attention", "layers", "knowledge", "order"),
        device="cpu",
        max_unknown=1.0,
    )
    display = Counting()
    analyse(request, tmp_path / "out", display)
    assert display.counts["masked: knowledge"][0] > 2
    assert {what: count for what, count in display.counts.items() if count[1] != count[0]} == {}


def test_fewer_measures_leave_what_was_measured_before(tmp_path: Path) -> None:
    save_backbone("bert", tmp_path / "encoder")
    both = Request(
        models=(str(tmp_path / "encoder"),), texts=TEXTS, measures=("geometry", "identity"), device="cpu"
    )
    titles = [section.title for section in analyse(both, tmp_path / "out", Quiet()).sections]
    fewer = replace(both, measures=("geometry",))
    again = analyse(fewer, tmp_path / "out", Quiet())
    assert [section.title for section in again.sections] == titles
    alone = analyse(fewer, tmp_path / "alone", Quiet())
    assert len(alone.sections) < len(titles)
