"""How far states move when the smallest weights are zeroed."""

from pathlib import Path

import pytest
import torch

from benchmarks.zeroed import RANDOM, SHARES, compare, measure, parts_of, zero_
from bermo.encoders.backbone import load_encoder
from bermo.encoders.sites import prunable_sites

TEXTS = ["the dog sees a cat", "a cat", "the old man walks home", "no"]


def test_attention_and_feed_forward_are_all_that_pruning_can_remove(small_encoder: Path) -> None:
    encoder = load_encoder(str(small_encoder)).encoder
    parts = {name: {site.name for site in sites} for name, sites in parts_of(encoder).items()}
    assert parts["all layers"] == {site.name for site in prunable_sites(encoder)}
    assert parts["attention"] | parts["feed-forward"] == parts["all layers"]
    assert not parts["attention"] & parts["feed-forward"]
    assert not parts["first quarter"] & parts["last quarter"]


def test_the_smallest_weights_of_each_matrix_go_and_the_share_of_the_squares_is_told(
    small_encoder: Path,
) -> None:
    (site, *_) = prunable_sites(load_encoder(str(small_encoder)).encoder)
    before = site.weight.detach().clone()
    energy = zero_([site], 0.3)
    gone = site.weight == 0
    assert gone.sum() == before.numel() - int(0.7 * before.numel())
    assert before[gone].abs().max() <= before[~gone].abs().min()
    assert energy == pytest.approx(1 - (before[gone].square().sum() / before.square().sum()).item())


def test_texts_that_have_become_one_have_no_differences_left() -> None:
    torch.manual_seed(0)
    before = [[torch.randn(3, 8)] for _ in range(5)]
    assert compare(before, before)["differences"] == [1.0]
    one = compare(before, [[before[0][0] + 0.0] for _ in before])
    assert one["alike"] == [1.0]
    assert one["differences"] == [0.0]


def test_the_more_is_zeroed_the_less_is_left_and_nothing_of_it_stays_for_the_next_part(
    small_encoder: Path,
) -> None:
    rows = {(row["part"], row["share"]): row for row in measure(str(small_encoder), TEXTS)}
    assert len(rows) == 1 + 6 * len(SHARES)
    assert rows["none", 0.0]["cosine"] == [1.0] * len(rows["none", 0.0]["cosine"])
    for part in ("all layers", RANDOM):
        energies = [rows[part, share]["energy"] for share in SHARES]
        assert energies == sorted(energies, reverse=True)
    assert rows["all layers", 0.9]["cosine"][-1] < rows["all layers", 0.1]["cosine"][-1]
    # Embeddings and the layers below the last quarter have all their weights back.
    assert rows["last quarter", 0.9]["cosine"][:2] == [1.0, 1.0]
