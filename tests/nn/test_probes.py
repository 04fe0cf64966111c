"""Probes: together or alone they are the same, they learn what is there, and keep their best."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from bermo.nn import probes as training
from bermo.nn.probe_kinds import HiddenProbes, LinearProbes, MixProbes, Probes, mixes_up_to_each
from bermo.nn.probe_starts import RIDGE, standardise_, start_at_means_
from bermo.nn.probes import (
    LabelledVectors,
    Settings,
    _step_,
    fit_mix,
    fit_probes,
)

LAYERS, UNITS, CLASSES = 3, 8, 2
Parts = tuple[LabelledVectors, LabelledVectors, LabelledVectors]


def make_parts(only_layer: int | None = None) -> Parts:
    """Random vectors; the class is the sign of a unit of layer 1, and noise in the other layers."""
    generator = torch.Generator().manual_seed(0)
    parts = []
    for rows in (300, 100, 100):
        x = torch.randn(LAYERS, rows, UNITS, generator=generator)
        labels = (x[1, :, 2] > 0).long()
        parts.append(LabelledVectors(x_LND=x if only_layer is None else x[[only_layer]], labels_N=labels))
    return parts[0], parts[1], parts[2]


SETTINGS = Settings(penalties=(1e-4, 1e-2), evaluations=4, batch_size=64, rate=1e-2)


def slow_loss(probes: Probes, x_LBD: Tensor, labels_B: Tensor, penalties_P: Tensor) -> Tensor:
    """The loss as it is written, for autograd to find its gradients."""
    logits_KCB = probes(x_LBD).transpose(2, 3).flatten(0, 1)
    losses = cross_entropy(logits_KCB, labels_B.expand(len(logits_KCB), -1), reduction="sum")
    return losses / len(labels_B) + (probes.squares() * penalties_P).sum()


@pytest.mark.parametrize(
    "probes",
    [
        LinearProbes(LAYERS, UNITS, 2, 5),
        HiddenProbes(LAYERS, UNITS, 2, 5, hidden=4),
        MixProbes(LAYERS, UNITS, 2, 5),
        mixes_up_to_each(LAYERS, UNITS, 5),
    ],
    ids=["linear", "hidden", "mix", "mixes up to each"],
)
def test_the_gradients_that_are_written_down_are_those_of_the_loss(probes: Probes) -> None:
    generator = torch.Generator().manual_seed(0)
    probes = probes.double()
    with torch.no_grad():
        for parameter in probes.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.double)
    x_LBD = torch.randn(LAYERS, 7, UNITS, generator=generator, dtype=torch.double)
    labels_B = torch.randint(0, 5, (7,), generator=generator)
    penalties_P = torch.tensor([1e-1, 1e-2, 1e-3], dtype=torch.double)[: probes.squares().shape[1]]
    expected = torch.autograd.grad(slow_loss(probes, x_LBD, labels_B, penalties_P), list(probes.parameters()))
    _step_(probes, torch.optim.Adam(probes.parameters(), lr=0.0), x_LBD, labels_B, penalties_P)
    for parameter, gradient in zip(probes.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


def test_the_gradients_of_a_mix_are_those_that_autograd_finds() -> None:
    generator = torch.Generator().manual_seed(0)
    probes = MixProbes(LAYERS, UNITS, 2, 5).double()
    with torch.no_grad():
        for parameter in probes.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.double)
    x_LBD = torch.randn(LAYERS, 7, UNITS, generator=generator, dtype=torch.double)
    wanted = torch.randn(1, 2, 7, 5, generator=generator, dtype=torch.double)
    mixed_PBD = torch.einsum("lp,lbd->pbd", probes.weights * probes.scale[0, 0].T, x_LBD)
    slow = torch.einsum("pbd,dpc->pbc", mixed_PBD, probes.linear.weight[0])
    slow = slow + probes.linear.bias[0].transpose(0, 1)
    expected = torch.autograd.grad((slow * wanted[0]).sum(), list(probes.parameters()))
    torch.testing.assert_close(probes(x_LBD)[0], slow)
    found = torch.autograd.grad((probes(x_LBD) * wanted).sum(), list(probes.parameters()))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_linear_probes_follow_their_formula() -> None:
    probes = LinearProbes(LAYERS, UNITS, 2, CLASSES)
    torch.nn.init.normal_(probes.weight)
    torch.nn.init.normal_(probes.bias)
    x = torch.randn(LAYERS, 5, UNITS)
    logits = probes(x)
    for layer in range(LAYERS):
        for penalty in range(2):
            expected = x[layer] @ probes.weight[layer, :, penalty] + probes.bias[layer, 0, penalty]
            torch.testing.assert_close(logits[layer, penalty], expected)


def test_hidden_probes_follow_their_formula() -> None:
    probes = HiddenProbes(LAYERS, UNITS, 2, CLASSES, hidden=4)
    torch.nn.init.normal_(probes.first_bias)
    torch.nn.init.normal_(probes.second_bias)
    x = torch.randn(LAYERS, 5, UNITS)
    logits = probes(x)
    for layer in range(LAYERS):
        inner = torch.relu(x[layer] @ probes.first[layer, :, 1] + probes.first_bias[layer, 0, 1])
        expected = inner @ probes.second[layer, :, 1] + probes.second_bias[layer, 0, 1]
        torch.testing.assert_close(logits[layer, 1], expected)


def test_a_mix_probe_follows_its_formula() -> None:
    probes = MixProbes(LAYERS, UNITS, 2, CLASSES)
    for parameter in probes.parameters():
        torch.nn.init.normal_(parameter)
    x = torch.randn(LAYERS, 5, UNITS)
    for penalty in range(2):
        shares = torch.softmax(probes.logits[0, :, penalty, 0], 0) * probes.scale[0, 0, penalty, 0]
        mixed = sum(share * layer for share, layer in zip(shares, x, strict=True))
        expected = mixed @ probes.linear.weight[0, :, penalty] + probes.linear.bias[0, 0, penalty]
        torch.testing.assert_close(probes(x)[0, penalty], expected)


@pytest.mark.parametrize("kind", [LinearProbes, HiddenProbes])
def test_probes_trained_together_are_those_trained_alone(
    kind: type[LinearProbes] | type[HiddenProbes],
) -> None:
    together = kind(LAYERS, UNITS, 2, CLASSES)
    start = [parameter.detach().clone() for parameter in together.parameters()]
    fit_probes(together, make_parts(), SETTINGS)
    for layer in range(LAYERS):
        for index, penalty in enumerate(SETTINGS.penalties):
            alone = kind(1, UNITS, 1, CLASSES)
            with torch.no_grad():
                for parameter, value in zip(alone.parameters(), start, strict=True):
                    parameter.copy_(value[layer : layer + 1, :, index : index + 1])
            settings = Settings(penalties=(penalty,), evaluations=4, batch_size=64, rate=1e-2)
            fit_probes(alone, make_parts(layer), settings)
            for one, all_ in zip(alone.parameters(), together.parameters(), strict=True):
                expected = all_[layer : layer + 1, :, index : index + 1]
                torch.testing.assert_close(one, expected, atol=1e-4, rtol=1e-3)


def test_a_probe_finds_the_layer_that_knows_and_the_mix_reads_it() -> None:
    parts = make_parts()
    fit = fit_probes(LinearProbes(LAYERS, UNITS, 2, CLASSES), parts, SETTINGS)
    assert fit.test_L[1] > 0.9
    assert max(fit.test_L[0], fit.test_L[2]) < 0.65
    mix = MixProbes(LAYERS, UNITS, 2, CLASSES)
    actual = fit_probes(mix, parts, Settings(penalties=(1e-4, 1e-2), evaluations=12, rate=2e-2))
    assert actual.test_L[0] > 0.85
    assert mix.weights[:, actual.penalty_L[0]].argmax() == 1


def test_a_probe_ends_at_its_best_on_dev_and_not_at_its_last() -> None:
    parts = make_parts()
    # A rate that overshoots: dev goes up and down, so the last look is not the best.
    settings = Settings(penalties=(0.0,), evaluations=6, batch_size=32, rate=3.0)
    probes = LinearProbes(LAYERS, UNITS, 1, CLASSES)
    fit = fit_probes(probes, parts, settings)
    dev = parts[1]
    right = (probes(dev.x_LND).argmax(-1) == dev.labels_N).float().mean(-1)
    torch.testing.assert_close(right[:, 0], fit.dev_L)


def test_starting_at_the_means_is_linear_discriminant_analysis() -> None:
    train, dev, test = make_parts()
    classes = int(train.labels_N.max()) + 1
    layers, _, units = train.x_LND.shape
    probes = LinearProbes(layers, units, 2, classes)
    start_at_means_(probes, train)
    for layer in range(layers):
        x_ND = train.x_LND[layer].double()
        means = torch.stack([x_ND[train.labels_N == c].mean(0) for c in range(classes)])
        apart = x_ND - means[train.labels_N]
        within = apart.T @ apart / len(x_ND) + RIDGE * torch.eye(units)
        share = (train.labels_N.bincount() + 1) / (len(x_ND) + classes)
        for c in range(classes):
            weight = torch.linalg.inv(within) @ means[c]
            bias = share[c].log() - means[c] @ weight / 2
            for penalty in range(2):
                torch.testing.assert_close(
                    probes.weight[layer, :, penalty, c].double(), weight, atol=1e-4, rtol=1e-3
                )
                torch.testing.assert_close(
                    probes.bias[layer, 0, penalty, c].double(), bias.double(), atol=1e-4, rtol=1e-3
                )
    mixed = MixProbes(layers, units, 2, classes)
    start_at_means_(mixed, train)
    alone = LinearProbes(1, units, 2, classes)
    mean = LabelledVectors(x_LND=train.x_LND.mean(0, keepdim=True), labels_N=train.labels_N)
    start_at_means_(alone, mean)
    torch.testing.assert_close(mixed.linear.weight, alone.weight, atol=1e-4, rtol=1e-3)
    # From there the layer that knows is read from the first look on.
    assert fit_probes(probes, (train, dev, test), SETTINGS).test_L[1] > 0.9


def test_a_large_penalty_keeps_weights_small() -> None:
    probes = LinearProbes(LAYERS, UNITS, 2, CLASSES)
    fit_probes(probes, make_parts(), Settings(penalties=(0.0, 1.0), evaluations=4, rate=1e-2))
    squares = probes.squares()
    assert (squares[1, 1] < 0.2 * squares[1, 0]).all()


def test_vectors_are_standardised_by_the_training_part() -> None:
    train, test = torch.randn(2, 500, 4) * 3 + 5, torch.randn(2, 50, 4) * 3 + 5
    mean, deviation = train.mean(1, keepdim=True), train.std(1, correction=0, keepdim=True)
    expected = (test - mean) / deviation
    train[:, :, 3] = 1.0  # a unit that never moves
    parts = [train.half(), test.half()]
    standardise_(parts)
    torch.testing.assert_close(parts[1][..., :3].float(), expected[..., :3], atol=2e-2, rtol=1e-2)
    assert all(bool(part.isfinite().all()) for part in parts)


def test_training_stops_when_nothing_gets_better() -> None:
    parts = make_parts()
    still = LabelledVectors(x_LND=torch.zeros_like(parts[0].x_LND), labels_N=parts[0].labels_N)
    probes: Probes = LinearProbes(LAYERS, UNITS, 1, CLASSES)
    settings = Settings(penalties=(0.0,), evaluations=20, patience=2, rate=0.0)
    assert fit_probes(probes, (still, parts[1], parts[2]), settings).evaluations == 3


def test_while_the_rate_falls_no_layer_leaves_and_the_last_step_is_the_smallest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rates: list[float] = []
    step = training._step_

    def watched(probes: Probes, optimizer: torch.optim.Adam, *rest: torch.Tensor) -> None:
        rates.append(optimizer.param_groups[0]["lr"])
        step(probes, optimizer, *rest)

    monkeypatch.setattr(training, "_step_", watched)
    settings = Settings(penalties=(0.0,), evaluations=3, patience=1, rate=1e-2, is_falling=True)
    parts = make_parts()
    still = LabelledVectors(x_LND=torch.zeros_like(parts[0].x_LND), labels_N=parts[0].labels_N)
    fit = fit_probes(LinearProbes(LAYERS, UNITS, 1, CLASSES), (still, parts[1], parts[2]), settings)
    assert fit.evaluations == 3
    expected = [1e-2 * (1 - at / len(rates)) for at in range(len(rates))]
    assert rates == pytest.approx(expected)


def test_a_layer_that_gets_no_better_leaves_and_the_others_go_on_as_if_alone() -> None:
    train, dev, test = make_parts()
    # Layer 0 is zero, so its probes never get better than their first look.
    for part in (train, dev, test):
        part.x_LND[0] = 0.0
    settings = Settings(penalties=(1e-4, 1e-2), evaluations=12, patience=2, batch_size=64, rate=2e-3)
    together = LinearProbes(LAYERS, UNITS, 2, CLASSES)
    fit = fit_probes(together, (train, dev, test), settings)
    assert fit.evaluations > 3  # layer 0 has left after three
    assert together.weight.shape[0] == LAYERS
    for layer in (1, 2):
        one = [LabelledVectors(x_LND=p.x_LND[[layer]], labels_N=p.labels_N) for p in (train, dev, test)]
        alone = LinearProbes(1, UNITS, 2, CLASSES)
        expected = fit_probes(alone, (one[0], one[1], one[2]), settings)
        torch.testing.assert_close(together.weight[[layer]], alone.weight, atol=1e-5, rtol=1e-4)
        assert fit.test_L[layer] == expected.test_L[0]
        assert fit.dev_L[layer] == expected.dev_L[0]


def test_a_mix_is_trained_to_the_minimum_that_a_slow_solver_finds() -> None:
    generator = torch.Generator().manual_seed(0)
    parts = []
    for rows in (240, 60, 60):
        x = torch.randn(LAYERS, rows, UNITS, generator=generator)
        told = 2 * x[0, :, 2] + x[1, :, 2] + 0.5 * torch.randn(rows, generator=generator)
        parts.append(LabelledVectors(x_LND=x, labels_N=(told > 0).long()))
    train = parts[0]
    penalties = torch.tensor([1e-3, 1e-2], dtype=torch.double)
    slow = MixProbes(LAYERS, UNITS, 2, CLASSES).double()
    solver = torch.optim.LBFGS(slow.parameters(), max_iter=300, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        solver.zero_grad()
        loss = slow_loss(slow, train.x_LND.double(), train.labels_N, penalties)
        loss.backward()
        return loss

    solver.step(closure)  # type: ignore[arg-type]
    ours = MixProbes(LAYERS, UNITS, 2, CLASSES)
    fit = fit_mix(ours, (parts[0], parts[1], parts[2]), Settings(penalties=(1e-3, 1e-2), mix_steps=1500))
    torch.testing.assert_close(ours.weights.double(), slow.weights, atol=0.02, rtol=0)
    assert fit.test_L[0] > 0.8
