"""A model that reads the two texts of a pair apart in other runtimes."""

import json
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import bermo
from bermo.cli import main
from bermo.files import write_json
from bermo.runs.trained import open_trained
from bermo.ship.runtimes.candidate import open_candidate
from bermo.ship.runtimes.texts import random_batch
from tests.ship.folders import make_model, save

PAIRS = [("a dog", "a dog"), ("the good film", "a bad cat saw the dog .")]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs") / "model"
    model = make_model(pairs="apart", pooling="mean")
    torch.nn.init.normal_(model.head.out.weight)
    task = json.loads((save(model, folder) / "task.json").read_text())
    write_json(folder / "task.json", task | {"text": ["a", "b"]})
    return folder


def probabilities(folder: Path) -> list[float]:
    return [answer.probabilities["good"] for answer in bermo.predict(folder, PAIRS, device="cpu")]  # type: ignore[union-attr]


@pytest.mark.parametrize("form", ["onnx", "onnx-int8"])
def test_it_is_exported_with_both_texts_as_inputs(
    run: Path, tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / form
    assert main(["export", str(run), "--to", form, "--out", str(out)]) == 0
    assert probabilities(out) == pytest.approx(probabilities(run), abs=1e-5 if form == "onnx" else 0.05)
    assert np.ptp(probabilities(run)) > 0.1
    opened = open_trained(out)
    batch = random_batch(opened, 3, 9, 30)
    assert batch["input_ids"].shape == (3, 2, 9)
    assert open_candidate(opened)(batch)[0].shape == (3, 2)
    capsys.readouterr()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["example.py", *PAIRS[0], *PAIRS[1]])
        runpy.run_path(str(out / "example.py"))
    expected = [answer.label for answer in bermo.predict(out, PAIRS)]  # type: ignore[union-attr]
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == expected


def test_forms_that_have_no_pairs_apart_are_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hub = ["export", str(run), "--to", "onnx", "--layout", "hub", "--out", str(tmp_path / "hub")]
    assert main(hub) == 2
    assert "no tool of the hub does" in capsys.readouterr().err.replace("\n", " ")
    plain = make_model(pairs="apart", pooling="mean", mix="none")
    task = (run / "task.json").read_text()
    (save(plain, tmp_path / "plain") / "task.json").write_text(task)
    assert main(["shrink", str(tmp_path / "plain"), "--stock", "--out", str(tmp_path / "stock")]) == 2
    assert "no class of transformers does" in capsys.readouterr().err.replace("\n", " ")
    assert not list(tmp_path.glob("[hs]*"))
