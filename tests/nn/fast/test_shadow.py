"""Copies made once a step: the same losses and gradients as from the masks themselves, to the bit."""

import subprocess
from collections.abc import Iterator

import pytest
import torch

from bermo.nn.fast.available import find_fault, has_kernels, kernel_fault
from bermo.nn.fast.shadow import Shadow
from bermo.pruning.criteria import L0, Magnitude, Method, Movement, SoftMovement
from bermo.pruning.schedule import CubicSchedule
from bermo.pruning.weights import prune_
from tests.small_models import batch_of, model_of

METHODS: list[Method] = [
    Magnitude(density=0.3),
    Movement(density=0.3, rank="score"),
    SoftMovement(penalty=10.0),
    Movement(density=0.3, rank="size"),
    L0(penalty=10.0),
]


@pytest.fixture
def fresh_kernels() -> Iterator[None]:
    """What is known about kernels is forgotten before and after."""
    find_fault.cache_clear()
    yield
    find_fault.cache_clear()


def test_a_gpu_for_which_no_kernel_can_be_built_does_without(
    fresh_kernels: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = pytest.importorskip("bermo.nn.fast.kernels", reason="needs Triton", exc_type=ImportError)
    kernels.try_one(torch.device("cpu"))  # by Triton's interpreter

    def broken(device: torch.device) -> None:
        raise subprocess.CalledProcessError(1, ["gcc"])

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(kernels, "try_one", broken)
    assert "gcc" in str(kernel_fault())
    assert not has_kernels()


@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
@pytest.mark.parametrize("family", ["bert", "albert", "gpt2", "modernbert"])
def test_gradients_through_copies_are_those_of_the_masks_to_the_bit(family: str, method: Method) -> None:
    runs = []
    for is_copied in (False, True):
        model = model_of(family).train()
        pruner = prune_(model, method, CubicSchedule(total_steps=10, warmup_steps=1))
        for score in pruner.score_parameters():
            score.data.normal_(generator=torch.Generator().manual_seed(score.numel()))
        pruner.at(6)
        shadow = Shadow(pruner.simple_masks() if is_copied else (), {}, torch.float32)
        shadow.refresh()
        torch.manual_seed(1)
        batch = batch_of(model)
        labels = torch.arange(len(batch["input_ids"])) % 2
        loss = model(**batch, labels=labels).loss + pruner.penalty()
        loss.backward()
        shadow.collect()
        grads = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
        runs.append((loss.detach(), grads))
        shadow.close()
        assert all(mask.copy is None for mask in pruner.masks)
    (loss, grads), (copied_loss, copied_grads) = runs
    assert torch.equal(loss, copied_loss)
    assert grads.keys() == copied_grads.keys()
    assert any("scores" in name for name in grads) or isinstance(method, Magnitude)
    for name, grad in grads.items():
        # The layers of albert share weights, whose gradients are summed before the product and not after.
        if family == "albert":
            torch.testing.assert_close(copied_grads[name], grad)
        else:
            assert torch.equal(grad, copied_grads[name]), name


def test_evaluation_does_not_read_stale_copies() -> None:
    model = model_of("bert").train()
    pruner = prune_(model, Movement(density=0.3, rank="score"), CubicSchedule(total_steps=10, warmup_steps=1))
    shadow = Shadow(pruner.simple_masks(), {}, torch.float32)
    shadow.refresh()
    with torch.no_grad():
        for site in pruner.sites:
            site.original.mul_(2)
    site = pruner.sites[0]
    assert torch.equal(site.weight * 2, site.original)
    model.eval()
    assert torch.equal(site.weight, site.original)
