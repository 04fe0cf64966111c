"""ONNX and OpenVINO answer as torch does: every family, every kind of head, any batch and length."""

import importlib
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from bermo.encoders.sites import layers_of
from bermo.models.encoder import BermoPreTrainedModel
from bermo.ship.export.compare import relative_error
from bermo.ship.export.onnx import write_onnx
from bermo.ship.export.quantize import quantize_dynamic
from bermo.ship.runtimes.candidate import OnnxCandidate, OpenVinoCandidate, TorchCandidate
from bermo.ship.runtimes.openvino import load_openvino, write_openvino
from tests import tiny
from tests.ship.folders import make_model

KINDS = {"roberta": "tagging", "distilbert": "span", "electra": "choice"}
"""Families that are tested with another head than a classifier's, so that every head is."""
MIXES = {"roberta": "across", "mpnet": "tensor", "electra": "within", "albert": "none"}
SAME_CODE = ("ernie", "xlm-roberta", "camembert")
"""Families whose code is another's, name by name; a sparse container is tested with them too."""
OPENVINO_DIFFERS = ("mpnet", "deberta", "mobilebert")
"""OpenVINO 2026.4 answers otherwise here, from the same graph that onnxruntime reads rightly: by 5 % from 19 tokens on (MPNet), by
a quarter and more at any length (DeBERTa, MobileBERT); why was not found. `bermo export` compares and refuses."""
SHAPES = ((3, 7), (1, 2), (5, 19))


def batch_of(family: str, kind: str, texts: int, length: int) -> dict[str, torch.Tensor]:
    batch = tiny.make_batch(family, texts, length)
    if kind != "choice":
        return batch
    return {name: torch.stack([value, value.flip(0)], 1) for name, value in batch.items()}


def check_all_shapes(
    model: BermoPreTrainedModel,
    candidate: OnnxCandidate | OpenVinoCandidate,
    family: str,
    kind: str,
) -> None:
    reference = TorchCandidate(model)
    for texts, length in SHAPES:
        # Rows of one token more than padding at least, whatever the length.
        batch = batch_of(family, kind, min(texts, length), length)
        inputs = {name: value.numpy() for name, value in batch.items()}
        expected, found = reference(inputs), candidate(inputs)
        assert [part.shape for part in found] == [part.shape for part in expected]
        # Layers of two tokens are nearly alike in DeBERTa, and the norm over layers blows rounding up.
        bound = 1e-3 if family == "deberta-v2" else 1e-4
        assert relative_error(found, expected) < bound, (texts, length)


@pytest.mark.parametrize("family", [name for name in tiny.FAMILIES if name not in SAME_CODE])
def test_onnx_and_openvino_answer_as_torch(family: str, tmp_path: Path) -> None:
    kind = KINDS.get(family, "classification")
    model = make_model(family, kind, mix=MIXES.get(family, "across"))
    graph = tmp_path / "model.onnx"
    write_onnx(model, batch_of(family, kind, 3, 7), graph)
    check_all_shapes(model, OnnxCandidate(graph, 1), family, kind)
    write_openvino(graph, tmp_path)
    openvino = OpenVinoCandidate(tmp_path / "model.xml", 1)
    if family not in OPENVINO_DIFFERS:
        check_all_shapes(model, openvino, family, kind)
    else:
        with pytest.raises(AssertionError, match="relative_error"):
            check_all_shapes(model, openvino, family, kind)
    quantize_dynamic(graph, tmp_path / "int8.onnx", "signed")
    inputs = {n: v.numpy() for n, v in batch_of(family, kind, 3, 7).items()}
    near = OnnxCandidate(tmp_path / "int8.onnx", 1)(inputs)
    assert relative_error(near, TorchCandidate(model)(inputs)) < 0.25


def test_openvino_reports_to_nobody() -> None:
    load_openvino()
    converting = importlib.import_module("openvino.tools.ovc.convert_impl")
    assert converting.tm.__name__ == "openvino.tools.ovc.telemetry_stub"
    assert sys.modules["openvino_telemetry"] is None


@torch.no_grad()
def test_a_layer_that_lost_all_its_neurons_survives_int8(tmp_path: Path) -> None:
    model = make_model()
    layer = layers_of(model)[0]
    with warnings.catch_warnings(action="ignore"):  # torch says that there is nothing to draw
        layer.intermediate.dense = nn.Linear(16, 0)
        layer.output.dense = nn.Linear(0, 16)
    graph, batch = tmp_path / "model.onnx", tiny.make_batch("bert")
    write_onnx(model, batch, graph)
    quantize_dynamic(graph, tmp_path / "int8.onnx", "signed")
    inputs = {name: value.numpy() for name, value in batch.items()}
    found = OnnxCandidate(tmp_path / "int8.onnx", 1)(inputs)
    assert relative_error(found, TorchCandidate(model)(inputs)) < 0.25


def test_the_graph_holds_running_sums_and_no_stack_of_layers(tmp_path: Path) -> None:
    import onnx

    model = make_model("bert", "tagging", layers=2)
    write_onnx(model, tiny.make_batch("bert"), tmp_path / "model.onnx")
    inferred = onnx.shape_inference.infer_shapes(onnx.load(tmp_path / "model.onnx"))
    sizes = [
        [d.dim_value or d.dim_param for d in value.type.tensor_type.shape.dim]
        for value in inferred.graph.value_info
    ]
    stacked = [dims for dims in sizes if len(dims) == 4 and dims[0] == 3 and dims[-1] == 16]
    assert sizes
    assert not stacked


def test_a_float_mask_changes_nothing_for_xlnet() -> None:
    model = make_model("xlnet")
    batch = tiny.make_batch("xlnet")
    direct = model.core.backbone(**batch, use_mems=False).last_hidden_state
    from bermo.encoders.backbone import make_inputs

    inputs = make_inputs(model.core.backbone, *batch.values(), None, None)
    ours = model.core.backbone(**inputs).last_hidden_state
    real = batch["attention_mask"].bool()
    assert torch.equal(ours[real], direct[real])


def test_relative_error_is_that_of_the_norms() -> None:
    before = [np.array([3.0, 4.0]), np.array([0.0, 0.0])]
    after = [np.array([3.0, 4.5]), np.array([0.0, 0.0])]
    assert relative_error(after, before) == pytest.approx(0.1)
