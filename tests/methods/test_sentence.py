"""Sentence encoders and rerankers, trained on tiny files from the command line to the saved folder."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel

from bermo.cli import main
from bermo.encoders.backbone import load_tokenizer
from bermo.encoders.sentence import SentenceSettings, is_sentence_folder
from bermo.errors import BermoError
from bermo.methods.student import keep_neurons_, student_from_teacher
from bermo.models.sentence import BermoForSentenceEmbedding
from bermo.nn.losses import NEIGHBOUR_TEMPERATURE, neighbour_distance, soft_vectors
from bermo.runs.results import read_seed
from bermo.ship.runtimes.embed import SentenceEncoder
from tests.tiny import ENCODERS, WORDS, make_batch, make_config, save_backbone

SMALL = ["--epochs", "1", "--batch-size", "8", "--max-length", "16", "--device", "cpu"]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny encoder, texts, pairs with a number, pairs that belong together, and queries with answers."""
    root = tmp_path_factory.mktemp("sentence")
    torch.manual_seed(0)
    save_backbone("bert", root / "encoder")
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, 5)) for _ in range(48)]
    (root / "texts.txt").write_text("\n".join(texts) + "\n")
    rows = [f"{a},{b},{i % 3}" for i, (a, b) in enumerate(zip(texts[::2], texts[1::2], strict=True))]
    (root / "pairs.csv").write_text("\n".join(["text1,text2,score", *rows]) + "\n")
    found = [f"{a},{b}" for a, b in zip(texts[::2], texts[1::2], strict=True)]
    (root / "found.csv").write_text("\n".join(["anchor,positive", *found]) + "\n")
    ranked = [f"{texts[i // 4]},{text},{int(i % 4 == 0)}" for i, text in enumerate(texts)]
    (root / "ranked.csv").write_text("\n".join(["query,passage,label", *ranked]) + "\n")
    return root


def train(files: Path, out: Path, kind: str, data: str, *more: str, valid: str | None = None) -> None:
    words = ["train", "--model", str(files / "encoder"), "--kind", kind, "--train", str(files / data)]
    words += ["--valid", str(files / (valid or data)), "--out", str(out), *SMALL, *more]
    assert main(words) == 0


@pytest.mark.parametrize(("data", "metric"), [("pairs.csv", "spearman"), ("found.csv", "ndcg_10")])
def test_an_embedding_is_trained_on_pairs_and_saved_for_sentence_transformers(
    files: Path, tmp_path: Path, data: str, metric: str
) -> None:
    train(files, tmp_path / "run", "embedding", data)
    seed = read_seed(tmp_path / "run" / "seed-1")
    assert seed is not None
    assert seed.metric == metric
    assert is_sentence_folder(tmp_path / "run" / "model")
    assert SentenceEncoder(tmp_path / "run").encode(["a good film"]).shape == (1, 16)
    assert main(["evaluate", str(tmp_path / "run"), str(files / data)]) == 0
    pooling = tmp_path / "run" / "model" / "1_Pooling" / "config.json"
    pooling.write_text(pooling.read_text().replace("mean", "cls"))
    with pytest.raises(BermoError, match=r"config\.json is damaged, or was changed"):
        SentenceEncoder(tmp_path / "run")


def test_a_mix_is_learned_where_it_is_asked_for(files: Path, tmp_path: Path) -> None:
    train(files, tmp_path / "run", "embedding", "pairs.csv", "--mix", "within")
    assert not is_sentence_folder(tmp_path / "run" / "model")
    assert SentenceEncoder(tmp_path / "run").encode(["a good film"]).shape == (1, 16)


def test_a_pruned_embedding_is_shrunk_without_a_change_of_its_vectors(files: Path, tmp_path: Path) -> None:
    train(
        files, tmp_path / "run", "embedding", "pairs.csv", "--prune", "heads-and-neurons", "--density", "0.5"
    )
    assert main(["shrink", str(tmp_path / "run"), "--out", str(tmp_path / "small")]) == 0
    texts = ["a good film", "the bad cats"]
    before, after = (SentenceEncoder(tmp_path / name).encode(texts) for name in ("run", "small"))
    np.testing.assert_allclose(after, before, atol=1e-5)
    assert main(["report", str(tmp_path / "run"), "--out", str(tmp_path / "page.html")]) == 0


def test_the_words_of_a_sentence_transformers_folder_are_cut(tmp_path: Path) -> None:
    BermoForSentenceEmbedding.from_settings("box", SentenceSettings()).save_pretrained(tmp_path / "whole")
    load_tokenizer("box").save_pretrained(tmp_path / "whole")
    (tmp_path / "texts.txt").write_text("The cat sleeps.\n")
    words = ["--vocabulary", str(tmp_path / "texts.txt"), "--out", str(tmp_path / "small")]
    assert main(["shrink", str(tmp_path / "whole"), *words]) == 0
    assert is_sentence_folder(tmp_path / "small")
    texts = ["The cat sleeps."]
    before, after = (SentenceEncoder(tmp_path / name).encode(texts) for name in ("whole", "small"))
    np.testing.assert_allclose(after, before, atol=1e-5)


def test_a_reranker_is_scored_within_queries_and_answers_with_a_score(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(files, tmp_path / "run", "reranker", "ranked.csv", "--mix", "none")
    seed = read_seed(tmp_path / "run" / "seed-1")
    assert seed is not None
    assert seed.metric == "ndcg_10"
    capsys.readouterr()
    assert main(["predict", str(tmp_path / "run"), str(files / "ranked.csv")]) == 0
    assert capsys.readouterr().out.startswith('{"score": 0.')


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--train", "texts.txt", "--valid", "pairs.csv"], "nothing says what their vectors should be"),
        (["--train", "found.csv", "--valid", "found.csv", "--accumulation", "2"], "within whole batches"),
        (["--train", "pairs.csv", "--together", "2", "--seeds", "2"], "a sentence encoder"),
        (["--train", "pairs.csv", "--task", "own/regression"], "Leave one out"),
    ],
)
def test_what_cannot_be_trained_is_one_sentence(
    files: Path, tmp_path: Path, words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    filled = [str(files / word) if word.endswith((".txt", ".csv")) else word for word in words]
    out = ["--model", str(files / "encoder"), "--out", str(tmp_path / "run"), *SMALL]
    assert main(["train", "--kind", "embedding", *filled, *out]) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("family", [name for name in ENCODERS if name not in ("xlnet", "mobilebert")])
def test_a_student_of_fewer_neurons_is_one_that_stock_code_builds(family: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = make_config(family)
    teacher = BermoForSentenceEmbedding.from_backbone(
        config, mix="none", pooling="mean", sentence={"normalise": True, "dimension": None}
    )
    student = student_from_teacher(teacher, [1, 2], "none", neurons=0.5)
    student.save_pretrained(tmp_path)
    again = BermoForSentenceEmbedding.from_pretrained(tmp_path)
    stock = AutoModel.from_pretrained(tmp_path)
    batch = make_batch(family)
    with torch.no_grad():
        assert torch.equal(again(**batch).logits, student(**batch).logits)
    before, after = (sum(p.numel() for p in m.parameters()) for m in (teacher, student))
    assert after < before
    assert sum(p.numel() for n, p in stock.named_parameters() if "pooler" not in n) == after


def test_the_neurons_with_the_smallest_weights_go() -> None:
    torch.manual_seed(0)
    model = BermoForSentenceEmbedding.from_backbone(
        make_config("bert"), mix="none", sentence={"normalise": True, "dimension": None}
    )
    for layer in model.bermo.backbone.encoder.layer:
        layer.output.dense.weight.data[:, ::2] = 0
    batch = make_batch("bert")
    with torch.no_grad():
        expected = model(**batch).logits
        keep_neurons_(model, 0.5)
        torch.testing.assert_close(model(**batch).logits, expected)
    assert model.config.backbone.intermediate_size == 12


def test_the_distance_to_a_teachers_vectors_of_length_one_is_one_minus_the_cosine() -> None:
    torch.manual_seed(0)
    ours, theirs = (torch.nn.functional.normalize(torch.randn(3, 5), dim=-1) for _ in range(2))
    torch.testing.assert_close(soft_vectors(ours, theirs), 1 - (ours * theirs).sum(-1))


def test_neighbours_are_compared_as_in_a_slow_loop() -> None:
    torch.manual_seed(0)
    student, teacher = torch.randn(5, 8), torch.randn(5, 8)
    for row, found in enumerate(neighbour_distance(student, teacher)):
        others = [other for other in range(5) if other != row]
        log_shares = [
            torch.stack([torch.cosine_similarity(vectors[row], vectors[k], dim=0) for k in others])
            .div(NEIGHBOUR_TEMPERATURE)
            .log_softmax(0)
            for vectors in (student, teacher)
        ]
        expected = (log_shares[1].exp() * (log_shares[1] - log_shares[0])).sum()
        torch.testing.assert_close(found, expected)


def test_neighbours_of_one_text_alone_cost_nothing_and_have_a_gradient() -> None:
    student = torch.randn(1, 8, requires_grad=True)
    neighbour_distance(student, torch.randn(1, 8)).sum().backward()
    assert student.grad is not None
    assert not student.grad.any()
