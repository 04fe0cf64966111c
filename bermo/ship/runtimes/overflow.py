"""Int8 products that overflow on x86 without VNNI: which weights can, and scales with which none does.

An x86 processor without VNNI multiplies unsigned activations with signed weights by `vpmaddubsw`, which
adds the products of two neighbours along the summed dimension in 16 bits and saturates:

    255 · |w_k + w_{k+1}| ≤ 32767    holds for every activation if    |w_k + w_{k+1}| ≤ 128

Full 8-bit weights (to ±127) can break this; 7-bit weights (to ±64) cannot. A scale for each column that
makes the largest neighbours' sum 128 keeps a part of the eighth bit: on the box the error of the logits lies
between those of 8 and of 7 bits (results/int8-error.json). Unsigned weights and ARM's kernels add in 32 bits
and never overflow.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bermo.errors import BermoError
from bermo.machine import Processor, processor

LARGEST_CODE = 127
LARGEST_SUM = 128
"""255 · 128 = 32640 fits 16 bits with a sign, 255 · 129 does not."""


def safe_scales(weights: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return a scale for each column of a matrix (summed over its rows) with which no product overflows."""
    by_code = np.abs(weights).max(axis=0) / LARGEST_CODE
    # Rounding moves each of two codes by a half at most.
    by_sum = np.abs(weights[:-1] + weights[1:]).max(axis=0, initial=0) / (LARGEST_SUM - 1)
    # A column of zeros needs some scale.
    return np.maximum(np.maximum(by_code, by_sum), 1e-12).astype(np.float32)


def encode(weights: npt.NDArray[np.float32], scales: npt.NDArray[np.float32]) -> npt.NDArray[np.int8]:
    """Return the int8 codes of a matrix with a scale for each column."""
    return np.clip(np.rint(weights / scales), -LARGEST_CODE, LARGEST_CODE).astype(np.int8)


def can_overflow(codes: npt.NDArray[np.int8]) -> bool:
    """Tell whether some activations make the products of this matrix overflow without VNNI."""
    wide = codes.astype(np.int64)
    return bool((np.abs(wide[:-1] + wide[1:]) > LARGEST_SUM).any())


@dataclass(frozen=True, kw_only=True)
class StoredMatrix:
    """A signed int8 matrix of an ONNX graph, and whether its products sum over its columns (Gemm with
    transB).
    """

    stored: Any
    is_transposed: bool

    def by_summed_rows(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Turn the stored layout into one whose rows are summed over, or the other way round."""
        return values.T if self.is_transposed else values


def int8_matrices(graph: Any) -> list[StoredMatrix]:
    """Return the signed int8 matrices that activations are multiplied with; tables of embeddings are none."""
    import onnx

    stored = {item.name: item for item in graph.initializer if item.data_type == onnx.TensorProto.INT8}
    matrices = {}
    for node in graph.node:
        position = {"MatMulInteger": 1, "DequantizeLinear": 0}.get(node.op_type)
        item = None if position is None else stored.get(node.input[position])
        if item is None or len(item.dims) != 2:
            continue
        # Scales belong to the outputs: an axis of 0 means that the other one is summed over.
        axes = [a.i for a in node.attribute if a.name == "axis"] if node.op_type == "DequantizeLinear" else []
        matrices[item.name] = StoredMatrix(stored=item, is_transposed=axes == [0])
    return list(matrices.values())


def overflowing_matrices(path: Path) -> list[str]:
    """Name the signed int8 matrices of an ONNX graph's products that can overflow without VNNI."""
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(str(path)).graph
    return sorted(
        matrix.stored.name
        for matrix in int8_matrices(graph)
        if can_overflow(matrix.by_summed_rows(numpy_helper.to_array(matrix.stored)))
    )


def check_overflow(folder: Path, record: dict[str, Any], on: Processor | None = None) -> None:
    """Refuse an int8 export whose answers would be wrong on this processor; `record` is its export.json."""
    on = on or processor()
    if record.get("precision") != "int8" or not on.is_x86 or on.has_vnni:
        return
    graph = folder / "model.onnx"
    is_safe = bool(record.get("details", {}).get("is_safe_without_vnni"))
    if graph.is_file():
        is_safe = not overflowing_matrices(graph)
    if not is_safe:
        raise BermoError(
            f"{folder} has int8 weights whose products overflow on {on.name} (x86 without VNNI), so that its"
            " answers would be wrong. Export the model again with this version of bermo, or run it on a"
            " processor with VNNI or on ARM."
        )
