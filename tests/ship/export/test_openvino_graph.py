"""Casts written for OpenVINO's ARM plug-in: the same numbers to the bit in onnxruntime, and right in
OpenVINO; and a disk that is full when its model is written.
"""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from bermo.errors import BermoError
from bermo.ship.export.openvino_graph import avoid_wrong_kernels_
from bermo.ship.runtimes.candidate import OnnxCandidate, OpenVinoCandidate
from bermo.ship.runtimes.openvino import load_openvino, save_openvino, write_openvino


def masked_graph() -> Any:
    """y = x · float(unsqueeze(mask)), as models multiply by the mask of padding."""
    nodes = [
        helper.make_node("Unsqueeze", ["mask", "axis"], ["column"], "column"),
        helper.make_node("Cast", ["column"], ["float"], "float", to=TensorProto.FLOAT),
        helper.make_node("Mul", ["x", "float"], ["y"], "y"),
    ]
    inputs = [("x", TensorProto.FLOAT, ["B", "T", 8]), ("mask", TensorProto.INT64, ["B", "T"])]
    return graph_of(nodes, inputs, TensorProto.FLOAT, ["B", "T", 8])


def bucket_graph() -> Any:
    """y = int(x · 1.5), which drops the fraction."""
    nodes = [
        helper.make_node("Mul", ["x", "factor"], ["scaled"], "scaled"),
        helper.make_node("Cast", ["scaled"], ["y"], "y", to=TensorProto.INT64),
    ]
    return graph_of(nodes, [("x", TensorProto.FLOAT, ["B", "T"])], TensorProto.INT64, ["B", "T"])


def graph_of(nodes: list[Any], inputs: list[Any], kind: int, shape: list[Any]) -> Any:
    stored = {"axis": np.array([2]), "factor": np.array(1.5, dtype=np.float32)}
    used = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(*item) for item in inputs],
        [helper.make_tensor_value_info("y", kind, shape)],
        [numpy_helper.from_array(value, name) for name, value in stored.items() if name in used],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)


def batches() -> dict[str, dict[str, np.ndarray]]:
    draw = np.random.default_rng(0)
    values = draw.normal(scale=3, size=(3, 7, 8)).astype(np.float32)
    return {
        "masked": {"x": values, "mask": draw.integers(0, 2, (3, 7))},
        "bucket": {
            "x": np.concatenate([values[0], [[-2.0, -0.5, -0.0, 0.0, 0.4, 0.66, 1.0, 7.9]]], dtype="f4")
        },
    }


@pytest.mark.parametrize(("name", "make"), [("masked", masked_graph), ("bucket", bucket_graph)])
def test_a_rewritten_cast_says_the_same_in_both_runtimes(name: str, make: Any, tmp_path: Path) -> None:
    batch, model = batches()[name], make()
    onnx.save(model, str(tmp_path / "before.onnx"))
    before = OnnxCandidate(tmp_path / "before.onnx", 1)(batch)
    kinds = [node.op_type for node in model.graph.node]
    avoid_wrong_kernels_(model)
    assert [node.op_type for node in model.graph.node] != kinds
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, str(tmp_path / "after.onnx"))
    after = OnnxCandidate(tmp_path / "after.onnx", 1)(batch)
    assert np.array_equal(before[0], after[0])
    write_openvino(tmp_path / "after.onnx", tmp_path)
    assert np.array_equal(OpenVinoCandidate(tmp_path / "model.xml", 1)(batch)[0], after[0])


def test_casts_between_other_types_are_left_alone() -> None:
    nodes = [helper.make_node("Cast", ["x"], ["y"], "y", to=TensorProto.FLOAT)]
    model = graph_of(nodes, [("x", TensorProto.INT64, ["B"])], TensorProto.FLOAT, ["B"])
    before = model.SerializeToString()
    avoid_wrong_kernels_(model)
    assert model.SerializeToString() == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
def test_a_full_disk_is_told_in_a_sentence(tmp_path: Path) -> None:
    openvino = load_openvino()
    row = openvino.opset1.parameter([1, 4], np.float32)
    model = openvino.Model([openvino.opset1.relu(row)], [row], "relu")
    (tmp_path / "model.xml").symlink_to("/dev/full")

    with pytest.raises(BermoError, match="OpenVINO could not write its model into"):
        save_openvino(model, tmp_path)
