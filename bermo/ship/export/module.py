"""Any torch module -> an ONNX graph with free batch and length, compared with the module before that."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bermo.errors import BermoError
from bermo.files import check_place
from bermo.ship.export.onnx import check_onnx, quiet, write_lean

TOLERANCE = 1e-3
"""The largest ‖a − b‖ / ‖b‖ between the graph's answers and the module's, as for exports in fp32."""


def export_module(module: nn.Module, example: Mapping[str, Tensor], path: str | Path) -> float:
    """Write a module as an ONNX graph and return how far its answers are from the module's, ‖a − b‖ / ‖b‖.

        bermo.export_module(model, {"input_ids": ids, "attention_mask": mask}, "model.onnx")

    `example` is a batch of inputs by name, with at least two rows and two tokens; all sizes are free in the
    graph. The first output is compared; a graph that differs is not kept.
    """
    path = Path(path)
    if path.exists():
        raise BermoError(f"{path} exists and is not overwritten. Give another name.")
    check_place(path)
    check_onnx()
    module.eval()
    with torch.no_grad():
        wanted = _answers(module, example).numpy()
    any_size: Any = torch.export.Dim.DYNAMIC
    shapes = {name: dict.fromkeys(range(value.ndim), any_size) for name, value in example.items()}
    with torch.no_grad(), quiet():
        try:
            program = torch.export.export(module, (), dict(example), dynamic_shapes=shapes, strict=False)
            exported = torch.onnx.export(program, kwargs=dict(example), dynamo=True, verbose=False)
        except (RuntimeError, torch.onnx.errors.OnnxExporterError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise BermoError(f"torch could not write this module as ONNX: {reason}") from error
    write_lean(exported, path)
    difference = _difference(path, example, wanted)
    if not difference <= TOLERANCE:
        path.unlink()
        raise BermoError(
            f"The graph's answers differ by {difference:.2%} from the module's (tolerance {TOLERANCE:.2%})."
            " Nothing was written."
        )
    return difference


def _answers(module: nn.Module, example: Mapping[str, Tensor]) -> Tensor:
    """Return the module's output, or the first of several."""
    out: Any = module(**example)
    answer: Tensor = out if isinstance(out, Tensor) else out[0]
    return answer


def _difference(path: Path, example: Mapping[str, Tensor], wanted: np.ndarray) -> float:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    inputs = {item.name: example[item.name].numpy() for item in session.get_inputs()}
    found = session.run(None, inputs)[0]
    return float(np.linalg.norm(found - wanted)) / max(float(np.linalg.norm(wanted)), 1e-12)
