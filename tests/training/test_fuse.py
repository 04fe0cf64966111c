"""The fused pass of whole models, in Triton's interpreter on the CPU, equals the plain one."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch import Tensor, nn

from bermo.methods.assemble import LabelLoss
from bermo.methods.finetune import finetune
from bermo.nn.fast.shadow import Shadow
from bermo.pruning.criteria import Movement
from bermo.pruning.schedule import CubicSchedule
from bermo.pruning.weights import prune_
from bermo.training import fuse
from bermo.training.fuse import NOTHING, Fused, Fusion, make_fusion
from bermo.training.gradient_gap import LARGEST_GAP
from bermo.training.graphs import GraphedStep
from bermo.training.job import Batch, Job
from bermo.training.stack import stack, stacked_masks
from bermo.training.step import Step, WeightedBatch, call_with_copies, linear_parameters
from tests.fused_pass import gradients
from tests.small_models import model_of, small_batch, without_dropout
from tests.specs import TINY

pytest.importorskip("triton", reason="needs Triton")
CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("family", "count"),
    [
        ("bert", 21),
        ("electra", 21),
        ("roberta", 21),
        ("distilbert", 12),
        ("albert", 7),
        ("mpnet", 21),
        ("deberta", 22),
        ("deberta-v2", 15),
        ("modernbert", 23),
        ("gpt2", 26),
        ("mobilebert", 14),
        ("xlnet", 8),
    ],
)
def test_modules_are_known_by_what_they_are_made_of(family: str, count: int) -> None:
    assert len(Fusion(model_of(family), None, Fused()).overrides) == count


@pytest.mark.parametrize(
    ("family", "is_pruned"),
    [
        ("bert", True),
        ("distilbert", False),
        ("albert", False),
        ("mpnet", True),
        ("deberta", False),
        ("deberta-v2", False),
        ("xlnet", False),
    ],
)
def test_the_fused_pass_gives_the_plain_loss_and_gradients(family: str, is_pruned: bool) -> None:
    slow_loss, slow, _ = gradients(family, NOTHING, is_pruned)
    loss, found, _ = gradients(family, Fused(), is_pruned)
    torch.testing.assert_close(loss, slow_loss, rtol=1e-5, atol=1e-6)
    assert found.keys() == slow.keys()
    for name, grad in slow.items():
        torch.testing.assert_close(found[name], grad, rtol=1e-3, atol=1e-4, msg=name)


@pytest.mark.parametrize("part", ["residual", "linear", "mix"])
def test_each_part_can_be_left_out(part: str) -> None:
    slow_loss, slow, _ = gradients("bert", NOTHING, False)
    loss, found, num = gradients("bert", Fused(**{part: False}), False)
    assert num < len(Fusion(without_dropout("bert"), None, Fused()).overrides)
    torch.testing.assert_close(loss, slow_loss, rtol=1e-5, atol=1e-6)
    for name, grad in slow.items():
        torch.testing.assert_close(found[name], grad, rtol=1e-3, atol=1e-4, msg=name)


def test_a_mix_of_one_token_reads_that_token_alone_of_every_layer_but_the_embeddings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from bermo.nn.fast import mixing
    from bermo.training import fuse_mix

    mixed, taken = mixing.mixing, []
    shapes: list[torch.Size] = []
    monkeypatch.setattr(
        mixing, "mixing", lambda layers, *rest: shapes.extend(x.shape for x in layers) or mixed(layers, *rest)
    )
    take = fuse_mix.take_rows
    monkeypatch.setattr(fuse_mix, "take_rows", lambda *given: taken.append(1) or take(*given))
    found = gradients.__wrapped__("bert", Fused(), False)
    assert {shape[1] for shape in shapes} == {1}
    assert len(taken) == 1
    slow = gradients("bert", NOTHING, False)
    for name, grad in slow.gradients.items():
        torch.testing.assert_close(found.gradients[name], grad, rtol=1e-3, atol=1e-4, msg=name)


@pytest.mark.parametrize("is_taken", [True, False])
def test_attention_is_fused_alone_or_left_out(is_taken: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from bermo.nn.fast.tiles import Tiles

    calls, apply = [], Tiles.apply
    monkeypatch.setattr(Tiles, "apply", lambda *given: calls.append(1) or apply(*given))
    fused = replace(NOTHING, attention=True) if is_taken else Fused(attention=False)
    slow_loss, slow, _ = gradients("bert", NOTHING, False)
    loss, found, _ = gradients.__wrapped__("bert", fused, False)
    assert len(calls) == (without_dropout("bert").config.backbone.num_hidden_layers if is_taken else 0)
    torch.testing.assert_close(loss, slow_loss, rtol=1e-5, atol=1e-6)
    for name, grad in slow.items():
        torch.testing.assert_close(found[name], grad, rtol=1e-3, atol=1e-4, msg=name)


@pytest.mark.parametrize("is_pruned", [True, False])
def test_gradients_are_written_to_their_buffer_once_and_are_gathered(is_pruned: bool) -> None:
    model = without_dropout("bert")
    masked = ()
    if is_pruned:
        pruner = prune_(
            model, Movement(density=0.5, rank="score"), CubicSchedule(total_steps=9, warmup_steps=1)
        )
        masked = pruner.simple_masks()
    shadow = Shadow(masked, linear_parameters(model), torch.float32)
    plain = [c for name, c in shadow.plain.items() if name.endswith("weight") and "head" not in name]
    copies = shadow.masked_copies() if is_pruned else plain
    flat = shadow.keep_grads_(copies)
    fusion = Fusion(model, shadow, Fused(mix=False, attention=False))
    batch = small_batch(model)
    grads = []
    # The second pass of a step adds to the first.
    for num_passes in (1, 2) if is_pruned else (1,):
        shadow.refresh()
        for _ in range(num_passes):
            with fusion.active(CPU):
                loss = call_with_copies(model, shadow.plain, batch).loss
            loss.backward()
        direct = [c.grad.data_ptr() == shadow.grad_views[id(c)].data_ptr() for c in copies]
        assert all(direct)
        shadow.collect(copies)
        shadow.gather(copies)
        assert all(copy.grad is None for copy in copies)
        grads.append(flat.clone())
        model.zero_grad()
    torch.testing.assert_close(grads[-1], len(grads) * grads[0])
    assert grads[0].abs().sum() > 0
    shadow.refresh()
    # A copy that nothing read has no gradient, and the last step's does not stay.
    shadow.gather(copies)
    assert flat.abs().sum() == 0


def test_a_module_called_again_gets_another_seed() -> None:
    model = model_of("bert").train()
    fusion = Fusion(model, None, Fused())
    with fusion.active(CPU):
        first, other = fusion._seed(0).clone(), fusion._seed(1).clone()
        again = fusion._seed(0).clone()
    assert len({first.item(), other.item(), again.item()}) == 3


def test_hooked_and_checkpointed_modules_keep_their_own_forward() -> None:
    model = model_of("bert").train()
    layer = model.core.backbone.encoder.layer[0]
    layer.output.dense.register_forward_hook(lambda *_: None)
    layer.attention.output.register_forward_hook(lambda *_: None)
    fusion = Fusion(model, None, Fused())
    with fusion.active(CPU):
        assert "forward" not in vars(layer.output)
        assert "forward" not in vars(layer.attention.output)
        assert "forward" in vars(model.core.backbone.encoder.layer[1].output)
    model.gradient_checkpointing_enable()
    fusion = Fusion(model, None, Fused())
    assert not fusion.overrides
    assert not fusion.has_attention, "a second pass outside would draw another dropout"


def test_without_a_gpu_nothing_is_fused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a fused path was taken")

    assert make_fusion(nn.Linear(2, 2), None, Fused(), CPU, is_half=True) is None
    gpu = torch.device("cuda")
    assert make_fusion(nn.Linear(2, 2), None, Fused(), gpu, is_half=False) is None
    assert make_fusion(nn.Linear(2, 2), None, NOTHING, gpu, is_half=True) is None
    monkeypatch.setattr(fuse.Fusion, "__init__", refuse)
    finetune(TINY, tmp_path / "run")


@pytest.mark.parametrize(("family", "is_pruned"), [("bert", False), ("bert", True), ("mpnet", True)])
def test_a_stack_of_models_is_fused_too(family: str, is_pruned: bool) -> None:
    """Fused, the joint pass gives each model the loss and gradients that it has alone."""
    models = [without_dropout(family) for _ in range(2)]
    with torch.no_grad():
        for parameter in models[1].parameters():
            parameter.add_(0.02 * torch.randn_like(parameter)) if parameter.requires_grad else None
    for model in models:
        model.core.backbone.embeddings.load_state_dict(models[0].core.backbone.embeddings.state_dict())
        model.freeze_embeddings_()
        if is_pruned:
            schedule = CubicSchedule(total_steps=9, warmup_steps=1)
            prune_(model, Movement(density=0.5, rank="score"), schedule).at(5)
    batch = small_batch(models[0])
    expected = []
    for model in models:
        model.zero_grad()
        loss = model(**batch).loss
        loss.backward()
        expected.append({n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None})
        model.zero_grad()
    joint = stack(models)
    masked = tuple(stacked_masks(joint))
    shadow = Shadow(masked, linear_parameters(joint), torch.float32)
    shadow.refresh()
    fusion = Fusion(joint, shadow, Fused())
    inputs = {name: torch.cat([tensor, tensor]) for name, tensor in batch.items()}
    with fusion.active(CPU):
        outputs = call_with_copies(joint, shadow.plain, inputs)
    (outputs.loss * 2).backward()
    shadow.collect()
    found = {n: p.grad for n, p in joint.named_parameters() if p.grad is not None}
    assert found.keys() == expected[0].keys()
    assert sum(one.attribute == "forward" for one in fusion.overrides) > 8
    for index, grads in enumerate(expected):
        for name, grad in grads.items():
            mine = found[name][index].view_as(grad)
            torch.testing.assert_close(mine, grad, rtol=1e-3, atol=1e-4, msg=name)


def fusable_step(model: nn.Module, dtype: torch.dtype, objective: Any = None) -> Step:
    """A step on the CPU that takes the kernels in Triton's interpreter."""
    pruner = prune_(model, Movement(density=0.5, rank="score"), CubicSchedule(total_steps=9, warmup_steps=1))
    pruner.at(5)
    masked = pruner.simple_masks()
    shadow = Shadow(masked, linear_parameters(model), dtype)
    AcceleratorState._reset_state(reset_partial_state=True)
    accelerator = Accelerator(cpu=True, mixed_precision="bf16" if dtype == torch.bfloat16 else "no")
    job = Job(
        model=model,
        batches=None,
        objective=objective or LabelLoss(model),
        groups=[{"params": list(model.parameters())}],
        masked=masked,
        evaluate=lambda _: {},
        keep=lambda _: None,
        folder=Path(),
        seed=0,
        identity="",
    )
    optimizer = accelerator.prepare(torch.optim.AdamW(job.groups))
    step = Step(job, model, optimizer, 1.0, accelerator, shadow, Fused())
    assert step.fusion is None, "this is no GPU"
    step.fusion = Fusion(model, shadow, Fused())
    return step


def test_kernels_that_compute_nonsense_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from bermo.nn.fast import attend

    # Its dropout must not disturb.
    model = model_of("bert", layers=1).train()
    step = fusable_step(model, torch.float32)
    batches = [WeightedBatch(small_batch(model), 1.0, True)]
    assert step.compare(batches).gap < 1e-3
    assert not step.is_fused
    assert all(p.grad is None for p in model.parameters())
    assert {m.p for m in model.modules() if isinstance(m, nn.Dropout)} != {0.0}
    right = attend.tiles
    with monkeypatch.context() as patch:
        patch.setattr(attend, "tiles", lambda q, *rest: right(q, *rest).flip(2))
        gap, rounding = step.compare(batches)
        assert gap > LARGEST_GAP
        assert rounding < LARGEST_GAP / 2
    # Wrong only where something is dropped.
    patch_of = {True: lambda found: found * 0, False: lambda found: found}
    monkeypatch.setattr(attend, "tiles", lambda q, *rest: patch_of[rest[4] > 0](right(q, *rest)))
    assert step.compare(batches).gap > 0.2

    def broken(*_: object) -> None:
        raise RuntimeError("no kernel image")

    monkeypatch.setattr(attend, "tiles", broken)
    messages: list[str] = []
    graphed = GraphedStep.__new__(GraphedStep)
    graphed.step, graphed.tell = step, messages.append
    assert graphed._is_right(batches, False) is False
    assert "cannot run (no kernel image)" in messages[0]
    assert not step.is_fused, "plain steps go on without the broken kernel"


class NothingToLearn(LabelLoss):
    """What is to be learnt is known, up to rounding."""

    known: Tensor

    def __call__(self, outputs: Any, _: Batch) -> Tensor:
        return (outputs.logits.float() - self.known).square().mean()


def test_where_nothing_is_to_be_learnt_rounding_is_known_to_move_the_gradients() -> None:
    model = model_of("bert", layers=1).eval()
    batch = small_batch(model)
    loss = NothingToLearn(model)
    step = fusable_step(model, torch.bfloat16, loss)
    assert step.shadow is not None
    step.shadow.refresh()
    loss.known = model(**batch).logits.detach()
    batches = [WeightedBatch(batch, 1.0, True)]
    gap, rounding = step.compare(batches)
    assert gap > LARGEST_GAP
    assert rounding > LARGEST_GAP


def test_shaken_copies_move_by_half_a_unit_at_most_and_are_put_back() -> None:
    step = fusable_step(model_of("bert", layers=1), torch.bfloat16)
    assert step.shadow is not None
    step.shadow.refresh()
    copies = [copy.detach() for copy in (*step.shadow.plain.values(), *step.shadow.masked_copies())]
    kept = [copy.clone() for copy in copies]
    with step.shadow.shaken(3):
        moved = [copy.clone() for copy in copies]
    assert all(torch.equal(copy, before) for copy, before in zip(copies, kept, strict=True))
    for before, after in zip(kept, moved, strict=True):
        # Rounded once more.
        torch.testing.assert_close(after, before, rtol=2**-7, atol=0)
    assert any(not torch.equal(before, after) for before, after in zip(kept, moved, strict=True))


def test_a_batch_that_cannot_be_captured_goes_to_the_plain_step() -> None:
    graphed, seen = GraphedStep.__new__(GraphedStep), list[object]()
    graphed.num_rows, graphed.can_capture = 2, False
    graphed.step = lambda batches, prepare: seen.append(batches)  # type: ignore[assignment]
    batches = [WeightedBatch({"x": torch.zeros(2, 1)}, 1.0, True)]
    graphed(batches, lambda: None)
    assert seen == [batches]
