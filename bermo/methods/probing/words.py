"""Probes of words on every frozen layer: tags, features, relations, chunks, entities (Tenney et al. 2019).

    test accuracy of each layer             the best layer is chosen on dev; intervals by resampling sentences
    selectivity                             accuracy less that on the control task (Hewitt and Liang 2019)
    compression                             of the labels' online code (Voita and Titov 2020; nn/codes.py)
    centre of gravity  Σ_j j·s_j            of a learned mix of all layers
    expected layer  Σ_l l·Δ_l / Σ_l Δ_l     Δ_l: what layer l adds to the mix of the layers 0 … l − 1

In the control task each word, in small letters, has a label that is drawn once from the labels of training
by a hash of the word: a probe that memorises words can learn it, and nothing else can.
"""

import hashlib
import math
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bermo.data.intervals import draws_of_groups, share_ends
from bermo.data.word_tasks import Labelled, WordData, memorise
from bermo.methods.probing import fitting
from bermo.methods.probing.spec import ProbeSpec
from bermo.methods.probing.word_rows import ReadSource, kept_data, stacked_rows
from bermo.nn.codes import chosen, online_code, right_rows
from bermo.nn.probe_kinds import mixes_up_to_each
from bermo.nn.probe_starts import standardise_
from bermo.nn.probes import Settings, train_mix_
from bermo.progress import Display, counted

Percent = tuple[float, ...]
MIX_STEPS, MIX_RATE = 1000, 2.0
"""Steps of the mixes of the layers up to each, which are as many as layers, at rates so many times higher."""


@dataclass(frozen=True, kw_only=True)
class WordProbed:
    """The results of one task of words; accuracies in percent, one for each of `layers`."""

    task: str
    group: str
    source: str
    num_classes: int
    rows: tuple[int, int, int]
    layers: tuple[str, ...]
    accuracy: Percent
    least: Percent
    most: Percent
    """95 % intervals of the accuracies, over resamples of the test sentences."""
    dev: Percent
    penalty: tuple[float, ...]
    compression: tuple[float, ...]
    bits: tuple[float, ...]
    """Of the online code, for each training word."""
    mix_accuracy: float
    mix_weights: tuple[float, ...]
    centre: float
    prefixes: Percent
    """Test accuracy of a mix of the layers 0 … l."""
    expected: float | None
    """The expected layer; None where no layer adds anything to layer 0."""
    expected_interval: tuple[float, float] | None
    largest_class: float
    memoriser: float
    """What the most frequent label of each word scores on the task."""
    control: Percent = ()
    control_memoriser: float | None = None
    untrained: Percent = ()
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    digest: str = ""

    @property
    def selectivity(self) -> Percent:
        """Accuracy less that on the control task, for each layer."""
        return tuple(a - b for a, b in zip(self.accuracy, self.control, strict=True))

    @property
    def proper(self) -> list[int]:
        """Places of the layers proper; a model's own mix is no layer."""
        return [at for at, name in enumerate(self.layers) if name.isdigit()]

    @property
    def best(self) -> int:
        """The place of the layer with the best dev accuracy."""
        return max(self.proper, key=lambda at: self.dev[at])


def word_digest(data: WordData) -> str:
    """Name the labelled spans of a task by their content."""
    return hashlib.sha256(repr(data).encode()).hexdigest()


def control_of(data: WordData, seed: int) -> WordData:
    """Return the task with labels that follow from the key of a span alone."""
    counts = Counter(data.parts[0].labels)
    sums = list(accumulate(counts[label] for label in data.labels))

    def draw(key: str) -> str:
        number = hashlib.sha256(f"{data.task} {seed} {key}".encode()).digest()[:8]
        return data.labels[bisect_right(sums, int.from_bytes(number, "big") * sums[-1] >> 64)]

    parts = [replace(part, labels=tuple(map(draw, part.keys))) for part in data.parts]
    return replace(data, parts=(parts[0], parts[1], parts[2]))


def memoriser_score(data: WordData) -> float:
    """Return what the most frequent label of each word scores on test, in percent."""
    known, usual = memorise(data.parts[0])
    test = data.parts[2]
    right = sum(known.get(key, usual) == label for key, label in zip(test.keys, test.labels, strict=True))
    return 100 * right / len(test)


def probe_words(
    read: ReadSource,
    untrained: ReadSource | None,
    data: WordData,
    names: Sequence[str],
    spec: ProbeSpec,
    display: Display,
) -> WordProbed:
    """Probe every layer for one task of words, with its controls."""
    start, digest = time.monotonic(), word_digest(data)
    data = kept_data(data, read)
    classes, num_rows = len(data.labels), len(data.parts[0])
    settings = fitting.settings_for_words(classes, num_rows, spec)
    vectors = stacked_rows(data, read)
    standardise_(vectors)
    parts = fitting.parts_of(vectors, _label_ids(data))
    shape = (len(names), vectors[0].shape[-1], classes)
    probes = fitting.make_probes(*shape, settings, spec)
    fit = fitting.fit_shown(f"probing {data.task}", probes, parts, settings, display)
    best = max((at for at, name in enumerate(names) if name.isdigit()), key=lambda at: float(fit.dev_L[at]))
    penalty = settings.penalties[int(fit.penalty_L[best])]
    right_LN = chosen(right_rows(probes, parts[2]), fit.penalty_L)
    interval_L = _intervals(right_LN, data.parts[2])
    small = fitting.with_small_batches(settings)
    with counted(display, "the code of the labels", 1) as advance:
        code_L = online_code(
            lambda: fitting.make_probes(*shape, settings, spec), parts[0], parts[1], classes, small
        )
        advance(1)
    mix = _mixes(vectors, data, names, replace(small, penalties=(penalty,)), display)
    control: Percent = ()
    control_memoriser = None
    if spec.controls:
        random = control_of(data, spec.seed)
        control_memoriser = memoriser_score(random)
        of_words = fitting.parts_of(vectors, _label_ids(random))
        probes = fitting.make_probes(*shape, settings, spec)
        found = fitting.fit_shown("the control task", probes, of_words, settings, display)
        control = _percent(found.test_L.tolist())
    counts = Counter(data.parts[2].labels)
    even = num_rows * math.log2(classes)
    return WordProbed(
        task=data.task,
        group=data.group,
        source="",
        num_classes=classes,
        rows=(num_rows, len(data.parts[1]), len(data.parts[2])),
        layers=tuple(names),
        accuracy=_percent(fit.test_L.tolist()),
        least=_percent(interval_L[0].tolist()),
        most=_percent(interval_L[1].tolist()),
        dev=_percent(fit.dev_L.tolist()),
        penalty=tuple(settings.penalties[at] for at in fit.penalty_L.tolist()),
        compression=tuple(round(even / bits, 4) for bits in code_L.tolist()),
        bits=tuple(round(bits / num_rows, 4) for bits in code_L.tolist()),
        mix_accuracy=mix.prefixes[-1],
        mix_weights=mix.weights,
        centre=mix.centre,
        prefixes=mix.prefixes,
        expected=mix.expected,
        expected_interval=mix.expected_interval,
        largest_class=100 * max(counts.values()) / counts.total(),
        memoriser=memoriser_score(data),
        control=control,
        control_memoriser=control_memoriser,
        untrained=() if untrained is None else _untrained(untrained, data, names, settings, spec, display),
        seconds=time.monotonic() - start,
        notes=(f"{read.num_unread:,} words beyond the longest text were left out",) * (read.num_unread > 0),
        digest=digest,
    )


@dataclass(frozen=True, kw_only=True)
class _Mixes:
    prefixes: Percent
    weights: tuple[float, ...]
    centre: float
    expected: float | None
    expected_interval: tuple[float, float] | None


def _mixes(
    vectors: Sequence[Tensor], data: WordData, names: Sequence[str], settings: Settings, display: Display
) -> _Mixes:
    """Train the mixes of the layers 0 … l for every l at once; the last is that of all layers."""
    proper = [at for at, name in enumerate(names) if name.isdigit()]
    depths = [int(names[at]) for at in proper]
    parts = fitting.parts_of([x[proper] for x in vectors], _label_ids(data))
    probes = mixes_up_to_each(len(proper), vectors[0].shape[-1], len(data.labels))
    settings = replace(
        settings,
        penalties=settings.penalties * len(proper),
        mix_steps=min(MIX_STEPS, settings.mix_steps),
        rate=MIX_RATE * settings.rate,
        mix_rate=MIX_RATE * settings.mix_rate,
    )
    display.start("mixes of the layers up to each", settings.evaluations, 0)
    try:
        train_mix_(probes, parts[0], settings, lambda n: display.step(n, None))
    finally:
        display.close()
    right_LN = right_rows(probes, parts[2])[0]
    shares = probes.weights[:, -1].tolist()
    draws_RL, scores = _resampled(right_LN, data.parts[2])
    expected = expected_layer(scores, depths)
    drawn = [value for row in draws_RL if (value := expected_layer(row, depths)) is not None]
    ends = np.quantile(drawn, [0.025, 0.975]).tolist() if expected is not None else None
    return _Mixes(
        prefixes=_percent(scores.tolist()),
        weights=tuple(shares),
        centre=sum(depth * share for depth, share in zip(depths, shares, strict=True)),
        expected=expected,
        expected_interval=(ends[0], ends[1]) if ends else None,
    )


def expected_layer(scores: npt.NDArray[np.float64], depths: Sequence[int]) -> float | None:
    """Return Σ_l l·Δ_l / Σ_l Δ_l of the scores of mixes of more and more layers; None without a gain."""
    gains = np.diff(scores)
    return float((np.array(depths[1:]) * gains).sum() / gains.sum()) if gains.sum() > 0 else None


def _resampled(right_LN: Tensor, test: Labelled) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the share of right spans over resamples of the sentences, (R, L), and over all, (L)."""
    _, group = np.unique(np.array(test.sentences), return_inverse=True)
    totals_S = np.bincount(group).astype(np.float64)
    right_LS = np.stack(
        [np.bincount(group, weights=row, minlength=len(totals_S)) for row in right_LN.numpy()]
    )
    drawn_RS = draws_of_groups(len(totals_S)).astype(np.float64)
    shares_RL = (drawn_RS @ right_LS.T) / (drawn_RS @ totals_S)[:, None]
    return shares_RL, right_LS.sum(1) / totals_S.sum()


def _intervals(right_LN: Tensor, test: Labelled) -> npt.NDArray[np.float64]:
    """Return the 95 % interval of each layer's accuracy, (2, L)."""
    drawn_RL, shares_L = _resampled(right_LN, test)
    groups = len(set(test.sentences))
    return np.array(
        [share_ends(drawn, float(share), groups) for drawn, share in zip(drawn_RL.T, shares_L, strict=True)]
    ).T


def _untrained(
    read: ReadSource,
    data: WordData,
    names: Sequence[str],
    settings: Settings,
    spec: ProbeSpec,
    display: Display,
) -> Percent:
    """Probe the same layers with random weights; a model's own mix has none."""
    vectors = stacked_rows(data, read)
    standardise_(vectors)
    layers, _, units = vectors[0].shape
    probes = fitting.make_probes(layers, units, len(data.labels), settings, spec)
    parts = fitting.parts_of(vectors, _label_ids(data))
    fit = fitting.fit_shown("the untrained encoder", probes, parts, settings, display)
    return _percent(fit.test_L.tolist()) + (math.nan,) * (len(names) - len(vectors[0]))


def _label_ids(data: WordData) -> list[Tensor]:
    index = {label: at for at, label in enumerate(data.labels)}
    return [torch.tensor([index[label] for label in part.labels]) for part in data.parts]


def _percent(values: Sequence[float]) -> Percent:
    return tuple(round(100 * value, 4) for value in values)
