"""bermo encode and bermo similar on every form of model, and what they refuse."""

from pathlib import Path

import numpy as np
import pytest
import torch

from bermo.cli import main
from bermo.encoders import where
from bermo.encoders.sentence import SentenceSettings
from bermo.errors import BermoError
from bermo.models.sentence import BermoForSentenceEmbedding
from bermo.ship.export.run import export
from bermo.ship.export.spec import ExportSpec
from bermo.ship.runtimes.embed import SentenceEncoder, read_vectors
from tests.ship.folders import make_model, save
from tests.tiny import make_config, make_tokenizer, save_backbone

TEXTS = ["a good film", "the bad cats", "", "the dog sees a cat ."]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of sentence-transformers with a prompt for questions."""
    torch.manual_seed(0)
    out = tmp_path_factory.mktemp("sentence")
    settings = SentenceSettings(prompts={"query": "the "})
    BermoForSentenceEmbedding.from_settings(make_config("bert"), settings).save_pretrained(out)
    make_tokenizer().save_pretrained(out)
    return out


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(TEXTS) + "\n")
    return path


def test_a_file_of_texts_becomes_one_vector_a_line(folder: Path, corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "vectors.npy"
    assert main(["encode", str(folder), str(corpus), "--out", str(out), "--batch-size", "2"]) == 0
    vectors = np.load(out)
    assert vectors.shape == (4, 16)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(SentenceEncoder(folder).encode(TEXTS), vectors, atol=1e-6)
    assert (
        main(["encode", str(folder), str(corpus), "--out", str(tmp_path / "8.npy"), "--dimension", "8"]) == 0
    )
    cut = vectors[:, :8] / np.linalg.norm(vectors[:, :8], axis=1, keepdims=True)
    np.testing.assert_allclose(np.load(tmp_path / "8.npy"), cut, atol=1e-6)


def test_an_export_a_bare_encoder_and_a_trained_model_give_vectors(folder: Path, tmp_path: Path) -> None:
    export(folder, tmp_path / "onnx", ExportSpec(to="onnx"))
    expected = SentenceEncoder(folder).encode(TEXTS)
    exported = SentenceEncoder(tmp_path / "onnx")
    assert exported.settings.prompts == {"query": "the "}
    np.testing.assert_allclose(exported.encode(TEXTS), expected, atol=1e-5)
    bare = save_backbone("mpnet", tmp_path / "bare")
    trained = save(make_model(), tmp_path / "trained")
    for other in (bare, trained):
        vectors = SentenceEncoder(other).encode(TEXTS)
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_the_encoder_of_the_package_is_called_box(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, "BOX", save_backbone("bert", tmp_path / "package"))
    out = tmp_path / "box.npy"
    assert main(["encode", "box", str(corpus), "--out", str(out)]) == 0
    np.testing.assert_allclose(np.load(out), SentenceEncoder(tmp_path / "package").encode(TEXTS), atol=1e-6)


def test_similar_prints_the_nearest_texts_and_takes_vectors_that_are_there(
    folder: Path, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [str(folder), str(corpus), "--query", "the bad cats", "--top", "2"]
    assert main(["similar", *asked]) == 0
    printed = capsys.readouterr().out
    encoder = SentenceEncoder(folder)
    scores = encoder.encode(TEXTS) @ encoder.encode(["the bad cats"], "the ")[0]
    best = int(np.argmax(scores))
    assert printed.splitlines()[0] == f"{scores[best]:.4f}  {best + 1}: {TEXTS[best]}"
    assert len(printed.splitlines()) == 2
    np.save(tmp_path / "known.npy", encoder.encode(TEXTS))
    assert main(["similar", *asked, "--vectors", str(tmp_path / "known.npy")]) == 0
    assert capsys.readouterr().out == printed


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["encode", "{folder}", "{corpus}", "--out", "v.txt"], "must end in .npy"),
        (["encode", "{folder}", "{corpus}", "--out", "v.npy", "--dimension", "99"], "must be at most 16"),
        (["encode", "{folder}", "{corpus}", "--out", "v.npy", "--prompt", "x"], 'has no prompt "x"'),
        (["similar", "{folder}", "{corpus}"], "nothing to search for"),
        (["similar", "{folder}", "{corpus}", "--query", "a", "--vectors", "{corpus}"], "holds no vectors"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    folder: Path,
    corpus: Path,
    words: list[str],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    filled = [word.format(folder=folder, corpus=corpus) for word in words]
    assert main(filled) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "v.npy").exists()


def test_a_sentence_encoder_in_half_precision_stays_a_folder_of_its_kind(
    folder: Path, tmp_path: Path
) -> None:
    exported = export(folder, tmp_path / "half", ExportSpec(to="torch-bf16"))
    assert exported.compared.relative_error < 0.05
    vectors = SentenceEncoder(tmp_path / "half").encode(TEXTS)
    np.testing.assert_allclose(vectors, SentenceEncoder(folder).encode(TEXTS), atol=0.02)


def test_an_export_of_answers_gives_no_vectors(tmp_path: Path) -> None:
    trained = save(make_model(), tmp_path / "trained")
    export(trained, tmp_path / "onnx", ExportSpec(to="onnx"))
    with pytest.raises(Exception, match="gives no vectors"):
        SentenceEncoder(tmp_path / "onnx")


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (",
        "{'descr': '<U9', 'fortran_order': False, 'shape': (3, 4)}",
    ]
    + [f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({n}, 4)}}" for n in (2**63, 10**12, -3)],
)
def test_vectors_with_a_damaged_header_are_refused(header: str, tmp_path: Path) -> None:
    text = header.ljust(117).encode() + b"\n"
    path = tmp_path / "a.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(200))
    with pytest.raises(BermoError, match="holds no vectors"):
        read_vectors(path, 3, tmp_path)
