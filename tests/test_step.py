"""The step: copies change nothing, and on a graphics card a captured step equals the plain one."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import bermo
from bermo.criteria import Movement
from bermo.methods.finetune import finetune
from bermo.prune import prune_
from bermo.schedule import CubicSchedule
from bermo.spec import replace_in
from bermo.step import linear_parameters
from tests.methods.test_prune import TINY
from tests.test_prune import model_of


def losses(folder: Path) -> list[float]:
    lines = (folder / "seed-1" / "metrics.jsonl").read_text().splitlines()
    return [row["loss"] for row in map(json.loads, lines) if "loss" in row]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model" / "model.safetensors")


def test_the_fast_and_the_plain_step_end_in_the_same_bits(tmp_path: Path) -> None:
    for fast in ("auto", "off"):
        finetune(replace_in(TINY, train={"fast": fast}), tmp_path / fast)
    assert losses(tmp_path / "auto") == losses(tmp_path / "off")
    fast, plain = weights(tmp_path / "auto"), weights(tmp_path / "off")
    assert all(torch.equal(fast[name], plain[name]) for name in plain)


def test_copies_are_made_of_what_only_linear_layers_read() -> None:
    model = model_of("bert")
    prune_(model, Movement(density=0.5), CubicSchedule(total_steps=10, warmup_steps=1))
    names = linear_parameters(model)
    assert any(name.endswith("query.bias") for name in names)
    assert not any("parametrizations" in name or "LayerNorm" in name for name in names)
    assert not any("embeddings" in name for name in names)
    tied = bermo.BermoForMaskedLM.from_backbone("box")
    words = tied.get_input_embeddings().weight
    assert all(parameter is not words for parameter in linear_parameters(tied).values())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a graphics card")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("method", ["movement", "magnitude", "soft-movement", "l0"])
def test_captured_steps_give_the_losses_of_plain_ones(
    tmp_path: Path, method: str, precision: str
) -> None:
    spec = replace_in(
        TINY, train={"device": "auto", "precision": precision}, prune={"method": method}
    )
    for fast in ("auto", "off"):
        finetune(replace_in(spec, train={"fast": fast}), tmp_path / fast)
    gap = 1e-5 if precision == "fp32" else 1e-3
    assert losses(tmp_path / "auto") == pytest.approx(losses(tmp_path / "off"), rel=gap)
