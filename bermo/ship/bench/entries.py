"""Folders -> the candidates of a bench, every mistake reported before a process starts."""

import os
from collections.abc import Sequence
from typing import cast

from bermo.encoders.families import longest_input
from bermo.errors import BermoError
from bermo.models.config import encoder_config
from bermo.runs.task_file import TrainedTask
from bermo.runs.trained import TrainedFolder, open_trained
from bermo.ship.bench.spec import BenchDevice, BenchSpec
from bermo.ship.bench.worker import Entry
from bermo.ship.runtimes.candidate import torch_precision
from bermo.ship.runtimes.texts import labelled
from bermo.spec import Precision
from bermo.training.devices import check_device

MOST_NAMED = 4
"""Labels of a model that an error names."""


def line_up(
    folders: Sequence[str],
    spec: BenchSpec,
    threads: int | None = None,
    device: BenchDevice = "cpu",
    precisions: Sequence[str] = ("fp32",),
) -> list[Entry]:
    """Return an entry for every folder, and for a torch folder in every precision asked for."""
    sources = {folder: open_trained(folder) for folder in folders}
    _check(sources, spec, device)
    entries = []
    for folder, source in sources.items():
        is_torch = source.runtime == "sparse" or (source.runtime == "torch" and not source.is_export)
        for precision in precisions if is_torch else (torch_precision(source),):
            suffix = f" {precision}" if is_torch and len(precisions) > 1 else ""
            entries.append(
                Entry(
                    name=folder.rstrip("/\\") + suffix,
                    folder=source.folder,
                    threads=threads or os.cpu_count() or 1,
                    device=device,
                    precision=cast(Precision, precision),
                )
            )
    return entries


def _question(trained: TrainedTask) -> str:
    """Return the kind of a model's task and its first labels."""
    more = ", …" if len(trained.labels) > MOST_NAMED else ""
    labels = ", ".join(trained.labels[:MOST_NAMED])
    return f"{trained.task.kind} ({labels}{more})" if labels else trained.task.kind


def _check(sources: dict[str, TrainedFolder], spec: BenchSpec, device: BenchDevice) -> None:
    first_name, first = next(iter(sources.items()))
    for name, source in sources.items():
        if device != "cpu" and source.runtime in ("onnxruntime", "openvino"):
            raise BermoError(
                f"{name} is made for {source.runtime}, which runs on the CPU here."
                " Leave it out, or leave --device out."
            )
        known, wanted = source.trained, first.trained
        if (known.task.kind, known.labels) != (wanted.task.kind, wanted.labels):
            raise BermoError(
                f"{name} answers another question than {first_name}: {_question(known)}, not"
                f" {_question(wanted)}. Compare models of one task."
            )
        check_lengths(name, source, spec)
    check_device(device)
    if spec.data is not None:
        # A wrong file is an error before any process starts.
        labelled(first, spec.data)


def check_lengths(name: str, source: TrainedFolder, spec: BenchSpec) -> None:
    """Refuse inputs that are longer than the model reads."""
    longest = longest_input(encoder_config(source.config))
    if longest is not None and max(spec.lengths) > longest:
        raise BermoError(
            f"{name} reads {longest} tokens at most, but {max(spec.lengths)} were asked for."
            " Pass smaller --lengths."
        )
