"""An ONNX graph -> an OpenVINO model (model.xml, model.bin).

OpenVINO runs its int8 kernels only with fixed ranges of activations, which it reads from the QuantizeLinear
nodes of a calibrated graph. A graph with ranges of each batch is computed in float, slower than fp32, so it
is not made.
"""

import sys
from functools import cache
from pathlib import Path
from typing import Any


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
    openvino = load_openvino()
    openvino.save_model(openvino.convert_model(str(graph)), folder / "model.xml", compress_to_fp16=False)


@cache
def openvino_precisions() -> frozenset[str]:
    """Return the precisions that OpenVINO computes in on this CPU, as it names them: FP32, BF16, INT8 and
    so on.
    """
    capabilities = load_openvino().Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    return frozenset(str(name) for name in capabilities)
