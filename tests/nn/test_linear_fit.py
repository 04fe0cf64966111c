"""The readout of fixed vectors is scikit-learn's, and its penalty is chosen on rows that were held out."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.preprocessing import StandardScaler

from bermo.nn.linear_fit import (
    QUICK,
    THOROUGH,
    LinearFit,
    _entropy,
    _entropy_and_gradient,
    _slopes,
    fit_linear,
    fit_with_penalty,
    held_out_loss,
)

pytestmark = pytest.mark.usefixtures("whole_fits")

Rows = tuple[torch.Tensor, torch.Tensor]


def make_rows(count: int = 90, units: int = 7, classes: int = 3) -> Rows:
    """Vectors of very different units, whose class depends on the first two."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(count, units, generator=generator) * torch.logspace(-2, 2, units) + 5
    z = (x - x.mean(0)) / x.std(0)
    noise = torch.randn(count, classes, generator=generator)
    scores = torch.stack([z[:, 0], z[:, 1], -z[:, 0]], dim=1) * 2 + noise
    return x, scores.argmax(1)


def outputs(fitted: LinearFit, x: torch.Tensor) -> np.ndarray:
    return (x.double() @ fitted.weight_CD.T + fitted.bias_C).numpy()


@pytest.mark.parametrize("penalty", [1.0, 0.01])
def test_probabilities_are_those_of_scikit_learn(penalty: float) -> None:
    x, labels = make_rows()
    fitted = fit_with_penalty(x, labels, 3, penalty)
    z = StandardScaler().fit_transform(x.double().numpy())
    peer = LogisticRegression(C=1 / (penalty * len(x)), tol=1e-8, max_iter=2000).fit(z, labels.numpy())
    probabilities = torch.from_numpy(outputs(fitted, x)).softmax(1).numpy()
    assert probabilities == pytest.approx(peer.predict_proba(z), abs=5e-3)


def test_labels_are_those_of_one_against_all() -> None:
    x, labels = make_rows()
    targets = torch.stack([labels == 0, labels > 0, x[:, 1] > 5], dim=1)
    fitted = fit_with_penalty(x, targets.double(), 3, 0.1)
    z = StandardScaler().fit_transform(x.double().numpy())
    for column in range(3):
        peer = LogisticRegression(C=10 / len(x), tol=1e-8, max_iter=2000).fit(z, targets[:, column].numpy())
        found = torch.from_numpy(outputs(fitted, x)[:, column]).sigmoid().numpy()
        assert found == pytest.approx(peer.predict_proba(z)[:, 1], abs=5e-3)
    assert fit_linear(x, targets, 3).held_out_loss < 3 * 0.6


@pytest.mark.parametrize("weights", [None, torch.tensor([0.5, 2.0, 1.0], dtype=torch.float64)])
@pytest.mark.parametrize("is_labels", [False, True])
def test_gradients_are_those_of_autograd(weights: torch.Tensor | None, is_labels: bool) -> None:
    x, classes = make_rows()
    targets = torch.stack([classes == 0, classes > 0, x[:, 1] > 5], dim=1).double() if is_labels else classes
    z, count = ((x - x.mean(0)) / x.std(0)).double(), 3
    weight, bias = torch.randn(count, z.shape[1], dtype=torch.float64), torch.randn(count).double()
    logits = (z @ weight.T + bias).requires_grad_()
    expected = _entropy(logits, targets, weights)
    expected.backward()
    slopes = None if is_labels else _slopes(targets, count, weights)
    loss, gradient = _entropy_and_gradient(logits.detach().clone(), targets, weights, slopes)
    assert torch.equal(loss, expected.detach())
    assert torch.equal(gradient, logits.grad)  # type: ignore[arg-type]


def test_numbers_are_those_of_ridge_regression() -> None:
    x, labels = make_rows()
    targets = labels.double() + 0.1 * x[:, 3].double()
    fitted = fit_with_penalty(x, targets, None, 0.1)
    z = StandardScaler().fit_transform(x.double().numpy())
    peer = Ridge(alpha=0.1 * len(x)).fit(z, targets.numpy())
    assert outputs(fitted, x)[:, 0] == pytest.approx(peer.predict(z), abs=2e-2)


def test_noise_gets_a_strong_penalty_and_a_clear_rule_a_weak_one() -> None:
    x, labels = make_rows()
    rule = fit_linear(x, (x[:, 2] > 5).long(), 2)
    noise = fit_linear(x, torch.arange(len(x)) * 7 % 3, 3)
    assert rule.penalty < fit_linear(x, labels, 3).penalty <= noise.penalty
    assert rule.held_out_loss < 0.3 < 1.0 < noise.held_out_loss


def test_few_rows_a_constant_unit_and_an_absent_class_are_fitted_too() -> None:
    x = torch.tensor([[1.0, 2.0], [1.0, 3.0], [1.0, -2.0]])
    fitted = fit_linear(x, torch.tensor([0, 0, 1]), 3)
    assert outputs(fitted, x).argmax(1).tolist() == [0, 0, 1]
    assert torch.isfinite(fitted.weight_CD).all()


def test_a_dead_unit_gets_no_weight_that_would_outdo_the_others() -> None:
    made = torch.manual_seed(0)
    x = torch.randn(80, 4, generator=made)
    targets = (x[:, 0] + 0.3 * torch.randn(80, generator=made) > 0).long()
    dead = 5 + 1e-8 * targets[:, None].double()
    fitted = fit_linear(torch.cat([x.double(), dead], dim=1), targets, num_classes=2)
    assert fitted.weight_CD[:, 4].abs().max() < 0.01 * fitted.weight_CD.abs().max()


def test_the_loss_on_held_out_rows_is_known_without_the_last_fit() -> None:
    x, labels = make_rows()
    assert held_out_loss(x, labels, 3) == fit_linear(x, labels, 3).held_out_loss
    assert np.isnan(held_out_loss(x[:4], labels[:4], 3))


def test_many_rows_are_read_as_well_with_little_effort() -> None:
    x, labels = make_rows(count=3000, units=12)
    fits = [fit_linear(x[:1500], labels[:1500], 3, effort=effort) for effort in (THOROUGH, QUICK)]
    fresh = [torch.from_numpy(outputs(fitted, x[1500:])) for fitted in fits]
    thorough, quick = (torch.nn.functional.cross_entropy(found, labels[1500:]).item() for found in fresh)
    assert quick < thorough + 0.01
    assert quick != thorough
