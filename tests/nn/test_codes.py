"""The online code against a computation by hand, and what it tells of easy and of hopeless labels."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from bermo.nn import probes
from bermo.nn.codes import RATE, block_ends, chosen, online_code, right_rows, row_bits
from bermo.nn.probe_kinds import LinearProbes, MixProbes, mixes_up_to_each
from bermo.nn.probes import LabelledVectors, Settings, fit_probes, train_mix_

SETTINGS = Settings(penalties=(1e-2, 1e-3), evaluations=2, rate=5e-2)


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "LEAST_STEPS", 20)


def rows(count: int, seed: int, is_easy: bool = True) -> LabelledVectors:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 2, (count,), generator=generator)
    x = torch.randn(2, count, 4, generator=generator)
    if is_easy:
        x[1, :, 0] += 4 * labels
    return LabelledVectors(x_LND=x, labels_N=labels)


def test_blocks_double_and_none_is_empty() -> None:
    assert block_ends(10_000) == [10, 20, 40, 80, 160, 320, 625, 1250, 2500, 5000, 10_000]
    assert block_ends(5) == [1, 2, 3, 5]
    assert block_ends(1) == [1]


def test_the_code_is_that_of_a_computation_by_hand() -> None:
    train, dev = rows(100, 0), rows(40, 1)
    ours = online_code(lambda: LinearProbes(2, 4, 2, 2), train, dev, 2, SETTINGS)
    order = torch.randperm(100, generator=torch.Generator().manual_seed(0))
    expected = torch.full((2,), 1.0)  # the first row of two classes: one bit
    ends = [1, 2, 4, 7, 13, 25, 50, 100]
    assert block_ends(100) == ends
    for begin, end in pairwise(ends):
        known, coming = order[:begin], order[begin:end]
        part = LabelledVectors(x_LND=train.x_LND[:, known], labels_N=train.labels_N[known])
        learned = LinearProbes(2, 4, 2, 2)
        settings = replace(SETTINGS, is_by_loss=True, is_falling=True, rate=RATE * SETTINGS.rate)
        fit = fit_probes(learned, (part, dev, dev), settings)
        learned.requires_grad_(False)
        for layer in range(2):
            weight = learned.weight[layer, :, fit.penalty_L[layer]]
            bias = learned.bias[layer, 0, fit.penalty_L[layer]]
            for row in coming.tolist():
                share = (train.x_LND[layer, row] @ weight + bias).softmax(0)[train.labels_N[row]]
                expected[layer] += -math.log2(float(share))
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-3)


def test_labels_that_the_vectors_tell_have_a_short_code() -> None:
    bits = online_code(lambda: LinearProbes(2, 4, 2, 2), rows(200, 0), rows(100, 1), 2, SETTINGS)
    assert float(bits[1]) < 0.5 * 200
    assert float(bits[0]) > 0.95 * 200


def test_rows_are_right_where_the_largest_logit_is_the_label() -> None:
    part, drawn = rows(30, 3), LinearProbes(2, 4, 2, 2)
    torch.nn.init.normal_(drawn.weight, generator=torch.Generator().manual_seed(1))
    right = chosen(right_rows(drawn, part), torch.tensor([0, 1]))
    for layer, penalty in ((0, 0), (1, 1)):
        answers = (part.x_LND[layer] @ drawn.weight[layer, :, penalty]).argmax(-1)
        assert torch.equal(right[layer], answers == part.labels_N)
    bits = row_bits(drawn, part, torch.tensor([0, 1]))
    assert torch.equal(bits[0] < 1, right[0])


def test_a_mix_of_the_layers_up_to_each_reads_no_layer_above() -> None:
    train = rows(300, 5)
    mixes = mixes_up_to_each(2, 4, 2)
    train_mix_(mixes, train, Settings(penalties=(1e-3,) * 2, mix_steps=80, rate=3e-2))
    assert mixes.weights[:, 0].tolist() == [1.0, 0.0]
    # The second layer alone tells the labels.
    assert float(mixes.weights[1, 1].detach()) > 0.6
    right = right_rows(mixes, train)[0].float().mean(1)
    assert float(right[1]) > 0.9 > float(right[0]) + 0.2


def test_mixes_up_to_each_are_those_trained_alone() -> None:
    train = rows(200, 6)
    settings = Settings(penalties=(1e-3,) * 2, mix_steps=40)
    both = mixes_up_to_each(2, 4, 2)
    train_mix_(both, train, settings)
    alone = MixProbes(2, 4, 1, 2)
    train_mix_(alone, train, Settings(penalties=(1e-3,), mix_steps=40))
    assert both.weights[:, 1].tolist() == pytest.approx(alone.weights[:, 0].tolist(), abs=1e-4)
    first = MixProbes(1, 4, 1, 2)
    part = LabelledVectors(x_LND=train.x_LND[:1], labels_N=train.labels_N)
    train_mix_(first, part, Settings(penalties=(1e-3,), mix_steps=40))
    scaled = both.scale[0, 0, 0] * both.linear.weight[0, :, 0]
    torch.testing.assert_close(
        scaled, first.scale[0, 0, 0] * first.linear.weight[0, :, 0], atol=1e-4, rtol=1e-3
    )
