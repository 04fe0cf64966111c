"""A model that was trained with fake quantisers is exported to the int8 graph that it was trained for."""

from pathlib import Path

import pytest

from bermo.models.quantized import MARK
from bermo.ship.export.run import export
from bermo.ship.export.spec import ExportSpec
from tests.ship.folders import make_model, save


@pytest.mark.parametrize("pooling", ["first", "mean"])
def test_fake_int8_answers_as_the_exported_graph_far_closer_than_fp32_does(
    pooling: str, tmp_path: Path
) -> None:
    errors = {}
    for mark in (None, "int8"):
        model = make_model(pooling=pooling)
        if mark is not None:
            setattr(model.config, MARK, mark)
        run = save(model, tmp_path / str(mark))
        spec = ExportSpec(to="onnx-int8" if mark else "onnx-int8-signed")
        made = export(run, tmp_path / f"{mark}-int8", spec, traced=tmp_path / "traced.onnx")
        errors[mark] = made.compared.relative_error
        assert made.details["tried"].keys() == {"signed"}
    # What is left is the graph's faster GELU.
    assert errors["int8"] < errors[None] / 5
    assert errors["int8"] < 2e-3
