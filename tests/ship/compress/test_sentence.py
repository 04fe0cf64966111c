"""A sentence encoder made small from texts alone, and how its agreement with the teacher is measured."""

from pathlib import Path

import numpy as np
import pytest
import torch

from bermo.encoders.sentence import is_sentence_folder
from bermo.errors import BermoError
from bermo.progress import Quiet
from bermo.ship.compress import run as compressing
from bermo.ship.compress.plan import Arm, Plan
from bermo.ship.compress.run import compress
from bermo.ship.compress.sentence import agreement, hold_out, sentence_arms
from bermo.ship.compress.spec import CompressSpec
from bermo.ship.runtimes.embed import SentenceEncoder
from bermo.ship.runtimes.forms import FormName
from tests.ship.folders import make_model, save
from tests.tiny import WORDS, save_backbone

INT8: FormName = "onnx-int8-signed"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bare encoder, and texts for it."""
    root = tmp_path_factory.mktemp("compress")
    torch.manual_seed(0)
    save_backbone("bert", root / "encoder")
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, 6)) for _ in range(120)]
    (root / "texts.txt").write_text("\n".join(texts) + "\n")
    return root


def spec_of(folders: Path, **options: object) -> CompressSpec:
    fields = {
        "run": folders / "encoder",
        "texts": folders / "texts.txt",
        "speedup": "1000",
        "epochs": 1.0,
        "forms": (INT8,),
        "max_loss": 100.0,
        "batches": (1,),
        "lengths": (8,),
        "rounds": 1,
    }
    return CompressSpec(**{**fields, **options})  # type: ignore[arg-type]


@pytest.mark.usefixtures("bench_here")
def test_texts_alone_make_a_small_sentence_encoder_and_its_proof(
    folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compressing, "sentence_arms", lambda plan: [Arm(layers=2, neurons=0.5)])
    made = compress(spec_of(folders), tmp_path / "small", Quiet())
    names = {f"dense {INT8}", f"2 layers, 0.5 of neurons {INT8}"}
    assert set(made.agreements) == names
    assert made.bench.metric == "spearman"
    assert made.bench.rows[0].score == pytest.approx(100, abs=1e-3)
    assert (tmp_path / "small" / "model" / "model.onnx").is_file()
    assert is_sentence_folder(tmp_path / "small" / "torch")
    assert "same ten neighbours" in (tmp_path / "small" / "README.md").read_text()
    vectors = SentenceEncoder(tmp_path / "small" / "model").encode(["a good film"])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-3)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"texts": None}, "without a head for a task"),
        ({"train": "a.csv"}, "Leave --train"),
        ({"run": "classifier"}, "is a model for classification"),
        ({"texts": "few.txt"}, "at least 100 are needed"),
    ],
)
def test_what_cannot_be_compressed_is_one_sentence(
    folders: Path, tmp_path: Path, options: dict[str, object], sentence: str
) -> None:
    save(make_model(), tmp_path / "classifier")
    (tmp_path / "few.txt").write_text("a cat\n")
    paths = {k: tmp_path / str(v) if k in ("run", "texts") and v else v for k, v in options.items()}
    with pytest.raises(BermoError, match=sentence):
        compress(spec_of(folders, **paths), tmp_path / "out", Quiet())


def test_agreement_is_whole_with_oneself_and_counts_neighbours() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(40, 8))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    same = agreement(vectors, vectors)
    assert (same.cosine, same.spearman, same.neighbours) == (pytest.approx(1), pytest.approx(1), 1)
    turned = vectors @ np.linalg.qr(rng.normal(size=(8, 8)))[0]
    other = agreement(vectors, turned)
    assert other.neighbours == 1
    assert other.spearman == pytest.approx(1)
    assert abs(other.cosine) < 0.9


def test_texts_are_held_out_once_and_arms_lie_around_the_budget() -> None:
    train, held_out = hold_out([str(i) for i in range(300)])
    assert len(held_out) == 30
    assert sorted(train + held_out) == sorted(str(i) for i in range(300))
    arms = sentence_arms(Plan(share=0.5, layers=6, saved=0.0))
    assert Arm(layers=3) in arms
    assert all(arm.layers < 6 or arm.neurons < 1 for arm in arms)
