"""An OpenVINO model in int8 with calibrated ranges of activations: by nncf where it is installed, else by
our own graph.

nncf quantises the OpenVINO model itself, also the products inside attention, and smooths outliers of
activations first. It gives weights 7 bits here (`OverflowFix.ENABLE`), so that no product overflows on x86
without VNNI. Our own way converts the calibrated ONNX graph of quantize.py, whose weights are safe too.
"""

import contextlib
import io
import logging
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from bermo.ship.export.compare import Compared, Reference
from bermo.ship.export.onnx import quiet
from bermo.ship.export.quantize import quantize_calibrated
from bermo.ship.export.word_table import WordTables, use_in_openvino_, word_tables
from bermo.ship.runtimes.candidate import OpenVinoCandidate
from bermo.ship.runtimes.forms import Words
from bermo.ship.runtimes.openvino import load_openvino, save_openvino

MODEL_FILES = ("model.xml", "model.bin")


def has_nncf() -> bool:
    """Tell whether nncf is installed."""
    return find_spec("nncf") is not None


def write_openvino_int8(
    graph: Path,
    folder: Path,
    ranges: Sequence[dict[str, np.ndarray]],
    reference: Reference,
    words: Words = "int8",
) -> dict[str, Any]:
    """Write the int8 model of an fp32 graph, and return what export.json records of it.

    Where the logits of nncf's model are too far off, our own is written too, which quantises less, and the
    better one is kept.
    """
    details: dict[str, Any] = {
        "weights": "signed",
        "activations": "calibrated ranges",
        "is_safe_without_vnni": True,
    }
    tables = word_tables(graph) if words == "int4" else {}
    if not has_nncf():
        _write_own(graph, folder, ranges, tables)
        return details | {"quantizer": "onnxruntime"}
    _write_by_nncf(graph, folder, ranges, tables)
    by_nncf = _compare(folder, reference)
    details |= {"quantizer": "nncf", "nncf_relative_error": by_nncf.relative_error}
    if by_nncf.relative_error <= by_nncf.tolerance:
        return details
    aside = graph.with_name("own")
    aside.mkdir()
    _write_own(graph, aside, ranges, tables)
    own = _compare(aside, reference)
    details |= {"nncf_moved": by_nncf.moved, "own_relative_error": own.relative_error, "own_moved": own.moved}
    if reference.better(by_nncf, own) is by_nncf:
        return details
    for name in MODEL_FILES:
        (aside / name).replace(folder / name)
    return details | {"quantizer": "onnxruntime"}


def _compare(folder: Path, reference: Reference) -> Compared:
    return reference.compare(OpenVinoCandidate(folder / MODEL_FILES[0], None, True), "int8")


def _write_own(
    graph: Path, folder: Path, ranges: Sequence[dict[str, np.ndarray]], tables: WordTables
) -> None:
    quantized = graph.with_name("calibrated.onnx")
    with quiet():
        quantize_calibrated(graph, quantized, "signed", ranges, words="fp32" if tables else "int8")
    model = load_openvino().convert_model(str(quantized))
    use_in_openvino_(model, tables)
    save_openvino(model, folder)


def _write_by_nncf(
    graph: Path, folder: Path, ranges: Sequence[dict[str, np.ndarray]], tables: WordTables
) -> None:
    # OpenVINO comes first: it is imported without telemetry, which nncf then lacks too.
    openvino = load_openvino()
    import nncf

    nncf.set_log_level(logging.ERROR)
    # nncf draws its own progress bars.
    with quiet(), contextlib.redirect_stdout(io.StringIO()):
        model = nncf.quantize(
            openvino.convert_model(str(graph)),
            nncf.Dataset(list(ranges)),
            model_type=nncf.ModelType.TRANSFORMER,
            subset_size=len(ranges),
            advanced_parameters=nncf.AdvancedQuantizationParameters(overflow_fix=nncf.OverflowFix.ENABLE),
        )
    use_in_openvino_(model, tables)
    save_openvino(model, folder)
