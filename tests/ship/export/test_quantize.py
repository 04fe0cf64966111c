"""Int8 graphs of both signs: their types agree, and onnxruntime runs them as it does on ARM and as it does
on x86.
"""

from pathlib import Path

import numpy as np
import onnx
import pytest

from bermo.ship.export import write
from bermo.ship.export.compare import relative_error
from bermo.ship.export.onnx import quiet
from bermo.ship.export.quantize import quantize_calibrated, quantize_dynamic
from bermo.ship.runtimes.forms import SIGNS, Sign
from bermo.ship.runtimes.torch_candidate import TorchCandidate
from tests import tiny
from tests.ship.folders import make_model

# What onnxruntime does with signed activations by default: on ARM it keeps them, on x86 it makes them
# unsigned.
INT8_ALLOWED = {"ARM": "1", "x86": "0"}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("quantize") / "graph.onnx"
    write.write_onnx(make_model(), tiny.make_batch("bert"), path)
    return path


@pytest.mark.parametrize("is_calibrated", [False, True])
@pytest.mark.parametrize("sign", SIGNS)
def test_an_int8_graph_of_either_sign_runs_on_either_kind_of_processor(
    sign: Sign, is_calibrated: bool, graph: Path, tmp_path: Path
) -> None:
    import onnxruntime

    inputs = {name: value.numpy() for name, value in tiny.make_batch("bert").items()}
    out = tmp_path / "int8.onnx"
    with quiet():
        if is_calibrated:
            quantize_calibrated(graph, out, sign, [inputs])
        else:
            quantize_dynamic(graph, out, sign)
    onnx.checker.check_model(str(out), full_check=True)
    onnx.shape_inference.infer_shapes(onnx.load(out), check_type=True, strict_mode=True)
    expected = TorchCandidate(make_model())(inputs)
    for allowed in INT8_ALLOWED.values():
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.add_session_config_entry("session.qdqisint8allowed", allowed)
        session = onnxruntime.InferenceSession(str(out), options, providers=["CPUExecutionProvider"])
        logits: list[np.ndarray] = session.run(None, {i.name: inputs[i.name] for i in session.get_inputs()})
        assert relative_error(logits, expected) < 0.25


def test_a_calibrated_product_hands_its_answer_on_unrounded(graph: Path, tmp_path: Path) -> None:
    inputs = {name: value.numpy() for name, value in tiny.make_batch("bert").items()}
    with quiet():
        quantize_calibrated(graph, tmp_path / "int8.onnx", "signed", [inputs])
    nodes = onnx.load(tmp_path / "int8.onnx").graph.node
    makers = {name: node.op_type for node in nodes for name in node.output}
    rounded = [node for node in nodes if node.op_type == "QuantizeLinear"]
    assert rounded
    assert {makers.get(node.input[0]) for node in rounded}.isdisjoint({"MatMul", "Gemm"})
