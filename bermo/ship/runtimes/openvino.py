"""An ONNX graph -> an OpenVINO model (model.xml, model.bin).

Real int8 needs fixed ranges of activations: OpenVINO reads the QDQ nodes of a calibrated graph and runs its
int8 kernels. A graph with dynamic ranges is read too, but computed in float and slower than fp32, so it is not made.
"""

import sys
from pathlib import Path
from typing import Any

from bermo.errors import BermoError


def load_openvino() -> Any:
    """Import OpenVINO without its telemetry: unasked, it would report each conversion to its maker, by a process of its own."""
    if "openvino" not in sys.modules:
        # Read as "not installed", for which OpenVINO has a silent stand-in.
        sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]
    import openvino

    return openvino


def write_openvino(graph: Path, folder: Path) -> None:
    """Convert a graph; weights keep their precision."""
    openvino = load_openvino()
    openvino.save_model(openvino.convert_model(str(graph)), folder / "model.xml", compress_to_fp16=False)


def check_openvino() -> None:
    """Refuse before any work if the package is missing."""
    try:
        load_openvino()
    except ImportError:
        raise BermoError('This needs openvino. Install the extra: pip install "bermo[openvino]".') from None
