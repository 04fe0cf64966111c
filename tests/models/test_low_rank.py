"""Matrices of low rank: the nearest factors, a model of them that saves, loads, is pruned, shrunk and cut."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from transformers import AutoModelForSequenceClassification

from bermo.encoders.sites import layers_of, prunable_sites
from bermo.encoders.structure import groups_of
from bermo.errors import BermoError
from bermo.models.low_rank import factorise_
from bermo.nn.factored import FactoredEmbedding, FactoredLinear, factors, rank_of
from bermo.ship.shrink.delete import shrink, size_of
from bermo.ship.shrink.vocabulary import VocabularyCut, cut_embeddings_
from tests import tiny
from tests.ship.folders import make_model


def test_factors_are_the_nearest_matrix_of_their_rank() -> None:
    weight = torch.randn(7, 5)
    left, sizes, right = np.linalg.svd(weight.numpy().astype(np.float64))
    for rank in range(1, 6):
        down, up = factors(weight, rank)
        slow = sum(sizes[k] * np.outer(left[:, k], right[k]) for k in range(rank))
        assert down.shape == (rank, 5)
        torch.testing.assert_close(up @ down, torch.tensor(slow, dtype=torch.float32))
        gap = (up @ down - weight).norm().item()
        assert gap == pytest.approx(np.sqrt((sizes[rank:] ** 2).sum()), abs=1e-5)


def test_a_share_is_of_the_numbers_and_factors_that_would_be_larger_are_not_made() -> None:
    assert rank_of(100, 50, 8) == 8
    assert rank_of(100, 50, 0.5) == 16
    assert 0.45 < 16 * 150 / 5000 <= 0.5
    assert rank_of(100, 50, 0.001) == 1
    assert rank_of(100, 50, 34) is None


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_every_family_answers_as_with_the_product_of_its_factors_and_reloads(
    family: str, tmp_path: Path
) -> None:
    model, whole = make_model(family), make_model(family)
    before = sum(p.numel() for p in model.parameters())
    factorise_(model, 0.5, 4)
    multiplied(whole, model)
    batch = tiny.make_batch(family)
    torch.testing.assert_close(model(**batch).logits, whole(**batch).logits, atol=1e-5, rtol=1e-4)
    assert sum(p.numel() for p in model.parameters()) < before
    model.save_pretrained(tmp_path)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    assert torch.equal(loaded(**batch).logits, model(**batch).logits)
    assert size_of(loaded).heads == size_of(whole).heads


@torch.no_grad()
def multiplied(whole: nn.Module, model: nn.Module) -> None:
    """Give a model the matrices that another one has in factors."""
    for new, old in zip(layers_of(model), layers_of(whole), strict=True):
        for path, part in new.named_modules():
            if isinstance(part, FactoredLinear):
                weight = part.up.weight @ part.down.weight
                target = old.get_submodule(path)
                target.weight.copy_(weight if isinstance(target, nn.Linear) else weight.T)
    whole.get_input_embeddings().weight.copy_(model.get_input_embeddings().weight)


def test_a_factorised_model_is_shrunk_without_a_change_of_its_answers(tmp_path: Path) -> None:
    model = make_model(layers=2)
    factorise_(model, 4, 4)
    with torch.no_grad():
        for group in groups_of(model):
            gone = torch.arange(group.count) % 2 == 1
            group.zero_units_(gone)
    small, batch = shrink(model), tiny.make_batch("bert")
    torch.testing.assert_close(small(**batch).logits, model(**batch).logits)
    assert size_of(small).heads == size_of(model).heads // 2
    assert size_of(small).neurons == size_of(model).neurons // 2
    small.save_pretrained(tmp_path)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    assert torch.equal(loaded(**batch).logits, small(**batch).logits)
    assert len(prunable_sites(loaded)) == 2 * 2 * 6


def test_words_are_cut_from_a_factorised_table() -> None:
    model = make_model()
    factorise_(model, None, 4)
    table = model.get_input_embeddings()
    assert isinstance(table, FactoredEmbedding)
    kept = table.weight.detach()[[0, 3, 5]]
    cut_embeddings_(model, VocabularyCut(ids=(0, 3, 5), old_size=99, used=3))
    torch.testing.assert_close(model.get_input_embeddings().weight.detach(), kept)
    assert model.config.vocab_size == 3


@pytest.mark.parametrize(
    ("amounts", "sentence"),
    [((500.0, None), "leaves no matrix"), ((None, 500), "embedding-rank must be at most")],
)
def test_ranks_that_save_nothing_are_refused(
    amounts: tuple[float | None, float | None], sentence: str
) -> None:
    with pytest.raises(BermoError, match=sentence):
        factorise_(make_model(), *amounts)


def test_a_model_is_factorised_once() -> None:
    model = make_model()
    factorise_(model, 4, None)
    with pytest.raises(BermoError, match="factors of low rank already"):
        factorise_(model, 2, None)
