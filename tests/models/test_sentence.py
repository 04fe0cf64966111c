"""Sentence encoders: their vectors, the folders that stock code reads, and their losses."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModel

from bermo.encoders.sentence import SentenceSettings, is_sentence_folder
from bermo.models.sentence import BermoForSentenceEmbedding, sentence_loss
from tests.tiny import ENCODERS, make_batch, make_config, save_backbone


def make(settings: SentenceSettings, family: str = "bert", **options: object) -> BermoForSentenceEmbedding:
    torch.manual_seed(0)
    if not options:
        return BermoForSentenceEmbedding.from_settings(make_config(family), settings)
    sentence = {"normalise": True, "dimension": None}
    return BermoForSentenceEmbedding.from_backbone(make_config(family), sentence=sentence, **options)


@pytest.mark.parametrize("family", ["bert", "distilbert", "mpnet", "modernbert"])
def test_a_vector_is_the_mean_of_the_last_layer_of_length_one(family: str, tmp_path: Path) -> None:
    folder = save_backbone(family, tmp_path / "encoder")
    model = BermoForSentenceEmbedding.from_pretrained(folder)
    batch = make_batch(family)
    with torch.no_grad():
        hidden = AutoModel.from_pretrained(folder)(**batch).last_hidden_state
        vectors = model(**batch).logits
    for text in range(len(vectors)):
        tokens = [hidden[text, t] for t in range(hidden.shape[1]) if batch["attention_mask"][text, t]]
        mean = sum(tokens) / len(tokens)
        torch.testing.assert_close(vectors[text], mean / mean.norm(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("family", ENCODERS)
def test_a_plain_encoder_is_saved_for_stock_code_and_loads_to_the_bit(family: str, tmp_path: Path) -> None:
    settings = SentenceSettings(pooling="mean", dimension=8, prompts={"query": "q: "}, max_length=32)
    model = make(settings, family)
    model.save_pretrained(tmp_path)
    assert is_sentence_folder(tmp_path)
    again = BermoForSentenceEmbedding.from_pretrained(tmp_path)
    assert again.settings == settings
    batch = make_batch(family)
    with torch.no_grad():
        assert torch.equal(again(**batch).logits, model(**batch).logits)
        assert model(**batch).logits.shape == (3, 8)
        stock = AutoModel.from_pretrained(tmp_path)
    assert stock.config.model_type == model.config.backbone.model_type


def test_a_model_with_a_mix_is_saved_as_bermo_saves_and_loads_to_the_bit(tmp_path: Path) -> None:
    model = make(SentenceSettings(), mix="across", pooling="first")
    model.save_pretrained(tmp_path)
    assert not is_sentence_folder(tmp_path)
    again = BermoForSentenceEmbedding.from_pretrained(tmp_path)
    batch = make_batch("bert")
    with torch.no_grad():
        assert torch.equal(again(**batch).logits, model(**batch).logits)


def test_several_texts_a_row_have_the_vectors_of_each_alone() -> None:
    model, batch = make(SentenceSettings()), make_batch("bert", texts=4)
    with torch.no_grad():
        alone = model(**batch).logits
        nested = model(**{name: value.view(2, 2, -1) for name, value in batch.items()}).logits
    torch.testing.assert_close(nested, alone.view(2, 2, -1))


def test_pairs_are_regressed_on_their_cosine_and_contrasted_in_the_batch_without_numbers() -> None:
    torch.manual_seed(0)
    vectors, labels = torch.randn(3, 2, 5), torch.tensor([0.0, 0.5, 1.0])
    cosine = [[torch.cosine_similarity(a[0], b[1], dim=0) for b in vectors] for a in vectors]
    squares = [(cosine[i][i] - labels[i]) ** 2 for i in range(3)]
    torch.testing.assert_close(sentence_loss(vectors, labels), sum(squares) / 3)
    scores = 20 * torch.tensor(cosine)
    expected = sum(-scores[i].log_softmax(0)[i] for i in range(3)) / 3
    torch.testing.assert_close(sentence_loss(vectors, None), expected)
