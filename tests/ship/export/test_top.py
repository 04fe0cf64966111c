"""A top layer that is computed for the read token alone answers as the whole one: in torch, ONNX and
OpenVINO.
"""

from pathlib import Path

import pytest
import torch

from bermo.encoders.structure import groups_of
from bermo.models.encoder import BermoPreTrainedModel
from bermo.models.top import can_cut_top
from bermo.ship.export.compare import relative_error
from bermo.ship.export.onnx import write_onnx
from bermo.ship.export.quantize import quantize_dynamic
from bermo.ship.export.rewrite import quicken
from bermo.ship.export.top import ReadAnswers
from bermo.ship.runtimes.candidate import OnnxCandidate, OpenVinoCandidate
from bermo.ship.runtimes.openvino import write_openvino
from bermo.ship.runtimes.torch_candidate import TorchCandidate
from bermo.ship.shrink.delete import shrink
from tests import tiny
from tests.ship.folders import make_model

CUT = ("bert", "ernie", "roberta", "xlm-roberta", "camembert", "electra")


@pytest.mark.parametrize("mix", ["none", "across", "within", "second-to-last"])
@pytest.mark.parametrize("family", CUT)
@torch.no_grad()
def test_the_cut_layer_answers_as_the_whole_one(family: str, mix: str) -> None:
    model = make_model(family, layers=2, mix=mix)
    batch = tiny.make_batch(family)
    assert can_cut_top(model)
    assert torch.allclose(ReadAnswers(model)(**batch)[0], model(**batch).logits, atol=1e-6)


@pytest.mark.parametrize("pooling", ["first", "last"])
@torch.no_grad()
def test_the_token_that_is_read_may_stand_anywhere(pooling: str) -> None:
    model = make_model("bert", layers=2, mix="none", pooling=pooling)
    ids = torch.randint(5, 30, (3, 6))
    mask = torch.tensor([[1, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1], [1] * 6])
    whole = model(input_ids=ids, attention_mask=mask).logits
    assert torch.allclose(ReadAnswers(model)(ids, mask)[0], whole, atol=1e-6)


def shrunk(heads: int, neurons: int) -> BermoPreTrainedModel:
    """Return a model whose top layer has lost all but some heads and neurons for real."""
    model = make_model("bert", layers=2, mix="none")
    for group in groups_of(model):
        kept = heads if group.kind == "heads" else neurons
        if group.layer == 2:
            with torch.no_grad():
                group.zero_units_(torch.arange(group.count) >= kept)
    return shrink(model)


@pytest.mark.parametrize("heads", [0, 1])
@torch.no_grad()
def test_a_shrunk_top_layer_is_cut_as_well(heads: int) -> None:
    model = shrunk(heads, neurons=3)
    batch = tiny.make_batch("bert")
    whole = model(**batch).logits
    assert torch.allclose(ReadAnswers(model)(**batch)[0], whole, atol=1e-6)
    assert torch.equal(model(**batch).logits, whole)  # nothing of the cut is left behind


def test_graphs_of_a_cut_layer_answer_as_torch_at_any_shape(tmp_path: Path) -> None:
    import onnx

    model = make_model("roberta", layers=1, mix="none", pooling="last")
    graph = tmp_path / "model.onnx"
    write_onnx(model, tiny.make_batch("roberta", 3, 7), graph)
    write_openvino(graph, tmp_path)
    runtimes = OnnxCandidate(graph, 1), OpenVinoCandidate(tmp_path / "model.xml", 1)
    for texts, length in ((3, 7), (1, 2), (5, 19)):
        batch = tiny.make_batch("roberta", min(texts, length), length)
        inputs = {name: value.numpy() for name, value in batch.items()}
        expected = TorchCandidate(model)(inputs)
        assert all(relative_error(ask(inputs), expected) < 1e-4 for ask in runtimes)
    inferred = onnx.shape_inference.infer_shapes(onnx.load(graph))
    size = model.config.backbone.intermediate_size
    shapes = [
        [dim.dim_value or dim.dim_param for dim in value.type.tensor_type.shape.dim]
        for value in inferred.graph.value_info
    ]
    inner = [dims for dims in shapes if len(dims) == 3 and dims[-1] == size]
    assert inner
    assert all(dims[1] == 1 for dims in inner)  # no feed-forward of all tokens


def test_a_top_layer_without_heads_goes_through_onnx_and_int8(tmp_path: Path) -> None:
    model = shrunk(heads=0, neurons=0)
    batch = tiny.make_batch("bert", 3, 7)
    inputs = {name: value.numpy() for name, value in batch.items()}
    expected = TorchCandidate(model)(inputs)
    graph, small = tmp_path / "model.onnx", tmp_path / "int8.onnx"
    write_onnx(model, batch, graph)
    assert relative_error(OnnxCandidate(graph, 1)(inputs), expected) < 1e-4
    quicken(graph)
    quantize_dynamic(graph, small, "signed")
    assert relative_error(OnnxCandidate(small, 1)(inputs), expected) < 0.25


def test_what_reads_all_tokens_or_is_built_otherwise_is_left_whole() -> None:
    assert not can_cut_top(make_model("bert", "tagging"))
    assert not can_cut_top(make_model("bert", pooling="mean"))
    assert not can_cut_top(make_model("bert", mix="tensor"))
    assert not can_cut_top(make_model("distilbert"))
    assert not can_cut_top(make_model("modernbert"))
