"""Probes of all layers, and of a learned mix of them, with the settings that a task's size asks for."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from torch import Tensor

from bermo.methods.probing.spec import ProbeSpec
from bermo.nn.probe_kinds import HiddenProbes, LinearProbes, MixProbes
from bermo.nn.probe_starts import start_at_means_
from bermo.nn.probes import LabelledVectors, ProbeFit, Settings, fit_mix, fit_probes
from bermo.progress import Display

MANY_CLASSES = 100
MANY_ROWS = 25_000


Parts: TypeAlias = tuple[LabelledVectors, LabelledVectors, LabelledVectors]
"""Training, dev and test."""


def parts_of(vectors: Sequence[Tensor], labels: Sequence[Tensor]) -> Parts:
    """Put the vectors and the labels of the training, dev and test part together."""
    train, dev, test = (
        LabelledVectors(x_LND=x, labels_N=y.to(x.device)) for x, y in zip(vectors, labels, strict=True)
    )
    return train, dev, test


def settings_for(classes: int, rows: int, spec: ProbeSpec) -> Settings:
    """Many classes or rows: few and large steps; with hundreds of classes one penalty must do."""
    if classes > MANY_CLASSES:
        return Settings(penalties=(1e-4,), batch_size=1024, mix_steps=2000, seed=spec.seed)
    if rows > MANY_ROWS:
        return Settings(batch_size=1024, rate=4e-3, seed=spec.seed)
    return Settings(seed=spec.seed)


def settings_for_words(classes: int, rows: int, spec: ProbeSpec) -> Settings:
    """Words are many, and probed three times: a rate that falls over six epochs is enough for them.

    On UD EWT it gives the accuracies of 20 to 25 epochs at a constant rate, within half a point, in a quarter
    of their time.
    """
    settings = settings_for(classes, rows, spec)
    if classes > MANY_CLASSES or rows <= MANY_ROWS:
        return settings
    return replace(settings, batch_size=Settings.batch_size, rate=8e-3, evaluations=6, is_falling=True)


def with_small_batches(settings: Settings) -> Settings:
    """The same with the batch and rate of few rows: where steps are counted, a large batch only costs."""
    return replace(settings, batch_size=Settings.batch_size, rate=Settings.rate, is_falling=False)


def make_probes(
    layers: int, units: int, classes: int, settings: Settings, spec: ProbeSpec
) -> LinearProbes | HiddenProbes:
    """Return probes of the asked kind that have not learned."""
    shape = (layers, units, len(settings.penalties), classes)
    return LinearProbes(*shape) if spec.probe == "linear" else HiddenProbes(*shape, seed=spec.seed)


def fit_shown(
    what: str, probes: LinearProbes | HiddenProbes, parts: Parts, settings: Settings, display: Display
) -> ProbeFit:
    """Train the probes in place and show how far they are."""
    if isinstance(probes, LinearProbes) and probes.bias.shape[-1] > MANY_CLASSES:
        start_at_means_(probes.to(parts[0].x_LND.device), parts[0])
    display.start(what, settings.evaluations, 0)
    try:
        return fit_probes(probes, parts, settings, lambda n: display.step(n, None))
    finally:
        display.close()


def fit_layers(
    what: str,
    vectors: Sequence[Tensor],
    labels: Sequence[Tensor],
    classes: int,
    spec: ProbeSpec,
    display: Display,
) -> ProbeFit:
    """Fit one probe for each layer and penalty."""
    layers, rows, units = vectors[0].shape
    settings = settings_for(classes, rows, spec)
    probes = make_probes(layers, units, classes, settings, spec)
    return fit_shown(what, probes, parts_of(vectors, labels), settings, display)


def fit_learned_mix(
    vectors: Sequence[Tensor],
    labels: Sequence[Tensor],
    classes: int,
    spec: ProbeSpec,
    display: Display,
) -> tuple[ProbeFit, list[float]]:
    """Fit a probe on a mix of the layers; returns also the share of each."""
    layers, rows, units = vectors[0].shape
    settings = settings_for(classes, rows, spec)
    probes = MixProbes(layers, units, len(settings.penalties), classes)
    parts = parts_of(vectors, labels)
    if classes > MANY_CLASSES:
        start_at_means_(probes.to(vectors[0].device), parts[0])
    display.start("the learned mix", settings.evaluations, 0)
    try:
        fit = fit_mix(probes, parts, settings, lambda n: display.step(n, None))
    finally:
        display.close()
    return fit, probes.weights[:, fit.penalty_L[0]].tolist()
