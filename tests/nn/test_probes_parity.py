"""Probes against scikit-learn's discriminant analysis and logistic regression."""

import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression

from bermo.nn.probe_kinds import LinearProbes
from bermo.nn.probe_starts import start_at_means_
from bermo.nn.probes import LabelledVectors, Settings, accuracy, fit_probes

UNITS, CLASSES, ROWS = 6, 3, 600
CENTRES = np.random.default_rng(9).normal(0, 1, (CLASSES, UNITS))


def vectors(seed: int) -> LabelledVectors:
    """One layer's vectors around a centre for each class."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, CLASSES, ROWS)
    x = CENTRES[labels] + random.normal(0, 1, (ROWS, UNITS))
    return LabelledVectors(x_LND=torch.tensor(x, dtype=torch.float32)[None], labels_N=torch.tensor(labels))


def test_the_start_is_scikit_learns_discriminant_analysis() -> None:
    train = vectors(0)
    probes = LinearProbes(1, UNITS, 1, CLASSES)
    with torch.no_grad():
        start_at_means_(probes, train)
        answers = probes(train.x_LND).argmax(-1).flatten().numpy()
    x, y = train.x_LND[0].numpy(), train.labels_N.numpy()
    theirs = LinearDiscriminantAnalysis(solver="lsqr").fit(x, y).predict(x)
    assert (answers == theirs).mean() > 0.99


def test_a_fitted_probe_is_as_good_as_scikit_learns_logistic_regression() -> None:
    parts = vectors(0), vectors(1), vectors(2)
    settings = Settings(penalties=(1e-3,), rate=1e-2, evaluations=60, patience=60)
    fitted = fit_probes(LinearProbes(1, UNITS, 1, CLASSES), parts, settings)
    x, y = parts[0].x_LND[0].numpy(), parts[0].labels_N.numpy()
    theirs = LogisticRegression(C=1 / (2 * 1e-3 * ROWS), max_iter=1000).fit(x, y)
    expected = theirs.score(parts[2].x_LND[0].numpy(), parts[2].labels_N.numpy())
    assert float(fitted.test_L[0]) == pytest.approx(expected, abs=0.015)


def test_the_share_of_right_answers_is_counted_as_scikit_learn_does() -> None:
    train = vectors(0)
    probes = LinearProbes(1, UNITS, 1, CLASSES)
    with torch.no_grad():
        start_at_means_(probes, train)
        answers = probes(train.x_LND).argmax(-1).flatten()
    ours = float(accuracy(probes, train).flatten()[0])
    assert ours == pytest.approx(float((answers == train.labels_N).float().mean()))
