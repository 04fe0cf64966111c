"""Layers: similarity against sums over four words, cuts against the student that is built, zeros counted."""

import math
from dataclasses import replace
from itertools import permutations

import pytest
import torch
from torch import Tensor

from bermo.analyse.between import measure_between
from bermo.analyse.layer_figures import (
    alive_section,
    between_section,
    cut_section,
    enough,
    kept_section,
    layers_section,
)
from bermo.analyse.layers import (
    CutScores,
    alikeness,
    cut_mix,
    grid_of_alikeness,
    measure_kept,
    measure_layers,
    unbiased_hsic,
)
from bermo.figures.data import Heat
from bermo.nn.mix import LayerMix
from bermo.vectors import Encoder
from tests.analyse.conftest import TEXTS, build


def slow_hsic(k: Tensor, l: Tensor) -> float:  # noqa: E741
    """The U-statistic that the estimator computes in closed form: a mean over all ordered fours of words."""
    total, fours = 0.0, list(permutations(range(len(k)), 4))
    for i, j, q, r in fours:
        total += float(k[i, j] * (l[i, j] + l[q, r] - 2 * l[i, q]))
    return total / len(fours)


def test_the_estimator_equals_a_sum_over_all_fours() -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(7, 3, generator=generator).double() for _ in range(2))
    k, l = x @ x.T, y @ y.T  # noqa: E741
    assert unbiased_hsic(k, l) == pytest.approx(slow_hsic(k, l))


def test_alikeness_is_one_for_a_rotation_and_near_zero_for_noise() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 64, generator=generator)
    turn, _ = torch.linalg.qr(torch.randn(64, 64, generator=generator))
    assert alikeness(x, 3 * x @ turn + 5) == pytest.approx(1, abs=1e-5)
    noise = torch.randn(200, 64, generator=generator)
    assert alikeness(x, noise) == pytest.approx(0, abs=0.05)
    assert alikeness(x[:3], x[:3]) is None
    grid = grid_of_alikeness(torch.stack([x, noise]), x[None])
    assert grid[0][0] == pytest.approx(1, abs=1e-5)
    assert abs(grid[1][0] or 0) < 0.05


@pytest.mark.parametrize("norm", ["within", "across", None])
def test_a_mix_cut_after_its_last_layer_is_the_mix_and_earlier_shares_are_renormalised(
    norm: str | None,
) -> None:
    torch.manual_seed(0)
    mix = LayerMix(num_layers=4, norm=norm).eval()  # type: ignore[arg-type]
    layers = [torch.randn(2, 3, 8) for _ in range(4)]
    with torch.no_grad():
        torch.testing.assert_close(cut_mix(mix, layers, 3), mix(layers))
        cut = cut_mix(mix, layers, 1)
        if norm is None:
            shares = mix.weights[:2] / mix.weights[:2].sum()
            torch.testing.assert_close(cut, shares[0] * layers[0] + shares[1] * layers[1])
    assert cut_mix(None, layers, 2) is layers[2]


def test_layers_of_a_mixed_model_are_measured(mixed: Encoder) -> None:
    measured = measure_layers(mixed, TEXTS, 60)
    assert measured.names == ("0", "1", "2", "3", "mix")
    assert mixed.mix is not None
    assert measured.weights == pytest.approx(mixed.mix.weights.tolist())
    assert measured.centre == pytest.approx(sum(k * w for k, w in enumerate(measured.weights)))
    assert measured.cut[-1] == pytest.approx(1, abs=1e-6)
    assert (measured.cut[0] or 1) < 0.999
    assert all(measured.alike[k][k] == pytest.approx(1, abs=1e-4) for k in range(5))
    cut = CutScores(metric="f1", scores=(50.0, 80.0, 80.2), rows=90, enough_ends=(2, 3))
    section = alive_section({"tiny": measured}, {}, {"tiny": cut}, {})
    assert "first 2 (2 … 3 by accuracy) of 3 layers" in section.text
    assert "first 2 (2 … 3 by accuracy) layers." in cut_section({"tiny": cut}).text
    assert "centre of gravity" in layers_section({"tiny": measured}).text


def test_change_of_a_layer_is_the_mean_over_words(encoder: Encoder) -> None:
    measured = measure_layers(encoder, ["the cat sees"], 60)
    with torch.no_grad():
        ids = encoder.tokenizer("the cat sees", return_tensors="pt")["input_ids"]
        hidden = encoder.backbone(ids, output_hidden_states=True).hidden_states
    moved = [(hidden[2][0, k] - hidden[1][0, k]).norm() / hidden[1][0, k].norm() for k in (1, 2, 3)]
    assert measured.change[1] == pytest.approx(float(sum(moved) / 3), rel=1e-4)
    # Three words are too few.
    assert measured.alike[0][0] is None


def test_a_model_is_like_itself_and_unlike_another(encoder: Encoder) -> None:
    same = measure_between(encoder, encoder, TEXTS, 60)
    assert all(same.alike[k][k] == pytest.approx(1, abs=1e-4) for k in range(4))
    other = measure_between(encoder, build("gpt2"), TEXTS, 60)
    assert (other.alike[3][3] or 0) < 0.9


def test_the_mix_of_two_models_has_its_name_and_is_none_of_their_same_layers() -> None:
    mixed = build(with_mix=True)
    found = measure_between(mixed, build(with_mix=True), TEXTS, 60)
    heat = between_section({"other": found}).figures[0]
    assert isinstance(heat, Heat)
    assert heat.rows == heat.columns == ("0", "1", "2", "3", "mix")
    assert list(found.of_same) == ["0", "1", "2", "3"]
    # A layer of the number that the first model's mix would have is not compared with it.
    deeper = replace(found, rows=("0", "1", "2", "3", "4"))
    assert list(deeper.of_same) == ["0", "1", "2", "3"]


@pytest.mark.parametrize("family", ["bert", "gpt2", "modernbert", "albert", "deberta"])
def test_kept_shares_are_counted_by_matrix_and_head(family: str) -> None:
    encoder = build(family)
    assert measure_kept(encoder).total == 1
    module = {
        "bert": "encoder.layer.1.attention.self.key",
        "gpt2": "h.1.attn.c_attn",
        "modernbert": "layers.1.attn.Wqkv",
        "albert": "encoder.albert_layer_groups.0.albert_layers.0.attention.key",
        "deberta": "encoder.layer.1.attention.self.in_proj",
    }[family]
    weight = encoder.backbone.get_submodule(module).weight
    # The key of the second head.
    with torch.no_grad():
        if family == "gpt2":
            weight[:, 24:32] = 0
        else:
            weight[(24 if family == "modernbert" else 8) : (32 if family == "modernbert" else 16)] = 0
    measured = measure_kept(encoder)
    row = 0 if family == "albert" else 1
    assert min(share for share in measured.shares[row] if share is not None) < 1
    assert measured.total < 1
    if family != "deberta":
        assert measured.heads[row] == pytest.approx((1, 2 / 3), abs=1e-6)
    else:
        assert measured.heads == ()
    assert "keeps" in kept_section({"tiny": measured}).text
    assert len(kept_section({"tiny": measured}).figures) >= 1


def test_enough_layers_are_the_fewest_that_score_as_the_whole() -> None:
    assert enough(CutScores(metric="f1", scores=(50.0, 89.8, 89.0, 90.0))) == 2
    assert enough(CutScores(metric="f1", scores=(50.0, 60.0, 70.0))) == 3
    assert enough(CutScores(metric="f1", scores=(70.0,))) == 1
    assert enough(CutScores(metric="pearson", scores=(math.nan, math.nan))) == 2
