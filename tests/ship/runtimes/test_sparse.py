"""The sparse container: exact on load for every family, small, and refused where it makes no sense."""

import json
import re
import shutil
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import save_file

import bermo
from bermo.errors import BermoError
from bermo.machine import Processor
from bermo.runs.trained import open_trained
from bermo.ship.export.run import ExportSpec, export
from bermo.ship.runtimes.candidate import open_candidate
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


def test_int8_values_open_where_int8_sums_would_overflow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = Processor(name="a processor", architecture="x86_64", system="Linux", cores=2)
    monkeypatch.setattr("bermo.ship.runtimes.overflow.processor", lambda: old)
    model = make_model()
    prune_randomly_(model, 0.1)
    export(save(model, tmp_path / "model"), tmp_path / "out", ExportSpec(to="sparse", values="int8"))
    assert open_candidate(open_trained(tmp_path / "out")) is not None


def test_a_model_that_was_never_pruned_is_stored_by_centroids_embeddings_too(tmp_path: Path) -> None:
    run = save(make_model(), tmp_path / "model")
    exported = export(run, tmp_path / "out", ExportSpec(to="sparse", values="gobo"))
    assert open_trained(tmp_path / "out").precision == "gobo"
    loaded = load_sparse(tmp_path / "out")
    for name in ("encoder.layer.0.output.dense.weight", "embeddings.position_embeddings.weight"):
        tensor = loaded.get_parameter(f"bermo.backbone.{name}")
        most = 16 if "position" in name else 8
        assert len(tensor.unique()) <= most + 4, "centroids and a few outliers"
    assert exported.compared.relative_error < 0.5


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


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a container and without checksums."""
    model = make_model()
    prune_randomly_(model, 0.1)
    folder = save(model, tmp_path_factory.mktemp("packed") / "model")
    write_sparse(model, folder / "sparse.safetensors", "fp32")
    return folder


def _changed(packed: Path, folder: Path, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> Path:
    """Copy a container with other arrays, and other claims about them in its header."""
    shutil.copytree(packed, folder)
    with safe_open(packed / "sparse.safetensors", framework="numpy") as file:
        header, arrays = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    # Several entries would be written in an order that differs from process to process.
    assert list(header) == ["packed"]
    claims = json.loads(header["packed"])
    change(claims, arrays)
    save_file(arrays, folder / "sparse.safetensors", {"packed": json.dumps(claims)})
    return folder


@pytest.mark.parametrize("shape", [[1 << 20, 1 << 13], [0, 4], [-4, -4], [], ["8", 8], [1 << 80, 1]])
def test_a_shape_that_no_file_of_its_size_can_fill_takes_no_memory(
    shape: list[Any], packed: Path, tmp_path: Path
) -> None:
    folder = _changed(
        packed, tmp_path / "m", lambda claims, _: next(iter(claims.values())).update(shape=shape)
    )
    with pytest.raises(BermoError, match=r"no whole sparse container: .*(claim to hold|of the shape)"):
        load_sparse(folder)


@pytest.mark.parametrize("part", ["places", "codes"])
def test_a_stream_that_is_longer_than_its_matrix_is_not_inflated(
    part: str, packed: Path, tmp_path: Path
) -> None:
    bomb = np.frombuffer(zlib.compress(bytes(1 << 26), 9), dtype=np.uint8)
    folder = _changed(
        packed, tmp_path / "m", lambda claims, arrays: arrays.update({f"{next(iter(claims))}.{part}": bomb})
    )
    tracemalloc.start()
    with pytest.raises(BermoError, match="is longer, or cut"):
        load_sparse(folder)
    assert tracemalloc.get_traced_memory()[1] < 1 << 25
    tracemalloc.stop()


def test_a_config_that_asks_for_more_weights_than_there_are_takes_no_memory(
    packed: Path, tmp_path: Path
) -> None:
    shutil.copytree(packed, tmp_path / "m")
    config = tmp_path / "m" / "config.json"
    text = config.read_text()
    for key, value in (("vocab_size", 10**10), ("num_hidden_layers", 400)):
        changed = re.sub(rf'"{key}": \d+', f'"{key}": {value}', text)
        assert changed != text
        config.write_text(changed)
        with pytest.raises(BermoError, match=r"does not fit .*config\.json"):
            load_sparse(tmp_path / "m")
