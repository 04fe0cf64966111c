"""What small_data_looks.py says of a mean of the weights is what a training that keeps the mean has."""

import json
from pathlib import Path

import pytest

from benchmarks.small_data import run_bermo
from benchmarks.small_data_looks import LAST, MEAN, PART, REFIT, kept_score, report, run, write_scores

pytestmark = pytest.mark.usefixtures("shallow_box")
SHORT = ["train.epochs=3", "train.lr=2e-3"]


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty texts with a word that gives the class away, and others to choose by and to report."""
    folder = tmp_path_factory.mktemp("cell")
    for name, start in (("train", 0), ("valid", 40), ("test", 80)):
        rows = [
            {"text": f"the {'good' if i % 2 else 'bad'} film number {i}", "label": str(i % 2)}
            for i in range(start, start + 40)
        ]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_one_training_tells_what_the_weights_and_their_mean_would_have_kept(
    cell: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = run("box", cell, SHORT, tmp_path / "looks")
    assert len(found["looks"]) == 4, "the start and three epochs"
    for weights, switch in ((LAST, "off"), (MEAN, "on")):
        real = run_bermo("box", cell, [*SHORT, f"train.average={switch}"], tmp_path / switch)
        assert kept_score(found["looks"], weights) == pytest.approx(real["values"]["accuracy"], abs=1e-3)
    assert all(set(look) == {LAST, MEAN, PART, REFIT} for look in found["looks"][1:])
    write_scores(tmp_path / "scores", {("box", "mine-40", "1", "bermo"): found})
    written = {path.parent.name for path in (tmp_path / "scores").rglob("score.json")}
    assert written == {"off", "on"}
    report({("box", "mine-40", "1", "bermo"): found})
    said = capsys.readouterr().out
    assert said.splitlines()[0] == "bermo: 1 trainings"
    assert "accuracy +0.00" in said


def test_the_rules_choose_as_they_say() -> None:
    looks = [
        {LAST: {"valid": {"accuracy": a, "matthews": m, "loss": x}, "test": {"accuracy": t}}}
        for a, m, x, t in (
            (70, 0, 0.9, 1),
            (68, 5, 0.8, 2),
            (66, 9, 0.7, 3),
            (68, 8, 0.6, 4),
            (60, 1, 1.0, 5),
        )
    ]
    chosen = {rule: kept_score(looks, LAST, rule) for rule in ("accuracy", "Matthews", "loss", "the last")}
    assert chosen == {"accuracy": 2, "Matthews": 3, "loss": 4, "the last": 5}
    assert kept_score(looks, LAST, "mean of three") == 3
    assert kept_score(looks, LAST, "by the test rows") == 5
