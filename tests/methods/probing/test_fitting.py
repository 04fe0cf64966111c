"""The settings of probes by the size of a task: what they reach, against scikit-learn."""

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression

from bermo.methods.probing.fitting import (
    MANY_CLASSES,
    MANY_ROWS,
    make_probes,
    settings_for,
    settings_for_words,
)
from bermo.methods.probing.spec import ProbeSpec
from bermo.nn.probes import LabelledVectors, fit_probes

UNITS, CLASSES = 6, 3
CENTRES = np.random.default_rng(9).normal(0, 1, (CLASSES, UNITS))


def vectors(seed: int, rows: int) -> LabelledVectors:
    """One layer's vectors around a centre for each class."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, CLASSES, rows)
    x = CENTRES[labels] + random.normal(0, 1, (rows, UNITS))
    return LabelledVectors(x_LND=torch.tensor(x, dtype=torch.float32)[None], labels_N=torch.tensor(labels))


def test_six_epochs_of_many_words_answer_as_scikit_learns_logistic_regression() -> None:
    train, dev, test = vectors(0, MANY_ROWS + 1), vectors(1, 600), vectors(2, 6000)
    spec = ProbeSpec()
    settings = settings_for_words(CLASSES, MANY_ROWS + 1, spec)
    probes = make_probes(1, UNITS, CLASSES, settings, spec)
    assert fit_probes(probes, (train, dev, test), settings).evaluations == settings.evaluations == 6
    x, y = train.x_LND[0].numpy(), train.labels_N.numpy()
    with torch.no_grad():
        answers_PN = probes(test.x_LND)[0].argmax(-1).numpy()
    for ours_N, penalty in zip(answers_PN, settings.penalties, strict=True):
        theirs = LogisticRegression(C=1 / (2 * penalty * len(y)), max_iter=1000).fit(x, y)
        assert (ours_N == theirs.predict(test.x_LND[0].numpy())).mean() > 0.99


def test_only_many_words_of_few_classes_are_probed_at_a_falling_rate() -> None:
    many = MANY_ROWS + 1
    assert settings_for_words(17, many, ProbeSpec()).is_falling
    for classes, rows in ((17, MANY_ROWS), (MANY_CLASSES + 1, many)):
        assert settings_for_words(classes, rows, ProbeSpec()) == settings_for(classes, rows, ProbeSpec())
