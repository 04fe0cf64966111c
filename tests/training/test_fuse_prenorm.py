"""The fused pass of pre-norm models, in Triton's interpreter on the CPU, equals the plain one."""

from collections import defaultdict
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bermo.encoders import windows
from bermo.nn.fast.long import attend_long
from bermo.nn.fast.shadow import Shadow
from bermo.training import fuse_prenorm
from bermo.training.fuse import NOTHING, Fused, Fusion
from bermo.training.fuse_prenorm import End
from bermo.training.fusible import is_gated, is_rotary, pre_norm
from bermo.training.gradient_gap import LARGEST_GAP, gradient_gap, nearly_no_dropout
from bermo.training.step import call_with_copies, linear_parameters
from tests.fused_pass import gradients, round_as_gpus
from tests.small_models import model_of, small_batch, without_dropout

pytest.importorskip("triton", reason="needs Triton")
prenorm = pytest.importorskip("bermo.nn.fast.prenorm")
CPU = torch.device("cpu")
FAMILIES = ("modernbert", "gpt2")
PARTS = Fused(mix=False)


def assert_alike(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, grad in expected.items():
        torch.testing.assert_close(found[name], grad, rtol=1e-3, atol=1e-4, msg=name)


def run(
    model: nn.Module, is_fused: bool, dtype: torch.dtype = torch.float32, parts: Fused = PARTS
) -> dict[str, Tensor]:
    """The gradients of one pass, fused or plain."""
    model.zero_grad()
    shadow = Shadow((), linear_parameters(model), dtype)
    shadow.refresh()
    fusion = Fusion(model, shadow, parts)
    half = torch.autocast("cpu", dtype) if dtype == torch.bfloat16 else nullcontext()
    with half, fusion.active(CPU) if is_fused else nullcontext():
        loss = call_with_copies(model, shadow.plain, small_batch(model)).loss
    loss.backward()
    shadow.collect()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[tuple[Any, ...]]]:
    """The arguments with which each function of kernels was called."""
    from bermo.nn.fast import gated, rotary

    seen: dict[str, list[tuple[Any, ...]]] = defaultdict(list)

    def count(name: str, right: Callable[..., Any], *given: Any) -> Any:
        seen[name].append(given)
        return right(*given)

    for module, name in ((prenorm, "add_and_norm"), (gated, "gated_gelu"), (rotary, "rotated_three")):
        monkeypatch.setattr(module, name, partial(count, name, getattr(module, name)))
    return seen


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("is_pruned", [True, False])
def test_the_fused_pass_gives_the_plain_loss_and_gradients(family: str, is_pruned: bool) -> None:
    slow_loss, slow, _ = gradients(family, NOTHING, is_pruned)
    loss, found, _ = gradients(family, Fused(), is_pruned)
    torch.testing.assert_close(loss, slow_loss, rtol=1e-5, atol=1e-6)
    assert_alike(found, slow)


@pytest.mark.parametrize(
    ("family", "part"),
    [("modernbert", "prenorm"), ("modernbert", "gated"), ("modernbert", "rotary"), ("gpt2", "linear")],
)
def test_each_part_can_be_left_out(family: str, part: str) -> None:
    _, slow, _ = gradients(family, NOTHING, False)
    _, found, num = gradients(family, Fused(**{part: False}), False)
    assert num < len(Fusion(without_dropout(family), None, Fused()).overrides)
    assert_alike(found, slow)


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_in_half_precision_are_within_the_limit(family: str) -> None:
    model = without_dropout(family)
    slow, fast = (run(model, is_fused, torch.bfloat16) for is_fused in (False, True))
    names = list(slow)
    assert gradient_gap(names, [slow[n] for n in names], [fast[n] for n in names]) < LARGEST_GAP / 2


def test_long_texts_are_fused_with_what_their_queries_see(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "SHORTEST", 3)
    seen: list[Any] = []
    monkeypatch.setattr(
        fuse_prenorm, "attend_long", lambda *given: seen.append(given[3]) or attend_long(*given)
    )
    model = without_dropout("modernbert")
    slow = run(model, is_fused=False)
    assert not seen
    assert_alike(run(model, is_fused=True), slow)
    assert [sight.window for sight in seen] == [None, 4]


@pytest.mark.parametrize("family", FAMILIES)
def test_sums_and_norms_in_half_precision_are_rounded_as_torchs(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    round_as_gpus(monkeypatch)
    model = without_dropout(family)
    slow = run(model, is_fused=False, dtype=torch.bfloat16)
    fast = run(model, True, torch.bfloat16, replace(NOTHING, prenorm=True))
    assert gradient_gap(list(slow), list(slow.values()), [fast[name] for name in slow]) < 5e-3


@pytest.mark.parametrize("family", FAMILIES)
def test_layers_are_fused_in_every_pass_though_their_outputs_are_captured(
    family: str, calls: dict[str, list[tuple[Any, ...]]]
) -> None:
    model = without_dropout(family, layers=1)
    for _ in range(2):
        run(model, is_fused=True)
    names = ["add_and_norm", "gated_gelu", "rotated_three"][: 3 if family == "modernbert" else 1]
    # The second sum of the last layer has no norm to compute with.
    assert {name: len(found) for name, found in calls.items()} == dict.fromkeys(names, 2)
    assert not any("forward" in vars(module) for module in model.modules())


def test_dropout_at_the_end_of_a_block_is_drawn_by_the_sum(
    calls: dict[str, list[tuple[Any, ...]]],
) -> None:
    model = model_of("gpt2", layers=2).train()
    run(model, is_fused=True)
    assert [given[6] for given in calls["add_and_norm"]] == [0.1] * 3
    with nearly_no_dropout(model):
        assert_alike(run(model, is_fused=True), run(model, is_fused=False))


def test_a_layer_finds_its_first_norm_computed_with_the_sum_before() -> None:
    model = without_dropout("modernbert", layers=3)
    fusion = Fusion(model, Shadow((), {}, torch.float32), Fused())
    seen = []
    right = fusion.layers._normed
    fusion.layers._normed = lambda norm, x: seen.append(id(x) in fusion.layers.waiting) or right(norm, x)
    with fusion.active(CPU):
        model(**small_batch(model))
    assert seen == [True, True], "the first layer has no norm"
    assert not fusion.layers.waiting


def test_no_output_of_a_pass_is_kept() -> None:
    model = without_dropout("gpt2")
    shadow = Shadow((), linear_parameters(model), torch.float32)
    shadow.refresh()
    fusion = Fusion(model, shadow, PARTS)
    closures = [cell for one in fusion.overrides for cell in getattr(one.function, "__closure__", None) or ()]
    ends = [cell.cell_contents for cell in closures if isinstance(cell.cell_contents, End)]
    with fusion.active(CPU):
        call_with_copies(model, shadow.plain, small_batch(model))
    assert ends
    assert all(end.output is None and end.bias is None for end in ends)


def doubled(module: nn.Module, args: object, output: Tensor) -> Tensor:
    return output * 2


HOOKS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "layer": lambda layer: layer,
    "norm": lambda layer: layer.ln_2,
    "dense": lambda layer: layer.attn.c_proj,
    "dropout": lambda layer: layer.mlp.dropout,
    "first dense": lambda layer: layer.mlp.c_fc,
}


@pytest.mark.parametrize("place", list(HOOKS))
def test_hooks_that_change_what_a_module_returns_are_obeyed(place: str) -> None:
    model = without_dropout("gpt2")
    HOOKS[place](model.core.backbone.h[0]).register_forward_hook(doubled)
    assert_alike(run(model, is_fused=True), run(model, is_fused=False))


def test_a_block_that_returns_something_else_is_refused() -> None:
    model = without_dropout("gpt2")
    model.core.backbone.h[0].mlp.register_forward_hook(doubled)
    with pytest.raises(RuntimeError, match="does not return what its last module returned"):
        run(model, is_fused=True)


def test_layers_of_another_structure_are_left_alone() -> None:
    bert, gpt = (model_of(family) for family in ("bert", "gpt2"))
    assert not any(pre_norm(module) or is_gated(module) or is_rotary(module) for module in bert.modules())
    block = gpt.core.backbone.h[0]
    assert pre_norm(block) is not None
    block.add_module("crossattention", nn.Linear(2, 2))
    assert pre_norm(block) is None
