"""Eight bits for an ONNX graph: weights once, activations as they come (dynamic) or by calibrated ranges.

    matrices     w ≈ s_column · q, q in int8         tables of embeddings   w ≈ s_row · q, one scale a word
    activations  x ≈ s · (q − z), q in uint8: s, z of each batch, or fixed by texts (calibrated, QDQ nodes)

Which signs of activations and weights are sound depends on the processor: x86 without VNNI adds pairs of
uint8 · int8 products in 16 bits, which overflow. So the choices are tried and compared, not believed.
"""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

MATRICES = ("MatMul", "Gemm")
SMALLEST_TABLE = 64
"""Rows from which a table of embeddings is worth its scales; positions and words are, segments are not."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """How weights are coded: their sign, and whether one bit is left free against overflow."""

    weights: str
    is_reduced: bool = False

    @property
    def name(self) -> str:
        return self.weights + (" with 7 bits" if self.is_reduced else "")


def choices() -> tuple[Choice, ...]:
    """Return what is worth trying on this processor."""
    signed, unsigned = Choice(weights="QInt8"), Choice(weights="QUInt8")
    if platform.machine().lower() in ("x86_64", "amd64") and not has_vnni():
        return unsigned, Choice(weights="QInt8", is_reduced=True)
    return signed, unsigned


def has_vnni() -> bool:
    """Tell whether an x86 processor multiplies bytes into 32 bits; not known counts as no."""
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False
    return "avx512_vnni" in flags or "avx_vnni" in flags


def quantize_dynamic(graph: Path, out: Path, choice: Choice) -> None:
    """Write a graph with int8 weights whose activations are quantised batch by batch."""
    from onnxruntime import quantization

    model = _with_small_tables(graph)
    quantization.quantize_dynamic(
        model,
        out,
        nodes_to_quantize=_layers(model),
        per_channel=True,
        reduce_range=choice.is_reduced,
        weight_type=quantization.QuantType[choice.weights],
        extra_options={"MatMulConstBOnly": True},
    )


def quantize_calibrated(
    graph: Path, out: Path, choice: Choice, batches: Sequence[Mapping[str, np.ndarray]]
) -> None:
    """Write a graph with int8 weights and fixed ranges of activations, taken from these batches."""
    from onnxruntime import quantization

    class Reader(quantization.CalibrationDataReader):
        def __init__(self) -> None:
            self.rest = iter(batches)

        def get_next(self) -> Any:
            return next(self.rest, None)

    signed = quantization.QuantType.QInt8
    model = _with_small_tables(graph)
    quantization.quantize_static(
        model,
        out,
        Reader(),
        quant_format=quantization.QuantFormat.QDQ,
        nodes_to_quantize=_layers(model),
        per_channel=True,
        reduce_range=choice.is_reduced,
        # OpenVINO and onnxruntime have kernels for both signs alike only where activations are signed.
        activation_type=signed if choice.weights == "QInt8" else quantization.QuantType.QUInt8,
        weight_type=quantization.QuantType[choice.weights],
        extra_options={"MatMulConstBOnly": True},
    )


def _layers(model: Any) -> list[str]:
    """Name the products of activations with a stored matrix: not attention's, and not the mix's few weights."""
    # A layer without heads or neurons is a product with nothing, whose range would be no number.
    stored = {item.name for item in model.graph.initializer if len(item.dims) == 2 and all(item.dims)}
    return [
        node.name
        for node in model.graph.node
        if node.op_type in MATRICES and node.input[1] in stored and node.input[0] not in stored
    ]


def _with_small_tables(graph: Path) -> Any:
    """Return the graph with every table of embeddings as int8 rows and one scale a row."""
    import onnx
    from onnx import helper, numpy_helper

    model = onnx.load(str(graph))
    del model.graph.value_info[:]  # shapes from before constant folding, which a checker would refuse
    stored = {item.name: item for item in model.graph.initializer}
    nodes, replaced = [], set()
    for node in model.graph.node:
        table = stored.get(node.input[0]) if node.op_type == "Gather" else None
        weights = None if table is None else numpy_helper.to_array(table)
        if weights is None or not _is_table(weights):
            nodes.append(node)
            continue
        scales = np.maximum(np.abs(weights).max(axis=1, keepdims=True), 1e-12) / 127
        name = node.input[0]
        if name not in replaced:
            codes = np.rint(weights / scales).astype(np.int8)
            model.graph.initializer.extend(
                [
                    numpy_helper.from_array(codes, f"{name}.codes"),
                    numpy_helper.from_array(scales.astype(np.float32), f"{name}.scales"),
                ]
            )
            replaced.add(name)
        out = node.output[0]
        nodes += [
            helper.make_node("Gather", [f"{name}.codes", node.input[1]], [f"{out}.codes"], axis=0),
            helper.make_node("Cast", [f"{out}.codes"], [f"{out}.cast"], to=onnx.TensorProto.FLOAT),
            helper.make_node("Gather", [f"{name}.scales", node.input[1]], [f"{out}.scale"], axis=0),
            helper.make_node("Mul", [f"{out}.cast", f"{out}.scale"], [out]),
        ]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    used = {name for node in model.graph.node for name in node.input}
    for name in replaced - used:
        model.graph.initializer.remove(stored[name])
    return model


def _is_table(weights: np.ndarray) -> bool:
    is_float = weights.dtype == np.float32 and weights.ndim == 2
    return bool(is_float and len(weights) >= SMALLEST_TABLE)
