"""Int8 for an ONNX graph: weights once, activations by the ranges of each batch (dynamic) or calibrated ones.

    matrices      w ≈ s_column · (q − z_column), q in int8 (signed, z = 0) or in uint8 (unsigned)
    embeddings    w ≈ s_row · q, one scale for each word; words in four bits where asked for (word_table.py)
    activations   x ≈ s · (q − z), q in uint8; s and z of each batch, or fixed by texts (QuantizeLinear):
                  those that enter a product, not what it gives

Every graph is right on every processor. Activations are unsigned, since on x86 onnxruntime turns signed
ones into unsigned ones and leaves their declared type behind, which it then refuses. Signed weights get
scales with which no product overflows on x86 without VNNI (overflow.py). Which sign is faster depends on
the processor (signs.py).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bermo.ship.export.sensitivity import Content, content_of
from bermo.ship.export.word_table import DOMAIN, is_words, onnx_lookup
from bermo.ship.runtimes.forms import Sign, StoredWords
from bermo.ship.runtimes.overflow import encode, int8_matrices, safe_scales

Weights = npt.NDArray[np.float32]
MATRICES = ("MatMul", "Gemm")
SMALLEST_TABLE = 64
"""Rows from which a table of embeddings is worth its scales; positions and words are, segments are not."""
WEIGHT_TYPES: Mapping[Sign, str] = {"signed": "QInt8", "unsigned": "QUInt8"}
"""The names of onnxruntime's quantiser."""


def quantize_dynamic(
    graph: Path, out: Path, sign: Sign, whole: Collection[Content] = (), words: StoredWords = "int8"
) -> None:
    """Write a graph with int8 weights whose activations are quantised batch by batch; matrices of the content
    `whole` stay as they are.
    """
    from onnxruntime import quantization

    model = _with_small_tables(graph, words)
    quantization.quantize_dynamic(
        model,
        out,
        nodes_to_quantize=_layers(model, whole),
        per_channel=True,
        weight_type=quantization.QuantType[WEIGHT_TYPES[sign]],
        extra_options={"MatMulConstBOnly": True},
    )
    if sign == "signed":
        use_scales(graph, out, safe_scales)


def quantize_calibrated(
    graph: Path,
    out: Path,
    sign: Sign,
    batches: Sequence[Mapping[str, np.ndarray]],
    whole: Collection[Content] = (),
    words: StoredWords = "int8",
) -> None:
    """Write a graph with int8 weights and fixed ranges of activations, taken from these batches; matrices of
    the content `whole` stay as they are.
    """
    from onnxruntime import quantization

    class Reader(quantization.CalibrationDataReader):
        def __init__(self) -> None:
            self.rest = iter(batches)

        def get_next(self) -> Any:
            return next(self.rest, None)

    model = _with_small_tables(graph, words)
    quantization.quantize_static(
        model,
        out,
        Reader(),
        quant_format=quantization.QuantFormat.QDQ,
        nodes_to_quantize=_layers(model, whole),
        per_channel=True,
        activation_type=quantization.QuantType.QUInt8,
        weight_type=quantization.QuantType[WEIGHT_TYPES[sign]],
        # A bias in int32 would need the scale of its matrix, which is changed below. What a product gives is
        # already there in fp32: rounded too, it moves the logits of gte-small by 32 % in place of 7 %.
        extra_options={
            "MatMulConstBOnly": True,
            "QuantizeBias": False,
            "OpTypesToExcludeOutputQuantization": list(MATRICES),
        },
    )
    if sign == "signed":
        use_scales(graph, out, safe_scales)


def use_scales(graph: Path, quantized: Path, scales_of: Callable[[Weights], Weights]) -> None:
    """Code the matrices of a quantised graph again, with these scales for the columns of each."""
    import onnx
    from onnx import numpy_helper
    from onnxruntime.quantization.quant_utils import TENSOR_NAME_QUANT_SUFFIX

    weights = {item.name: item for item in onnx.load(str(graph)).graph.initializer}
    model = onnx.load(str(quantized))
    stored = {item.name: item for item in model.graph.initializer}
    for item in int8_matrices(model.graph):
        name = item.stored.name.removesuffix(TENSOR_NAME_QUANT_SUFFIX)
        matrix = item.by_summed_rows(numpy_helper.to_array(weights[name]))
        scales = scales_of(matrix)
        codes = np.ascontiguousarray(item.by_summed_rows(encode(matrix, scales)))
        item.stored.CopyFrom(numpy_helper.from_array(codes, item.stored.name))
        scale = stored[f"{name}_scale"]
        scale.CopyFrom(numpy_helper.from_array(scales.reshape(tuple(scale.dims)), scale.name))
    onnx.save(model, str(quantized))


def _layers(model: Any, whole: Collection[Content]) -> list[str]:
    """Name the products of activations with a stored matrix: not attention's, and not the mix's few
    weights; none with a matrix of the content `whole`.
    """
    from onnx import numpy_helper

    # A layer without heads or neurons is a product with nothing, whose range would be no number.
    matrices = [item for item in model.graph.initializer if len(item.dims) == 2 and all(item.dims)]
    stored = {
        item.name for item in matrices if not whole or content_of(numpy_helper.to_array(item)) not in whole
    }
    return [
        node.name
        for node in model.graph.node
        if node.op_type in MATRICES and node.input[1] in stored and node.input[0] not in stored
    ]


def _with_small_tables(graph: Path, words: StoredWords = "int8") -> Any:
    """Return the graph with every table of embeddings as int8 rows and one scale a row; that of words in four
    bits, if asked for.
    """
    import onnx
    from onnx import helper, numpy_helper

    model = onnx.load(str(graph))
    if words == "int4":
        model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    del model.graph.value_info[:]  # shapes from before constant folding, which a checker would refuse
    stored = {item.name: item for item in model.graph.initializer}
    nodes, replaced = [], set()
    for node in model.graph.node:
        table = stored.get(node.input[0]) if node.op_type == "Gather" else None
        weights = None if table is None else numpy_helper.to_array(table)
        if weights is None or not _is_table(weights) or (words == "fp32" and is_words(weights)):
            nodes.append(node)
            continue
        name = node.input[0]
        if words == "int4" and is_words(weights):
            tensors, lookup = onnx_lookup(name, weights, node)
            model.graph.initializer.extend(tensors if name not in replaced else ())
            nodes += lookup
            replaced.add(name)
            continue
        scales = np.maximum(np.abs(weights).max(axis=1, keepdims=True), 1e-12) / 127
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
