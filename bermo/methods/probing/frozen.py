"""Probes on the vectors of every frozen layer, with the controls that their scores are compared with.

    test accuracy of each layer and of a learned mix of all    SentEval's protocol (Conneau et al. 2018)
    centre of gravity  Σ_j j·s_j of that mix                   Tenney et al. 2019
    selectivity = accuracy − accuracy on the control task      Hewitt and Liang 2019
    the same encoder untrained; a bag of words; the largest class

The control task (control.py) has random classes of words; what a bag of words scores there says how much of
it memorising solves.
"""

import hashlib
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bermo.data.probing import ProbeData
from bermo.data.rows import TextRows, digest
from bermo.data.unknown import check_unknown, count_unknown
from bermo.errors import BermoError
from bermo.files import check_place, read_sealed, reading, write_sealed
from bermo.methods.probing import fitting
from bermo.methods.probing.bag import bag_accuracy
from bermo.methods.probing.control import control_labels
from bermo.methods.probing.spec import ProbeSpec
from bermo.nn.probe_starts import standardise_
from bermo.progress import Display
from bermo.vectors import Encoder, TextVectors, text_vectors

FORMAT = 2


@dataclass(frozen=True, kw_only=True)
class Probed:
    """The results of one task; accuracies in percent, one for each of `layers`."""

    task: str
    group: str
    num_classes: int
    rows: tuple[int, int, int]
    layers: tuple[str, ...]
    accuracy: tuple[float, ...]
    dev: tuple[float, ...]
    penalty: tuple[float, ...]
    mix_accuracy: float
    mix_weights: tuple[float, ...]
    """Of the layers proper; a trained model's own mix is no part of it."""
    centre: float
    largest_class: float
    bag_of_words: float
    control: tuple[float, ...] = ()
    memoriser: float | None = None
    """What a bag of words, which memorises and knows nothing else, scores on the control task."""
    untrained: tuple[float, ...] = ()
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    doubt: str = ""
    """Why the labels are not to be believed, if they are not."""
    digest: str = ""
    """Of the rows, so that the results of other rows are not taken for theirs."""

    @property
    def selectivity(self) -> tuple[float, ...]:
        """Accuracy less that on the control task, for each layer."""
        return tuple(a - b for a, b in zip(self.accuracy, self.control, strict=True))

    @property
    def best(self) -> str:
        """The layer with the best dev accuracy; a model's own mix is no layer."""
        proper = [at for at, name in enumerate(self.layers) if name.isdigit()]
        return self.layers[max(proper, key=lambda at: self.dev[at])]


def probe_task(
    encoder: Encoder,
    untrained: Encoder | None,
    data: ProbeData,
    spec: ProbeSpec,
    display: Display,
) -> Probed:
    """Probe every layer for one task, with its controls."""
    start = time.monotonic()
    parts = (data.train, data.valid, data.test)
    names = layer_names(encoder, spec)
    check_text(encoder, data.train, spec)
    vectors = [_vectors(encoder, rows, spec, display) for rows in parts]
    labels = [_label_ids(rows, data.labels) for rows in parts]
    stacked = _stacked(vectors, names)
    fit = fitting.fit_layers(f"probing {data.task}", stacked, labels, len(data.labels), spec, display)
    proper = [at for at, name in enumerate(names) if name.isdigit()]
    mix, shares = fitting.fit_learned_mix(
        [x[proper] for x in stacked], labels, len(data.labels), spec, display
    )
    control: Sequence[float] = ()
    blank: Sequence[float] = ()
    memoriser: float | None = None
    texts = [list(rows.first) for rows in parts]
    if spec.controls:
        random = control_labels(data, spec.seed)
        memoriser = 100 * bag_accuracy(texts, random, len(data.labels))
        control = _percent(
            fitting.fit_layers("the control task", stacked, random, len(data.labels), spec, display).test_L
        )
    if untrained is not None:
        del stacked
        blank = _untrained(untrained, parts, names, labels, len(data.labels), spec, display)
    counts = labels[2].bincount(minlength=len(data.labels))
    depths = [int(names[at]) for at in proper]
    return Probed(
        task=data.task,
        group=data.group,
        num_classes=len(data.labels),
        rows=(len(parts[0]), len(parts[1]), len(parts[2])),
        layers=tuple(names),
        accuracy=_percent(fit.test_L),
        dev=_percent(fit.dev_L),
        penalty=tuple(
            fitting.settings_for(len(data.labels), len(data.train), spec).penalties[at]
            for at in fit.penalty_L.tolist()
        ),
        mix_accuracy=_percent(mix.test_L)[0],
        mix_weights=tuple(shares),
        centre=sum(depth * share for depth, share in zip(depths, shares, strict=True)),
        largest_class=100 * float(counts.max() / counts.sum()),
        bag_of_words=100 * bag_accuracy(texts, labels, len(data.labels)),
        control=tuple(control),
        memoriser=memoriser,
        untrained=tuple(blank),
        seconds=time.monotonic() - start,
        notes=data.notes,
        doubt=data.doubt,
        digest=data_digest(data),
    )


def claim_folder(out: Path, settings: dict[str, Any]) -> None:
    """Write what is asked into a new folder; refuse one that holds another question."""
    path, content = out / "probe.json", {"format": FORMAT, **settings}
    check_place(out)
    # Looked at before probe.json is: another process may claim the folder in between, for the same question.
    is_free = not out.exists() or (out.is_dir() and not any(out.glob("[!.]*")))
    if path.exists():
        with reading(path, "Give another folder with --out."):
            old = read_sealed(path)
        changed = [name for name in content if old.get(name) != content[name]]
        if changed:
            raise BermoError(
                f"{out} holds another probing; nothing there is overwritten. What differs:"
                f" {', '.join(changed)}. Give another folder with --out."
            )
        return
    if not is_free:
        raise BermoError(
            f"{out} is not empty and holds no probing; nothing there is overwritten. Give another"
            " folder with --out."
        )
    write_sealed(path, content)


def data_digest(data: ProbeData) -> str:
    """Name the rows of a task by their content."""
    parts = [digest(rows) for rows in (data.train, data.valid, data.test)]
    return hashlib.sha256("".join(parts).encode()).hexdigest()


def check_text(encoder: Encoder, rows: TextRows, spec: ProbeSpec) -> None:
    """Refuse text that the tokenizer does not know, as training would."""
    sample = TextRows(list(rows.first[:2000]))
    batch = encoder.tokenizer(list(sample.first), add_special_tokens=False, verbose=False)
    ids = torch.tensor([token for row in batch["input_ids"] for token in row]).numpy()
    share = count_unknown(ids, encoder.tokenizer).share
    check_unknown(share, spec.max_unknown, sample, encoder.tokenizer)


def _vectors(encoder: Encoder, rows: TextRows, spec: ProbeSpec, display: Display) -> TextVectors:
    return text_vectors(
        encoder,
        list(rows.first),
        pooling=spec.pooling,
        max_length=spec.max_length,
        batch_size=spec.batch_size,
        precision=spec.precision,
        cache=spec.cache,
        display=display,
    )


def layer_names(encoder: Encoder, spec: ProbeSpec) -> list[str]:
    """The layers that were asked for, and the mix where it has the width of a layer."""
    count = encoder.num_layers
    wanted = range(count) if spec.layers is None else spec.layers
    for layer in wanted:
        if not -count <= layer < count:
            raise BermoError(f"Layer {layer} was asked for, but there are 0 to {count - 1}.")
    names = dict.fromkeys(str(layer % count) for layer in wanted)  # 6 and -1 may be one layer
    is_alike = encoder.mix is not None and encoder.mix.output_size(encoder.hidden_size) == encoder.hidden_size
    return [*names, *(["mix"] if is_alike and spec.layers is None else [])]


def _stacked(vectors: Sequence[TextVectors], names: Sequence[str]) -> list[Tensor]:
    """Return (L, N, D) for each part, standardised, in half precision, on the device that probes train on."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parts = [
        torch.stack([torch.from_numpy(part.read(name)) for name in names]).to(device) for part in vectors
    ]
    standardise_(parts)
    return parts


def _label_ids(rows: TextRows, labels: Sequence[str]) -> Tensor:
    index = {label: at for at, label in enumerate(labels)}
    return torch.tensor([index[str(label)] for label in rows.labels or ()])


def _untrained(
    encoder: Encoder,
    parts: Sequence[TextRows],
    names: Sequence[str],
    labels: Sequence[Tensor],
    classes: int,
    spec: ProbeSpec,
    display: Display,
) -> tuple[float, ...]:
    """Probe the same layers with random weights; where the encoder has a mix, its entry stays empty."""
    vectors = [_vectors(encoder, rows, spec, display) for rows in parts]
    proper = [name for name in names if name.isdigit()]
    fit = fitting.fit_layers(
        "the untrained encoder", _stacked(vectors, proper), labels, classes, spec, display
    )
    accuracies = _percent(fit.test_L)
    return accuracies + tuple(math.nan for _ in range(len(names) - len(proper)))


def _percent(values: Tensor) -> tuple[float, ...]:
    return tuple(round(100 * value, 4) for value in values.tolist())
