"""The table of words in four bits, where int8 takes eight: neighbouring units share a scale and a zero.

    w ≈ s_group · (q − z_group),   q and z in 0 … 15, s in half precision, groups of 32 units of a word

A group's range is narrowed as long as its squared error falls. onnxruntime reads such a table by an operator
of its own, GatherBlockQuantized; OpenVINO has constants of four bits.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import nn

from bermo.errors import BermoError
from bermo.ship.runtimes.openvino import load_openvino

GROUP = 32
MOST = 15
SMALLEST_WORDS = 1024
"""Rows from which a table is one of words; there are fewer positions, as a rule, and they stay in int8."""
NARROWED = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7)
ROWS_AT_ONCE = 8192
"""Rows that are coded at once, so that a large table needs little memory."""
DOMAIN = "com.microsoft"
WordTables = Mapping[str, npt.NDArray[np.float32]]
"""Tables of words by the name of the node that reads each."""


@dataclass(frozen=True, kw_only=True)
class FourBits:
    """The numbers of a table: codes (rows, groups, 32), zeros and scales (rows, groups, 1)."""

    codes: npt.NDArray[np.uint8]
    zeros: npt.NDArray[np.uint8]
    scales: npt.NDArray[np.float16]

    def decode(self) -> npt.NDArray[np.float32]:
        """Return the table as it is computed with."""
        values = (self.codes.astype(np.float32) - self.zeros) * self.scales.astype(np.float32)
        return values.reshape(len(values), -1)


def encode(table: npt.NDArray[np.float32]) -> FourBits:
    """Code a table; of the ranges that are tried, each group has the one with the smallest squared error."""
    parts = [_encode(table[start : start + ROWS_AT_ONCE]) for start in range(0, len(table), ROWS_AT_ONCE)]
    codes, zeros, scales = (np.concatenate(same) for same in zip(*parts, strict=True))
    return FourBits(
        codes=codes.astype(np.uint8), zeros=zeros.astype(np.uint8), scales=scales.astype(np.float16)
    )


def _encode(table: npt.NDArray[np.float32]) -> tuple[np.ndarray, ...]:
    groups = table.reshape(len(table), -1, GROUP)
    # Zero is a code, so that a range that lies on one side of it is widened to it.
    low, high = np.minimum(groups.min(-1, keepdims=True), 0), np.maximum(groups.max(-1, keepdims=True), 0)
    least = np.full_like(low, np.inf)
    best: tuple[np.ndarray, ...] = (np.zeros_like(groups), low, low)
    for share in NARROWED:
        scales = np.maximum((high - low) * share / MOST, np.finfo(np.float16).tiny).astype(np.float16)
        steps = scales.astype(np.float32)
        zeros = np.clip(np.rint(-low * share / steps), 0, MOST)
        codes = np.clip(np.rint(groups / steps) + zeros, 0, MOST)
        error = np.square((codes - zeros) * steps - groups).sum(-1, keepdims=True)
        tried = (codes, zeros, scales)
        best = tuple(np.where(error < least, new, old) for new, old in zip(tried, best, strict=True))
        least = np.minimum(error, least)
    return best


def is_words(table: np.ndarray) -> bool:
    """Tell whether four bits fit a table that is read by row."""
    is_float = table.dtype == np.float32 and table.ndim == 2
    return bool(is_float and len(table) >= SMALLEST_WORDS and table.shape[1] % GROUP == 0)


def pack(values: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Put two numbers into each byte, the first one into its lower half."""
    flat = np.zeros(2 * -(-values.size // 2), dtype=np.uint8)
    flat[: values.size] = values.reshape(-1)
    return (flat[0::2] | (flat[1::2] << 4)).astype(np.uint8)


def onnx_lookup(name: str, table: npt.NDArray[np.float32], node: Any) -> tuple[list[Any], list[Any]]:
    """Return the stored tensors of a table and the nodes that read it in the place of a Gather."""
    from onnx import TensorProto, helper, numpy_helper

    coded, (rows, width) = encode(table), table.shape
    parts = (("codes", coded.codes, width), ("zeros", coded.zeros, width // GROUP))
    stored = [
        helper.make_tensor(
            f"{name}.{part}", TensorProto.UINT4, (rows, columns), pack(values).tobytes(), raw=True
        )
        for part, values, columns in parts
    ]
    stored.append(numpy_helper.from_array(coded.scales.reshape(rows, -1), f"{name}.scales"))
    out = node.output[0]
    inputs = [f"{name}.codes", node.input[1], f"{name}.scales", f"{name}.zeros"]
    return stored, [
        helper.make_node("GatherBlockQuantized", inputs, [f"{out}.half"], domain=DOMAIN, block_size=GROUP),
        helper.make_node("Cast", [f"{out}.half"], [out], to=TensorProto.FLOAT),
    ]


def word_tables(graph: Path) -> WordTables:
    """Return the tables of words of an fp32 graph; a graph without any is refused."""
    import onnx
    from onnx import numpy_helper

    model = onnx.load(str(graph))
    stored = {item.name: item for item in model.graph.initializer}
    read = {
        n.name: stored[n.input[0]] for n in model.graph.node if n.op_type == "Gather" and n.input[0] in stored
    }
    tables = {name: numpy_helper.to_array(item) for name, item in read.items()}
    found = {name: table for name, table in tables.items() if is_words(table)}
    _check_any(found)
    return found


def check_words(model: nn.Module) -> None:
    """Refuse a model without a table of words that fits into four bits, before it is traced."""
    tables = (part.weight for part in model.modules() if isinstance(part, nn.Embedding))
    _check_any([table for table in tables if is_words(table.detach().float().cpu().numpy())])


def _check_any(tables: Collection[Any]) -> None:
    if not tables:
        raise BermoError(
            f"The model has no table of {SMALLEST_WORDS:,} words or more whose width is a multiple of"
            f" {GROUP}, so that none fits into four bits. Leave --words out."
        )


def use_in_openvino_(model: Any, tables: WordTables) -> None:
    """Let the nodes of these names read their tables in four bits, in a model of OpenVINO, in place."""
    openvino = load_openvino()
    from openvino import opset13

    def constant(values: npt.NDArray[np.uint8]) -> Any:
        packed = pack(values)
        tensor = openvino.Tensor(packed, openvino.Shape(list(values.shape)), openvino.Type.u4)
        # The tensor does not hold its numbers, so that they are copied while `packed` does.
        return opset13.convert(opset13.constant(tensor, shared_memory=False), "f16")

    for node in model.get_ordered_ops() if tables else ():
        table = tables.get(node.get_friendly_name()) if node.get_type_name() == "Gather" else None
        if table is None:
            continue
        coded = encode(table)
        offset = opset13.subtract(constant(coded.codes), constant(coded.zeros))
        values = opset13.multiply(offset, opset13.constant(coded.scales, shared_memory=False))
        shape = opset13.constant(np.array(table.shape, dtype=np.int64))
        rows = opset13.convert(opset13.reshape(values, shape, special_zero=False), "f32")
        node.input(0).replace_source_output(rows.output(0))
    model.validate_nodes_and_infer_types()
