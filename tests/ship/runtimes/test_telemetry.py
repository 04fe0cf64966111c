"""onnxruntime keeps no number of this machine and reports nothing to its maker."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("onnxruntime")
# The name "bermo" tells the package that this is its command, so that importing it imports nothing heavy.
PROGRAM = """
import sys
sys.argv[0] = "bermo"
import bermo
import numpy, onnxruntime
from onnx import TensorProto, helper
value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", value[:1], value[1:])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
session.run(None, {"x": numpy.ones(2, numpy.float32)})
"""


def test_running_a_graph_leaves_nothing_in_the_users_folders(tmp_path: Path) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("ORT_", "XDG_"))}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=clean | {"HOME": str(tmp_path)}, check=False)
    assert done.returncode == 0
    assert not list(tmp_path.rglob("*"))


def test_importing_bermo_turns_it_off_before_anything_imports_onnxruntime() -> None:
    assert os.environ["ORT_DISABLE_TELEMETRY"] == "1"
