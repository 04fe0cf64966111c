"""Which of two int8 models of OpenVINO is kept: the one that moves the answers less, if it is not refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bermo.ship.export import openvino_int8
from bermo.ship.export.compare import moved
from bermo.ship.export.run import ExportSpec, export
from bermo.ship.runtimes.candidate import Candidate, OpenVinoCandidate
from tests.ship.folders import make_model, save, write_rows


class Shifted:
    """A model of OpenVINO: nncf's with logits three times as large, our own with logits off at random."""

    noise = 0.0

    def __init__(self, path: Path, *arguments: Any) -> None:
        self.is_own = path.parent.name == "own"
        self.candidate: Candidate = OpenVinoCandidate(path, *arguments)
        self.random = np.random.default_rng(1)

    def __call__(self, batch: dict[str, np.ndarray]) -> list[np.ndarray]:
        logits = self.candidate(batch)
        if not self.is_own:
            return [3 * row for row in logits]
        size = self.noise * np.abs(np.concatenate([row.ravel() for row in logits])).mean()
        return [row + size * np.sign(self.random.normal(size=row.shape)) for row in logits]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("better")
    save(make_model(), root / "model")
    write_rows(root / "dev.tsv")
    return root


@pytest.mark.parametrize(
    ("rows", "noise", "kept"),
    [("dev.tsv", 50.0, "nncf"), ("dev.tsv", 0.2, "onnxruntime"), (None, 0.2, "onnxruntime")],
    ids=["nncf moves less", "own moves less", "no rows: logits judge"],
)
def test_the_better_one_is_kept(
    rows: str | None, noise: float, kept: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openvino_int8, "has_nncf", lambda: True)
    monkeypatch.setattr(openvino_int8, "OpenVinoCandidate", Shifted)
    monkeypatch.setattr(Shifted, "noise", noise)
    data = folder / rows if rows else None
    spec = ExportSpec(to="openvino-int8", data=data, calibrate=folder / "dev.tsv", max_loss=100.0)
    details = export(folder / "model", tmp_path / "out", spec).details
    assert details["quantizer"] == kept
    assert details["nncf_relative_error"] > 0.25
    assert (details["nncf_moved"] < details["own_moved"]) == (noise == 50)
    assert {"model.xml", "model.bin"} <= {item.name for item in (tmp_path / "out").iterdir()}
    assert not list((tmp_path / "out").rglob("own"))


def test_larger_logits_move_sure_answers_little_and_noise_moves_them_far() -> None:
    before = [np.array([4.0, -4.0]), np.array([-5.0, 5.0]), np.array([0.5, -0.5])]
    larger = [1.3 * row for row in before]
    noisy = [row + np.array([-1.0, 1.0]) for row in before]
    assert moved(larger, before, "classification") < 0.03 < moved(noisy, before, "classification")
    # By hand: softmax([0.5, −0.5]) has 0.7311, softmax([−0.5, 0.5]) 0.2689.
    assert moved(noisy[2:], before[2:], "classification") == pytest.approx(0.7311 - 0.2689, abs=1e-4)
    assert moved([np.array([0.0])], [np.array([-np.inf])], "multi-label") == 0.5
