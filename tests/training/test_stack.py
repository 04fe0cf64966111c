"""Models stacked into one compute what each computes by itself, forward and backward, for every family."""

import pytest
import torch
from torch import nn

from bermo.errors import BermoError
from bermo.nn.fast.select_masks import MaskSelector
from bermo.nn.fast.shadow import Shadow
from bermo.nn.masked import is_masked
from bermo.pruning.criteria import Movement
from bermo.pruning.schedule import CubicSchedule
from bermo.pruning.weights import prune_, select_on_device_
from bermo.training.stack import stack, stacked_masks
from tests.small_models import without_dropout
from tests.tiny import CONFIGS, make_batch

CANNOT_STACK = {"deberta", "deberta-v2", "xlnet"}


def members_of(family: str) -> list[nn.Module]:
    """Two models of one shape whose weights all differ."""
    members = [without_dropout(family) for _ in range(2)]
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in members[1].parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    return members


@pytest.mark.parametrize("family", CONFIGS)
def test_a_stack_gives_each_model_its_own_outputs_and_gradients(family: str) -> None:
    members = members_of(family)
    # As many rows as tokens: ids of positions must not be taken for rows of texts.
    batch = make_batch(family, texts=2, length=4)
    alone = [model(**batch).logits for model in members]
    for logits in alone:
        logits.square().sum().backward()
    expected = [{n: p.grad for n, p in model.named_parameters()} for model in members]
    if family in CANNOT_STACK:
        with pytest.raises(BermoError, match="cannot be trained together"):
            stack(members)
        return
    joint = stack(members)
    logits = joint(**{name: torch.cat([tensor] * 2) for name, tensor in batch.items()}).logits
    torch.testing.assert_close(logits, torch.cat(alone), rtol=1e-4, atol=1e-5)
    logits.square().sum().backward()
    for name, parameter in joint.named_parameters():
        for index, grads in enumerate(expected):
            own = grads[name]
            assert (own is None) == (parameter.grad is None), name
            if own is not None:
                torch.testing.assert_close(parameter.grad[index], own, rtol=1e-3, atol=1e-4, msg=name)


def test_a_table_that_is_read_whole_is_refused_by_the_family_s_name() -> None:
    members = [without_dropout("deberta-v2") for _ in range(2)]
    with pytest.raises(BermoError, match="deberta-v2 reads its table of position vectors whole"):
        stack(members)


@pytest.mark.parametrize("family", ["bert", "mpnet", "gpt2"])
def test_every_mask_is_stacked(family: str) -> None:
    members = [without_dropout(family) for _ in range(2)]
    for model in members:
        prune_(model, Movement(density=0.5, rank="score"), CubicSchedule(total_steps=9, warmup_steps=1)).at(5)
    num_masks = sum(is_masked(module) for module in members[0].modules())
    joint = stack(members)
    assert len(stacked_masks(joint)) == num_masks > 0
    batch = make_batch(family)
    alone = torch.cat([model(**batch).logits for model in members])
    logits = joint(**{name: torch.cat([tensor] * 2) for name, tensor in batch.items()}).logits
    torch.testing.assert_close(logits, alone, rtol=1e-4, atol=1e-5)


def test_choosing_the_masks_of_members_writes_the_copies_of_the_stack() -> None:
    pytest.importorskip("bermo.nn.fast.select", reason="needs Triton")
    members = members_of("bert")
    schedule = CubicSchedule(total_steps=9, warmup_steps=1)
    pruners = [prune_(model, Movement(density=0.3, rank="score"), schedule) for model in members]
    pairs = stacked_masks(stack(members))
    for mask, _ in pairs:
        nn.init.normal_(mask.scores)
    shadow = Shadow(pairs, {}, torch.float32, num_models=2)
    pruners[0].plan(8)
    pruners[1].numbers = pruners[0].numbers
    with torch.no_grad():
        select_on_device_(pruners, MaskSelector(), [mask for mask, _ in pairs])
    copies = [copy.detach().clone() for copy in shadow.masked_copies()]
    for (mask, weight), copy in zip(pairs, copies, strict=True):
        assert mask.is_copied
        assert 0 < int(mask.mask.sum()) < mask.mask.numel()
        assert torch.equal(copy, weight * mask.mask.view_as(weight))
    shadow.refresh()
    shadow.refresh()  # now by the loop
    assert all(torch.equal(a, b) for a, b in zip(shadow.masked_copies(), copies, strict=True))
