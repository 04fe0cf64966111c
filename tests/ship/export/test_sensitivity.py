"""The matrices that int8 hurts most are found, and stay in fp32 in the exported graph."""

from pathlib import Path

import onnx
import pytest
import torch

from bermo.cli import main
from bermo.models.encoder import BermoPreTrainedModel
from bermo.models.quantized import int8_copy
from bermo.nn.quantizers import quantize_batch, quantize_matrix
from bermo.runs.trained import open_trained
from bermo.ship.export.compare import relative_error
from bermo.ship.export.run import export
from bermo.ship.export.sensitivity import measure, most_sensitive
from bermo.ship.export.spec import ExportSpec
from bermo.ship.runtimes.candidate import inputs_of
from bermo.ship.runtimes.texts import built_in
from tests.ship.folders import make_model, save

WORST = "bermo.backbone.encoder.layer.0.intermediate.dense"


def with_outlier() -> BermoPreTrainedModel:
    """One unit of a norm is 300 times as large and read 300 times as weakly: int8 lacks codes for others."""
    model = make_model(pooling="mean")
    with torch.no_grad():
        layer = model.bermo.backbone.encoder.layer[0]
        norm = layer.attention.output.LayerNorm
        norm.weight[3], norm.bias[3] = 300, 300
        layer.intermediate.dense.weight[:, 3] /= 300
        layer.output.LayerNorm.weight[3] = 0
    return model


def test_the_error_of_a_matrix_is_that_of_a_model_in_which_it_alone_is_rounded(tmp_path: Path) -> None:
    model = make_model(pooling="mean")
    features = built_in(open_trained(save(model, tmp_path / "model")))
    known = {item.name: item.error for item in measure(model, features)}
    batch = {name: torch.from_numpy(value) for name, value in inputs_of(features, range(16)).items()}
    assert len(known) == 6, "the head stays in fp32 anyway"
    rounded = make_model(pooling="mean")
    dense = rounded.get_submodule(WORST)
    with torch.no_grad():
        dense.weight.copy_(quantize_matrix(dense.weight))
        dense.register_forward_pre_hook(lambda module, args: (quantize_batch(args[0]),))
        off = relative_error([rounded(**batch).logits.numpy()], [model(**batch).logits.numpy()])
    assert known[WORST] == pytest.approx(off, rel=0.5), "other rows, the same rounding"
    assert max(known.values()) < relative_error(
        [int8_copy(model)(**batch).logits.detach().numpy()], [model(**batch).logits.detach().numpy()]
    )


def test_the_worst_matrix_stays_in_fp32_and_the_export_is_closer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, traced = save(with_outlier(), tmp_path / "model"), tmp_path / "traced.onnx"
    opened = open_trained(run)
    worst = most_sensitive(opened.load_model(), built_in(opened), 1)
    assert [item.name for item in worst] == [WORST]
    errors = {}
    for count in (0, 1):
        spec = ExportSpec(to="onnx-int8-signed", keep_fp32=count)
        made = export(run, tmp_path / str(count), spec, traced=traced)
        errors[count] = made.compared.relative_error
        graph = onnx.load(str(tmp_path / str(count) / "model.onnx")).graph
        assert sum(node.op_type == "MatMulInteger" for node in graph.node) == 6 - count
        assert list(made.details.get("fp32", {})) == [WORST][:count]
    assert errors[1] < 0.5 * errors[0]
    assert main(["export", str(run), "--to", "onnx", "--keep-fp32", "1"]) == 2
    assert "--keep-fp32 means nothing to --to onnx" in capsys.readouterr().err
