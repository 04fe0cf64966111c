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
from bermo.errors import BermoError
from bermo.models.encoder import BermoPreTrainedModel
from bermo.runs.trained import open_trained
from bermo.ship.export import write
from bermo.ship.export.compare import Reference, check_accepted, relative_error
from bermo.ship.export.onnx import known_domains, write_onnx
from bermo.ship.export.openvino_graph import avoid_wrong_kernels
from bermo.ship.export.quantize import quantize_dynamic
from bermo.ship.export.run import ExportSpec, export
from bermo.ship.runtimes.candidate import OnnxCandidate, OpenVinoCandidate, answer, inputs_of
from bermo.ship.runtimes.openvino import load_openvino, write_openvino
from bermo.ship.runtimes.texts import built_in
from bermo.ship.runtimes.torch_candidate import TorchCandidate
from tests import tiny
from tests.ship.folders import make_model, save

KINDS = {"roberta": "tagging", "distilbert": "span", "electra": "choice"}
"""Families that are tested with another head than a classifier's, so that every head is."""
MIXES = {"roberta": "across", "mpnet": "tensor", "electra": "within", "albert": "none"}
SAME_CODE = ("ernie", "xlm-roberta", "camembert")
"""Families whose code is another's, name by name; a sparse container is tested with them too."""
SHAPES = ((3, 7), (1, 2), (5, 19), (2, 31))


def batch_of(family: str, kind: str, texts: int, length: int) -> dict[str, torch.Tensor]:
    batch = tiny.make_batch(family, texts, length)
    if kind != "choice":
        return batch
    return {name: torch.stack([value, value.flip(0)], 1) for name, value in batch.items()}


def inputs_of_shape(
    candidate: OnnxCandidate | OpenVinoCandidate, family: str, kind: str, texts: int, length: int
) -> dict[str, np.ndarray]:
    """A batch as the candidate's graph takes it, with segments of zeros where it reads segments."""
    inputs = {name: value.numpy() for name, value in batch_of(family, kind, texts, length).items()}
    if "token_type_ids" in candidate.names:
        inputs["token_type_ids"] = np.zeros_like(inputs["input_ids"])
    return inputs


def check_all_shapes(
    model: BermoPreTrainedModel,
    candidate: OnnxCandidate | OpenVinoCandidate,
    family: str,
    kind: str,
) -> None:
    reference = TorchCandidate(model)
    for texts, length in SHAPES:
        # Rows of one token more than padding at least, whatever the length.
        inputs = inputs_of_shape(candidate, family, kind, min(texts, length), length)
        expected, answers = reference(inputs), candidate(inputs)
        assert [part.shape for part in answers] == [part.shape for part in expected]
        # Layers of two tokens are nearly alike in DeBERTa, and the norm over layers blows rounding up.
        bound = 1e-3 if family == "deberta-v2" else 1e-4
        assert relative_error(answers, expected) < bound, (texts, length)


def reference_of(model: BermoPreTrainedModel, kind: str, folder: Path) -> Reference:
    """The model's answers to the texts that `bermo export` compares on where the user gives none."""
    features = built_in(open_trained(save(model, folder, kind)))
    return Reference(features=features, on="texts", logits=answer(TorchCandidate(model), features, 16))


@pytest.mark.parametrize("kind", ["classification", "tagging", "span"])
def test_built_in_texts_have_many_lengths_some_over_19_tokens(kind: str, tmp_path: Path) -> None:
    opened = open_trained(save(make_model(kind=kind), tmp_path, kind))
    lengths = set(np.asarray(built_in(opened).lengths).tolist())
    assert len(lengths) >= 5
    assert max(lengths) > 19


@pytest.mark.parametrize("family", ["bert", "mpnet", "mobilebert"])
def test_an_export_to_openvino_is_right_or_refused(family: str, tmp_path: Path) -> None:
    model = make_model(family, mix=MIXES.get(family, "across"))
    folder, out = save(model, tmp_path / "model"), tmp_path / "out"
    refusal = None
    try:
        export(folder, out, ExportSpec(to="openvino"))
    except BermoError as error:
        refusal = str(error)
    if refusal is None:
        check_all_shapes(model, OpenVinoCandidate(out / "model.xml", 1), family, "classification")
    else:
        assert "Nothing was written" in refusal
        assert not out.exists()


@pytest.mark.parametrize("family", [name for name in tiny.FAMILIES if name not in SAME_CODE])
def test_onnx_and_openvino_answer_as_torch(family: str, tmp_path: Path) -> None:
    kind = KINDS.get(family, "classification")
    model = make_model(family, kind, mix=MIXES.get(family, "across"))
    graph = tmp_path / "model.onnx"
    reference = reference_of(model, kind, tmp_path / "model")
    example = inputs_of(reference.features, np.arange(3))
    write.write_onnx(model, {name: torch.from_numpy(value) for name, value in example.items()}, graph)
    check_all_shapes(model, OnnxCandidate(graph, 1), family, kind)
    avoid_wrong_kernels(graph)
    write_openvino(graph, tmp_path)
    # OpenVINO answers some families wrongly on some processors: where it does, the export's own check must
    # refuse.
    check_accepted(reference.compare(OnnxCandidate(graph, 1), "fp32"), "onnx", max_loss=0)
    openvino = OpenVinoCandidate(tmp_path / "model.xml", 1)
    compared = reference.compare(openvino, "fp32")
    if compared.relative_error <= compared.tolerance:
        check_all_shapes(model, openvino, family, kind)
    else:
        with pytest.raises(BermoError, match="Nothing was written"):
            check_accepted(compared, "openvino", max_loss=0)
        with pytest.raises(AssertionError, match="relative_error"):
            check_all_shapes(model, openvino, family, kind)
    quantize_dynamic(graph, tmp_path / "int8.onnx", "signed")
    int8 = OnnxCandidate(tmp_path / "int8.onnx", 1)
    inputs = inputs_of_shape(int8, family, kind, 3, 7)
    assert relative_error(int8(inputs), TorchCandidate(model)(inputs)) < 0.25


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
    # Answers of a model that knows nothing: their last digits decide nothing.
    small = [[row / 100 for row in rows] for rows in (after, before)]
    assert relative_error(*small) == pytest.approx(0.1)
    assert relative_error(*small, least=0.1) == pytest.approx(0.005 / 0.2)


def test_domains_of_torchs_functions_are_known_without_their_source() -> None:
    from onnxscript._framework_apis.torch_2_8 import get_torchlib_ops

    with known_domains():
        known = [(op.qualified_name, op.name, op.domain) for op in get_torchlib_ops()]
        assert not hasattr(get_torchlib_ops()[0].function.function_ir, "graph"), "nothing was parsed"
    assert known == [(op.qualified_name, op.name, op.domain) for op in get_torchlib_ops()]
    assert len(known) > 400


def test_another_onnxscript_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    from onnxscript._internal import values

    parse = values.TracedOnnxFunction.function_ir
    monkeypatch.delitem(sys.modules, "onnxscript._internal.values")
    with known_domains():
        assert values.TracedOnnxFunction.function_ir is parse
