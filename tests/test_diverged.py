"""Trainings that break down: no traceback, no model without numbers, and a mark that every verb tells."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import bermo
from bermo.cli import main
from bermo.encoders.structure import groups_of
from bermo.runs.model_files import divergence
from tests.ship.folders import make_model, save
from tests.tiny import save_backbone

SMALL = "--max-length 16 --epochs 1 --batch-size 8 --device cpu --head random"
REASON = 'every prediction is "bad"'
Run = Callable[[str], tuple[int, str]]


@pytest.fixture
def run(files: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in a folder with a user's files; return its code and all that it printed."""

    def call(command: str) -> tuple[int, str]:
        code = main(command.replace("DATA", f"--train my.csv --valid dev.csv {SMALL}").split())
        printed = capsys.readouterr()
        return code, printed.out + printed.err

    return call


def test_a_run_without_numbers_ends_is_read_again_and_is_reported(run: Run, files: Path) -> None:
    command = "train DATA --lr 1e9 --mix-lr 1e9 --out bad"
    for _ in range(2):
        code, printed = run(command)
        assert code == 0
        assert "diverged" in printed
        assert "nan" not in printed
        assert "The model is in" not in printed
    assert not (files / "bad" / "model").exists()
    assert run("report bad --out page.html")[0] == 0
    code, printed = run("predict bad texts.txt")
    assert code == 2
    assert "kept no model" in printed
    code, printed = run("train DATA --model bad --out after")
    assert (code, "kept no model" in printed) == (2, True)


@pytest.fixture
def marked(files: Path) -> Path:
    """A run with a sound model whose result says that it diverged."""
    run = files / "marked"
    model = make_model(layers=2)
    with torch.no_grad():
        for group in groups_of(model):
            group.zero_units_(torch.arange(group.count) == 0)
    save(model, run / "model")
    (run / "spec.json").write_text(json.dumps({"spec": {}, "data": ""}))
    (run / "result.json").write_text(json.dumps({"seeds": [{"diverged": REASON}]}))
    save(model, files / "sound")
    save_backbone("bert", files / "marked-encoder" / "model")
    (files / "marked-encoder" / "result.json").write_text(json.dumps({"diverged": REASON}))
    return run


@pytest.mark.usefixtures("bench_here")
@pytest.mark.parametrize(
    "command",
    [
        "predict marked texts.txt",
        "predict marked/model texts.txt",
        "evaluate marked dev.csv",
        "evaluate sound dev.csv --against marked",
        "bench marked --rounds 1 --lengths 16 --batch 1 --out measured",
        "export marked --to torch-bf16",
        "shrink marked --out small",
        "analyse marked --text texts.txt --measures geometry --max-unknown 1",
        "train DATA --model marked-encoder/model --out student --max-unknown 1",
        "train DATA --model marked-encoder/model --teacher marked --out student --max-unknown 1",
    ],
)
def test_a_model_that_diverged_says_so_wherever_it_is_used(command: str, marked: Path, run: Run) -> None:
    code, printed = run(command)
    assert code == 0, printed
    assert printed.count("Careful: ") == (2 if "--teacher" in command else 1)
    assert "Careful: the training of marked" in " ".join(printed.split())
    assert REASON in " ".join(printed.split())


@pytest.mark.parametrize(
    "command",
    [
        "push marked me/film-reviews --dry-run",
        "probe --model marked --tasks tense --layers 99",
        "pretrain --model marked-encoder/model --text texts.txt --out further",
    ],
)
def test_what_is_asked_may_be_wrong_beside(command: str, marked: Path, run: Run) -> None:
    code, printed = run(command)
    assert (code, printed.count("Careful: the training of marked")) == (2, 1), printed


def test_a_server_says_so_before_it_answers(marked: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bermo.ship.serve.run._run", lambda *_: None)
    code, printed = run("serve marked --port 0")
    assert (code, printed.count("Careful: the training of marked")) == (0, 1), printed


def test_in_python_a_model_that_diverged_warns_and_its_copy_too(marked: Path, files: Path) -> None:
    with pytest.warns(UserWarning, match="Careful: the training of marked diverged") as warned:
        classifier = bermo.Classifier.load("marked")
    assert warned[0].filename == __file__
    classifier.save("copy")
    with pytest.warns(UserWarning, match="Careful: the training of copy diverged"):
        bermo.predict("copy", ["a film"], device="cpu")


def test_what_is_made_from_a_model_that_diverged_carries_its_mark(
    marked: Path, run: Run, files: Path
) -> None:
    assert run("export marked --to torch-bf16 --out exported")[0] == 0
    assert run("shrink marked --out small")[0] == 0
    for name in ("marked", "marked/model", "exported", "small"):
        assert divergence(files / name) == REASON


def test_a_run_with_one_seed_that_did_not_diverge_has_a_sound_model(marked: Path) -> None:
    seeds = [{"diverged": "no number"}, {"diverged": None}]
    (marked / "result.json").write_text(json.dumps({"seeds": seeds}))
    assert divergence(marked) is None
    for content in ("", "[]", '{"seeds": 3}', '{"seeds": []}', "[" * 100_000):
        (marked / "result.json").write_text(content)
        assert divergence(marked) is None
    assert divergence("no/such/folder") is None
    assert divergence("bert-base-uncased") is None
