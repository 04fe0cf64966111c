"""The step: copies change nothing, and on a GPU a captured step equals the plain one."""

import functools
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import bermo
from bermo.methods.finetune import finetune
from bermo.nn.fast.cpu_half import HalfOverrides
from bermo.nn.fast.shadow import Shadow
from bermo.pruning.criteria import Movement
from bermo.pruning.schedule import CubicSchedule
from bermo.pruning.weights import prune_
from bermo.spec import TrainSpec, replace_in
from bermo.training import step
from bermo.training.gradient_gap import largest_gap
from bermo.training.graphs import make_step
from bermo.training.stack import stack
from bermo.training.step import Step, call_with_copies, linear_parameters
from tests.small_models import model_of, small_batch
from tests.specs import TINY

pytestmark = pytest.mark.usefixtures("shallow_box")


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


@pytest.mark.parametrize("method", ["movement", "soft-movement", "l0"])
def test_masked_weights_that_no_head_reads_are_left_alone(tmp_path: Path, method: str) -> None:
    mix = replace(TINY.model.mix, kind="across", layers=(0, 1))
    spec = replace_in(TINY, model={"mix": mix}, prune={"method": method})
    for fast in ("auto", "off"):
        finetune(replace_in(spec, train={"fast": fast, "weight_decay": 0.1}), tmp_path / fast)
    fast, plain = weights(tmp_path / "auto"), weights(tmp_path / "off")
    assert all(torch.equal(fast[name], plain[name]) for name in plain)


def test_a_cpu_that_is_fast_in_bf16_computes_it_by_functions_of_our_own_and_fp32_by_torchs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, cpu = model_of("bert", layers=1), torch.device("cpu")
    monkeypatch.setattr(step, "is_faster", lambda model, device: False)
    for is_fast, expected in ((True, HalfOverrides), (False, None)):
        monkeypatch.setattr(step, "is_faster_in_half", lambda model, device, is_fast=is_fast: is_fast)
        assert step._cpu_overrides(model, cpu, is_half=True) is expected
        assert step._cpu_overrides(model, cpu, is_half=False) is None


class FakeGpu:
    """Stands for an accelerator on a GPU, with what `make_step` asks it."""

    def __init__(self, num_processes: int = 1, scaler: object = None) -> None:
        self.device = torch.device("cuda")
        self.num_processes, self.scaler = num_processes, scaler


@pytest.mark.parametrize(
    ("gpu", "settings", "reason"),
    [
        (FakeGpu(num_processes=2), TrainSpec(), "in several processes"),
        (FakeGpu(scaler=object()), TrainSpec(), "in fp16"),
        (FakeGpu(), TrainSpec(accumulation=2), "with accumulated batches"),
        (FakeGpu(), TrainSpec(fast="off"), None),
    ],
)
def test_the_user_is_told_why_a_step_on_a_gpu_is_not_captured_unless_it_was_switched_off(
    gpu: FakeGpu, settings: TrainSpec, reason: str | None
) -> None:
    step, messages = Step.__new__(Step), list[str]()
    step.accelerator = gpu  # type: ignore[assignment]
    assert make_step(step, settings, 32, messages.append) is step
    if reason is None:
        assert messages == []
    else:
        (message,) = messages
        assert message.startswith(f"Steps are not captured as CUDA graphs {reason}")


def test_a_gap_is_that_of_the_kind_that_is_furthest_off() -> None:
    large, small, least = torch.full((8, 8), 1.0), torch.full((8,), 0.1), torch.full((8,), 1e-5)
    kinds = ["a.weight", "a.bias", "key.bias"]
    known = [large, small, least]
    gap = functools.partial(largest_gap, kinds, known)
    assert gap([large, small, -least]) < 1e-3, "next to nothing counts for nothing"
    assert gap([large, small * 0, least]) == pytest.approx(1.0)
    assert gap([large * 1.1, small, least]) == pytest.approx(0.1)
    assert math.isnan(gap([large * math.nan, small, least]))
    assert math.isnan(largest_gap(kinds, [large * math.nan, small, least], known))


def test_copies_are_made_of_what_only_linear_layers_read() -> None:
    model = model_of("bert")
    prune_(model, Movement(density=0.5, rank="score"), CubicSchedule(total_steps=10, warmup_steps=1))
    names = linear_parameters(model)
    assert any(name.endswith("query.bias") for name in names)
    assert not any("parametrizations" in name or "LayerNorm" in name for name in names)
    assert not any("embeddings" in name for name in names)
    # Transposed matrices too, of one model or of two.
    gpt = [model_of("gpt2") for _ in range(2)]
    per_layer = [name for name in linear_parameters(gpt[0]) if ".h.0." in name]
    assert len(per_layer) == 8
    assert linear_parameters(stack(gpt)).keys() == linear_parameters(gpt[0]).keys()
    tied = bermo.BermoForMaskedLM.from_backbone("box")
    words = tied.get_input_embeddings().weight
    assert all(parameter is not words for parameter in linear_parameters(tied).values())


def test_copies_of_bare_matrices_give_the_bits_of_autocast() -> None:
    model = model_of("xlnet", layers=2).eval()
    plain = linear_parameters(model)
    bare = [name for name in plain if ".rel_attn." in name]
    assert {name.rpartition(".")[2] for name in bare} == {"q", "k", "v", "o", "r"}
    assert len(bare) == 10
    shadow = Shadow((), plain, torch.bfloat16)
    shadow.refresh()
    found = []
    for copies in (None, shadow.plain):
        with torch.autocast("cpu", torch.bfloat16):
            loss = call_with_copies(model, copies, small_batch(model)).loss
        loss.backward()
        shadow.collect()
        found.append([loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None)])
        model.zero_grad()
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.gpu
@pytest.mark.parametrize("method", ["movement", "magnitude", "soft-movement", "l0"])
def test_captured_steps_give_the_losses_of_plain_ones(tmp_path: Path, method: str) -> None:
    spec = replace_in(TINY, train={"device": "auto"}, prune={"method": method})
    for fast in ("auto", "off"):
        finetune(replace_in(spec, train={"fast": fast}), tmp_path / fast)
    assert losses(tmp_path / "auto") == pytest.approx(losses(tmp_path / "off"), rel=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("method", ["movement", "magnitude", "soft-movement"])
def test_fused_steps_in_bf16_are_as_near_to_fp32_as_plain_ones(tmp_path: Path, method: str) -> None:
    """Without dropout, of which fused kernels draw other numbers, and without L0's gates, which are drawn."""
    mix = replace(TINY.model.mix, dropout=0.0)
    spec = replace_in(TINY, model={"mix": mix, "head_dropout": 0.0}, prune={"method": method})
    ways = {"right": ("fp32", "off"), "plain": ("bf16", "off"), "fused": ("bf16", "auto")}
    found = {}
    for name, (precision, fast) in ways.items():
        train = {"device": "auto", "precision": precision, "fast": fast}
        finetune(replace_in(spec, train=train), tmp_path / name)
        found[name] = torch.tensor(losses(tmp_path / name))
    gaps = {name: float((found[name] / found["right"] - 1).norm()) for name in ("plain", "fused")}
    assert gaps["fused"] < 3 * gaps["plain"] + 1e-3


@pytest.mark.gpu
def test_the_default_path_repeats_to_the_bit(tmp_path: Path) -> None:
    spec = replace_in(TINY, train={"device": "auto", "precision": "bf16"})
    for name in ("first", "second"):
        finetune(spec, tmp_path / name)
    assert losses(tmp_path / "first") == losses(tmp_path / "second")
    first, second = weights(tmp_path / "first"), weights(tmp_path / "second")
    assert all(torch.equal(first[name], second[name]) for name in first)
