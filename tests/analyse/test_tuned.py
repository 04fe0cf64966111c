"""What fine-tuning changed: layers put back, heads moved."""

import copy
from pathlib import Path

import pytest
import torch

from bermo.analyse.labelled import load_labelled
from bermo.analyse.run import analyse
from bermo.analyse.subject import Request
from bermo.analyse.tuned import divergence, measure_moved, measure_restored, restored_section
from bermo.errors import BermoError
from bermo.models.tasks import BermoForSequenceClassification
from bermo.progress import Quiet
from bermo.vectors import load_encoder
from tests.analyse.conftest import TEXTS
from tests.ship.folders import save
from tests.tiny import save_backbone


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pretrained encoder, and a model made from it whose second layer has moved."""
    root = tmp_path_factory.mktemp("tuned")
    torch.manual_seed(0)
    save_backbone("bert", root / "base")
    model = BermoForSequenceClassification.from_backbone(root / "base", mix="none", num_labels=2)
    with torch.no_grad():
        model.head.out.weight.mul_(20)
        query = model.bermo.backbone.encoder.layer[1].attention.self.query.weight
        query[:8] += torch.randn(8, 16)
    save(model, root / "model")
    rows = [f"{text},{'good' if 'cat' in text else 'bad'}" for text in TEXTS]
    (root / "dev.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    return root


def test_only_the_layer_that_moved_changes_the_score_when_it_is_put_back(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BERMO_CACHE", str(tmp_path))
    labelled = load_labelled(root / "model", str(root / "dev.csv"), 100, cpu=True)
    before = copy.deepcopy(labelled.model.state_dict())
    base = load_encoder(root / "base", device="cpu")
    facts = measure_restored(labelled, base)
    said = restored_section({"m": facts}).text
    assert said.count(", corrected)") == 2
    assert facts.names == ("embeddings", "1", "2", "3", "all")
    slow = copy.deepcopy(labelled.model)
    slow.bermo.backbone.encoder.layer[1].load_state_dict(base.backbone.encoder.layer[1].state_dict())
    assert facts.scores[2] == facts.scores[4] == labelled.score(slow)
    assert facts.scores[0] == facts.scores[1] == facts.scores[3] == facts.full
    for name, value in labelled.model.state_dict().items():
        torch.testing.assert_close(value, before[name])


def test_a_head_whose_weights_moved_is_found_by_weights_and_by_attention(root: Path) -> None:
    model, base = (load_encoder(root / name, device="cpu") for name in ("model", "base"))
    moved = measure_moved(model, base, TEXTS, 32)
    assert [[value is not None and value > 0 for value in row] for row in moved.weights] == [
        [False, False],
        [True, False],
        [False, False],
    ]
    assert moved.attention[0] == pytest.approx((0, 0), abs=1e-6)
    assert float(moved.attention[1][0] or 0) > 1e-3
    assert moved.attention[1][1] == pytest.approx(0, abs=1e-6)


def test_divergence_is_zero_for_the_same_and_one_for_disjoint_maps() -> None:
    one, other = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    assert float(divergence(one, one)) == 0
    assert float(divergence(one, other)) == 1


def test_the_encoder_before_is_named_or_there_is_nothing_to_measure(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BERMO_CACHE", str(tmp_path / "cache"))
    request = Request(
        models=(str(root / "model"),), texts=TEXTS, measures=("tuned",), device="cpu", base=str(root / "base")
    )
    (section,) = analyse(request, tmp_path / "out", Quiet()).sections
    assert section.title == "Fine-tuning: heads moved"
    alone = Request(models=(str(root / "model"),), texts=TEXTS, measures=("tuned",), device="cpu")
    with pytest.raises(BermoError, match="with --base"):
        analyse(alone, tmp_path / "alone", Quiet())
