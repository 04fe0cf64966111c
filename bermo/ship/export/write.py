"""The files of each form: torch weights in bf16, an ONNX graph in fp32 or int8, an OpenVINO model, a sparse
container.
"""

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from bermo.encoders.sites import encoder_of
from bermo.encoders.tied import shares_layers
from bermo.runs.trained import TrainedFolder
from bermo.ship.export.compare import BATCH, TOLERANCES, Reference
from bermo.ship.export.onnx import quiet, write_onnx
from bermo.ship.export.openvino_graph import avoid_wrong_kernels
from bermo.ship.export.openvino_int8 import write_openvino_int8
from bermo.ship.export.quantize import quantize_calibrated, quantize_dynamic
from bermo.ship.export.rewrite import quicken, store_transposed
from bermo.ship.export.sensitivity import Sensitive
from bermo.ship.export.signs import TriedSign, choose_sign, seconds_of
from bermo.ship.export.spec import ExportSpec
from bermo.ship.export.word_table import word_tables
from bermo.ship.runtimes.candidate import OnnxCandidate, inputs_of
from bermo.ship.runtimes.forms import Form, Words
from bermo.ship.runtimes.openvino import write_openvino
from bermo.ship.runtimes.sparse import write_sparse
from bermo.ship.runtimes.texts import built_in

Ranges = Sequence[dict[str, np.ndarray]]


def write_form(
    model: PreTrainedModel,
    opened: TrainedFolder,
    form: Form,
    folder: Path,
    ranges: Ranges | None,
    reference: Reference,
    spec: ExportSpec,
    traced: Path | None,
    gives_tokens: bool = False,
    whole: Sequence[Sensitive] = (),
) -> dict[str, Any]:
    """Write the model's own files, and return what export.json records about them."""
    match form.runtime:
        case "sparse":
            size = write_sparse(model, folder / "sparse.safetensors", spec.values)
            ratios = {"encoder_ratio": size.encoder_ratio, "model_ratio": size.model_ratio}
            return asdict(size) | ratios | {"values": spec.values}
        case "torch":
            model.bfloat16().save_pretrained(folder)
            return {}
    with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as aside:
        graph = Path(aside) / "graph.onnx"
        _trace(model, opened, graph, traced, gives_tokens)
        stored = {"words": spec.words} if form.precision == "int8" else {}
        if form.runtime == "onnxruntime":
            return stored | _write_onnx_form(graph, form, folder, ranges, reference, whole, spec.words)
        avoid_wrong_kernels(graph)
        if form.precision == "int8":
            assert ranges is not None
            return stored | write_openvino_int8(graph, folder, ranges, reference, spec.words)
        write_openvino(graph, folder)
    return {}


def _trace(
    model: PreTrainedModel, opened: TrainedFolder, graph: Path, traced: Path | None, gives_tokens: bool
) -> None:
    """Write the fp32 graph; `traced` keeps it for other forms of the same model, or has it already."""
    if traced is None or not traced.exists():
        # The example comes from real texts: two rows at least, since torch takes a size of one as fixed.
        example = inputs_of(built_in(opened), np.arange(3))
        more = {"gives_tokens": True} if gives_tokens else {}
        write_onnx(model, {name: torch.from_numpy(value) for name, value in example.items()}, graph, **more)
        if shares_layers(encoder_of(model)):
            store_transposed(graph)
        if traced is not None:
            shutil.copyfile(graph, traced)
    else:
        shutil.copyfile(traced, graph)


def _write_onnx_form(
    graph: Path,
    form: Form,
    folder: Path,
    ranges: Ranges | None,
    reference: Reference,
    whole: Sequence[Sensitive],
    words: Words,
) -> dict[str, Any]:
    """Move the graph, in int8 where the form says so, to its name in the folder."""
    details: dict[str, Any] = {}
    if form.precision == "int8":
        quicken(graph)
        kept, details = _quantize(graph, form, ranges, reference, whole, words)
        graph = kept.graph
    shutil.move(graph, folder / "model.onnx")
    return details


def _quantize(
    graph: Path,
    form: Form,
    ranges: Ranges | None,
    reference: Reference,
    whole: Sequence[Sensitive],
    words: Words,
) -> tuple[TriedSign, dict[str, Any]]:
    """Write the int8 graph of every sign of the form, compare and time them, and return the one to keep."""
    tried = []
    contents = {content for item in whole for content in item.contents}
    if words == "int4":
        word_tables(graph)  # refuses a graph without any
    for sign in form.signs:
        out = graph.with_name(f"{sign}.onnx")
        with quiet():
            if ranges is None:
                quantize_dynamic(graph, out, sign, contents, words)
            else:
                quantize_calibrated(graph, out, sign, ranges, contents, words)
        compared = reference.compare(OnnxCandidate(out, None), "int8")
        is_accepted = reference.accepts(compared)
        tried.append(
            TriedSign(sign=sign, graph=out, relative_error=compared.relative_error, is_accepted=is_accepted)
        )
    if len(tried) > 1:
        tried = _timed(tried, inputs_of(reference.features, np.arange(min(BATCH, len(reference.features)))))
    kept = choose_sign(tried, TOLERANCES["int8"])
    return kept, {
        "weights": kept.sign,
        "activations": "ranges of each batch" if ranges is None else "calibrated ranges",
        "is_safe_without_vnni": True,
        "tried": {
            item.sign: {"relative_error": item.relative_error, "seconds": item.seconds} for item in tried
        },
    } | ({"fp32": {item.name: item.error for item in whole}} if whole else {})


def _timed(tried: list[TriedSign], batch: dict[str, np.ndarray]) -> list[TriedSign]:
    """Time the graphs by turns on this machine."""
    seconds = seconds_of([OnnxCandidate(item.graph, None) for item in tried], batch)
    return [replace(item, seconds=value) for item, value in zip(tried, seconds, strict=True)]
