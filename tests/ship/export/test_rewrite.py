"""Rewritten graphs: norms give the same numbers, GELU by tanh stays within its bound, other nodes are left
alone.
"""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from bermo.ship.export.rewrite import quicken_, store_transposed_

WIDTH = 6


def graph_of(nodes: list[Any], opset: int = 23, **constants: np.ndarray) -> Any:
    shape = ["texts", "tokens", WIDTH]
    inside = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    outside = helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)
    stored = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "graph", [inside], [outside], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def answer_of(model: Any, hidden: np.ndarray) -> np.ndarray:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    found: np.ndarray = session.run(None, {"x": hidden})[0]
    return found


def norm(**attributes: Any) -> Any:
    return helper.make_node("LayerNormalization", ["x", "scale", "bias"], ["y"], **attributes)


@pytest.fixture
def constants() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    return {n: draw.normal(size=WIDTH).astype(np.float32) for n in ("scale", "bias")}


@pytest.fixture
def hidden() -> np.ndarray:
    return np.random.default_rng(1).normal(3, 2, size=(2, 4, WIDTH)).astype(np.float32)


@pytest.mark.parametrize("attributes", [{"epsilon": 0.3, "axis": -1}, {}])
def test_a_norm_by_rms_gives_the_same_numbers(
    attributes: dict[str, Any], constants: dict[str, np.ndarray], hidden: np.ndarray
) -> None:
    model = graph_of([norm(**attributes)], **constants)
    expected = answer_of(model, hidden)
    quicken_(model)
    onnx.checker.check_model(model)
    assert [node.op_type for node in model.graph.node].count("RMSNormalization") == 1
    assert np.abs(answer_of(model, hidden) - expected).max() < 1e-5


@pytest.mark.parametrize(("opset", "axis"), [(18, -1), (23, 1)])
def test_other_norms_and_older_opsets_are_left_alone(
    opset: int, axis: int, constants: dict[str, np.ndarray]
) -> None:
    model = graph_of([norm(axis=axis)], opset, **constants)
    before = model.SerializeToString()
    quicken_(model)
    assert model.SerializeToString() == before


def test_gelu_by_tanh_is_within_its_bound() -> None:
    model = graph_of([helper.make_node("Gelu", ["x"], ["y"])])
    hidden = np.linspace(-8, 8, 4 * WIDTH * 50, dtype=np.float32).reshape(1, -1, WIDTH)
    exact = answer_of(model, hidden)
    quicken_(model)
    distance = np.abs(answer_of(model, hidden) - exact).max()
    assert 0 < distance < 5e-4


def test_a_matrix_that_two_products_share_is_stored_as_they_read_it() -> None:
    import onnxruntime

    weight = np.arange(6, dtype=np.float32).reshape(2, 3)
    table = np.ones((2, 3), dtype=np.float32)
    nodes = [
        helper.make_node("Transpose", ["weight"], ["first"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "first"], ["y"]),
        helper.make_node("Transpose", ["weight"], ["second"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "second"], ["z"]),
        helper.make_node("Transpose", ["table"], ["turned"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "turned"], ["u"]),
        helper.make_node("Add", ["x", "table"], ["v"]),
    ]
    values = {name: helper.make_tensor_value_info(name, 1, None) for name in "xyzuv"}
    graph = helper.make_graph(
        nodes,
        "shared",
        [helper.make_tensor_value_info("x", 1, [2, 3])],
        [values[name] for name in "yzuv"],
        [numpy_helper.from_array(weight, "weight"), numpy_helper.from_array(table, "table")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    x = np.array([[1, 2, 3], [4, 5, 6]], dtype=np.float32)
    before = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    store_transposed_(model)
    after = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
    kinds = [node.op_type for node in model.graph.node]
    assert kinds == ["MatMul", "MatMul", "Transpose", "MatMul", "Add"], "another node reads the table too"
    assert model.graph.node[0].input[1] == model.graph.node[1].input[1] == "weight"
