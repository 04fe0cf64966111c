"""The sparse container: exact on load for every family, small, and refused where it makes no sense."""

from pathlib import Path

import pytest
import torch

import bermo
from bermo.errors import BermoError
from bermo.runs.trained import open_trained
from bermo.ship.export.run import ExportSpec, export
from bermo.ship.runtimes.sparse import load_sparse, write_sparse
from tests import tiny
from tests.ship.folders import make_model, prune_randomly_, save


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_a_lossless_container_gives_the_same_logits_to_the_bit(family: str, tmp_path: Path) -> None:
    model = make_model(family, layers=2)
    prune_randomly_(model, 0.3)
    folder = save(model, tmp_path / "model")
    write_sparse(model, tmp_path / "model" / "sparse.safetensors", "fp32")
    again = load_sparse(folder)
    batch = tiny.make_batch(family)
    with torch.no_grad():
        assert torch.equal(again(**batch).logits, model(**batch).logits)


@pytest.mark.parametrize("values", ["fp16", "int8"])
def test_a_container_keeps_every_zero_and_loads_what_it_stored(values: str, tmp_path: Path) -> None:
    model = make_model(layers=2)
    prune_randomly_(model, 0.1)
    out = tmp_path / "sparse"
    exported = export(save(model, tmp_path / "model"), out, ExportSpec(to="sparse", values=values))
    again = dict(load_sparse(out).named_parameters())
    for name, weight in model.named_parameters():
        assert (again[name][weight == 0] == 0).all(), name
        tolerance = 1e-2 if values == "int8" else 1e-3
        assert torch.allclose(again[name], weight, atol=tolerance, rtol=tolerance)
    assert exported.details["encoder"] < exported.details["encoder_dense"] / 4
    assert open_trained(out).precision == values
    assert bermo.load_sparse is load_sparse


def test_a_model_that_was_never_pruned_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    folder = save(make_model(), tmp_path / "model")
    with pytest.raises(BermoError, match=r"never pruned.*--prune movement"):
        export(folder, tmp_path / "out", ExportSpec(to="sparse"))
    assert sorted(item.name for item in tmp_path.iterdir()) == ["model"]


def test_a_broken_container_is_an_error(tmp_path: Path) -> None:
    model = make_model()
    prune_randomly_(model, 0.1)
    export(save(model, tmp_path / "model"), tmp_path / "out", ExportSpec(to="sparse"))
    file = tmp_path / "out" / "sparse.safetensors"
    file.write_bytes(file.read_bytes()[:-50])
    with pytest.raises(BermoError, match="no whole sparse container"):
        load_sparse(tmp_path / "out")
    with pytest.raises(BermoError, match="holds no sparse container"):
        load_sparse(tmp_path / "model")
