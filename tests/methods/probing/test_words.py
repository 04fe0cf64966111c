"""Probes of words end to end on a tiny treebank: controls, intervals, figures, a folder that goes on."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bermo.cli import main
from bermo.data.word_tasks import open_source, read_word_task
from bermo.figures.data import Bars, Table, read_findings
from bermo.methods.probing import fitting
from bermo.methods.probing.results import read_probed
from bermo.methods.probing.spec import ProbeSpec
from bermo.methods.probing.word_rows import kept_data, read_source, stacked_rows
from bermo.methods.probing.words import (
    WordProbed,
    control_of,
    expected_layer,
    memoriser_score,
    word_digest,
)
from bermo.nn import probes
from bermo.nn.probes import Settings
from bermo.progress import Quiet
from bermo.report.word_probes import order_verdict
from bermo.vectors import load_encoder
from bermo.verbs.several import models_of
from tests.tiny import save_backbone
from tests.trees import entities, treebank


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "LEAST_STEPS", 4)
    monkeypatch.setattr(
        fitting,
        "settings_for",
        lambda classes, rows, spec: Settings(penalties=(1e-3,), evaluations=1, mix_steps=10, seed=spec.seed),
    )


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "my.conllu").write_text(treebank(60))
    (tmp_path / "names.txt").write_text(entities(60))
    return tmp_path


def test_control_labels_follow_from_the_word_alone_and_are_as_frequent(files: Path) -> None:
    data = read_word_task("upos", open_source(files / "my.conllu"))
    first, again, other = control_of(data, 0), control_of(data, 0), control_of(data, 1)
    assert first == again
    assert first != other
    known: dict[str, str] = {}
    for part in first.parts:
        for key, label in zip(part.keys, part.labels, strict=True):
            assert known.setdefault(key, label) == label
    # Every word of test was seen in training: memorising solves the control, whole.
    assert memoriser_score(first) == 100


def test_drawn_labels_are_as_frequent_as_those_of_training(files: Path) -> None:
    data = read_word_task("upos", open_source(files / "my.conllu"))
    words = tuple(f"word{k}" for k in range(5000))
    part = replace(data.parts[0], keys=words, labels=("NOUN",) * 3000 + ("VERB",) * 2000)
    drawn = Counter(control_of(replace(data, parts=(part, part, part)), 0).parts[0].labels)
    assert drawn["NOUN"] / 5000 == pytest.approx(0.6, abs=0.03)
    assert drawn["VERB"] / 5000 == pytest.approx(0.4, abs=0.03)


def test_rows_are_the_means_of_spans_and_words_beside_their_heads(files: Path) -> None:
    encoder, spec = load_encoder("box", device="cpu"), ProbeSpec(max_unknown=1.0)
    for task, name in (("deprel", "my.conllu"), ("entity", "names.txt")):
        source = open_source(files / name)
        read = read_source(encoder, source, ["0", "1"], spec, Quiet())
        data = kept_data(read_word_task(task, source), read)
        rows = stacked_rows(data, read)
        for part, first, x_LND in zip(data.parts, read.firsts, rows, strict=True):
            for at in range(0, len(part), 7):
                begin = read.words.starts[first + part.sentences[at]]
                spans = [part.spans[at], *([part.heads[at]] if part.heads else [])]
                vectors = read.words.vectors_LWD[1].float()
                slow = torch.cat([vectors[begin + a : begin + b].mean(0) for a, b in spans])
                torch.testing.assert_close(x_LND[1, at].float(), slow, atol=2e-3, rtol=2e-3)


def test_the_expected_layer_is_the_mean_depth_of_the_gains() -> None:
    assert expected_layer(np.array([0.5, 0.7, 0.9, 0.9]), [0, 1, 2, 3]) == pytest.approx(1.5)
    assert expected_layer(np.array([0.5, 0.5]), [0, 1]) is None
    assert expected_layer(np.array([0.5, 0.4]), [0, 1]) is None


def test_a_command_probes_all_and_goes_on(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(files)
    command = ["probe", "--words", "my.conllu,names.txt", "--tasks", "upos,deprel,entity"]
    command += ["--out", "out", "--max-unknown", "1"]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "literature" in printed
    source = open_source(Path("my.conllu"))
    probed = read_probed(Path("out/deprel.json"), WordProbed, word_digest(read_word_task("deprel", source)))
    assert probed is not None
    count = len(probed.layers)
    for values in (probed.accuracy, probed.least, probed.control, probed.untrained, probed.compression):
        assert len(values) == count
    assert all(a <= b <= c for a, b, c in zip(probed.least, probed.accuracy, probed.most, strict=True))
    assert len(probed.prefixes) == len(probed.mix_weights) == count
    assert probed.memoriser > probed.largest_class
    findings = read_findings(Path("out/figures.json"))
    kinds = [type(figure) for section in findings.sections for figure in section.figures]
    assert kinds.count(Table) == 2
    assert kinds.count(Bars) == 1
    before = Path("out/upos.json").stat().st_mtime_ns
    assert main(command) == 0
    assert Path("out/upos.json").stat().st_mtime_ns == before
    assert main([*command, "--pieces", "first"]) == 2
    assert "pieces" in capsys.readouterr().err
    Path("my.conllu").write_text(treebank(50))
    assert main(command) == 2
    assert "has changed since" in capsys.readouterr().err


def test_several_models_have_a_folder_each_and_one_page(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(files)
    save_backbone("bert", Path("other"))
    command = ["probe", "--model", "box,other", "--words", "my.conllu", "--tasks", "upos", "--no-controls"]
    assert main([*command, "--out", "out", "--max-unknown", "1"]) == 0
    assert "One page of all models: bermo report out" in capsys.readouterr().out
    assert main([*command, "--model", "other", "--out", "alone", "--max-unknown", "1"]) == 0
    own, alone = (read_probed(Path(f"{folder}/upos.json"), WordProbed) for folder in ("out/other", "alone"))
    assert own is not None
    assert alone is not None
    assert replace(own, seconds=0.0) == replace(alone, seconds=0.0)
    assert main(["report", "out", "--out", "page.html"]) == 0
    assert "Side by side" in Path("page.html").read_text()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("box,", "one name is empty"),
        ("box,elsewhere/box", 'two models "box"'),
        ("box,nobody-here/", "nobody-here"),
    ],
)
def test_models_that_cannot_stand_side_by_side_are_refused(
    given: str,
    sentence: str,
    files: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(files)
    assert main(["probe", "--model", given, "--words", "my.conllu", "--out", "out"]) == 2
    assert sentence in capsys.readouterr().err
    assert not Path("out").exists()


def test_a_folder_with_a_comma_is_one_model(tmp_path: Path) -> None:
    (tmp_path / "a,b").mkdir()
    assert models_of(str(tmp_path / "a,b")) == {"a,b": str(tmp_path / "a,b")}
    assert models_of("x/a,b") == {"a": "x/a", "b": "b"}


def test_codes_and_mixes_take_small_batches_of_many_rows() -> None:
    large = Settings(batch_size=1024, rate=4e-3, is_falling=True, penalties=(1.0,), mix_steps=7)
    small = fitting.with_small_batches(large)
    assert (small.batch_size, small.rate) == (Settings.batch_size, Settings.rate)
    assert replace(small, batch_size=1024, rate=4e-3, is_falling=True) == large


def test_one_kind_of_task_has_no_order() -> None:
    assert order_verdict([]).startswith("No two kinds of tasks")
