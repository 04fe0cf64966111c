"""An ONNX graph -> an OpenVINO model (model.xml, model.bin).

OpenVINO runs its int8 kernels only with fixed ranges of activations, which it reads from the QuantizeLinear
nodes of a calibrated graph. A graph with ranges of each batch is computed in float, slower than fp32, so it
is not made.
"""

import sys
from functools import cache
from pathlib import Path
from typing import Any

from bermo.errors import BermoError


def load_openvino() -> Any:
    """Import OpenVINO without its telemetry, which would start a process that reports each conversion to
    its maker.
    """
    if "openvino" not in sys.modules:
        # Read as "not installed", for which OpenVINO has a silent stand-in.
        sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]
    import openvino

    return openvino


def write_openvino(graph: Path, folder: Path) -> None:
    """Convert a graph; weights keep their precision."""
    save_openvino(load_openvino().convert_model(str(graph)), folder)


def save_openvino(model: Any, folder: Path) -> None:
    """Write a model of OpenVINO into a folder."""
    try:
        load_openvino().save_model(model, folder / "model.xml", compress_to_fp16=False)
    except RuntimeError as error:
        # A full disk is told as "basic_ios::clear: iostream error".
        raise BermoError(
            f"OpenVINO could not write its model into {folder.parent} ({error}). The disk may be full, or its"
            " quota used up."
        ) from error


@cache
def openvino_precisions() -> frozenset[str]:
    """Return the precisions that OpenVINO computes in on this CPU, as it names them: FP32, BF16, INT8 and
    so on.
    """
    capabilities = load_openvino().Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    return frozenset(str(name) for name in capabilities)
