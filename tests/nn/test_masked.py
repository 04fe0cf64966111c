"""A mask attached to a parameter, read and taken off; other parameters and copies stay as they are."""

import copy

import pytest
import torch
from torch import nn

from bermo.errors import BermoError
from bermo.nn.masked import (
    INSIDE,
    attach_mask_,
    is_masked,
    mask_on,
    masked_parameters,
    original_of,
    remove_mask_,
    without_masks,
)
from bermo.nn.masks import TopMask


def masked_linear() -> tuple[nn.Linear, TopMask]:
    linear = nn.Linear(3, 2)
    mask = TopMask(linear.weight)
    attach_mask_(linear, mask)
    mask.mask[0, 1] = False
    return linear, mask


def test_the_module_reads_the_masked_parameter_and_keeps_the_original() -> None:
    plain = nn.Linear(3, 2)
    assert not is_masked(plain)
    assert masked_parameters(plain) == []
    assert original_of(plain) is plain.weight
    linear, mask = masked_linear()
    assert is_masked(linear)
    assert not is_masked(linear, "bias")
    assert masked_parameters(linear) == ["weight"]
    assert mask_on(linear) is mask
    assert torch.equal(linear.weight, original_of(linear) * mask.mask)
    assert linear.weight[0, 1] == 0 != original_of(linear)[0, 1]
    assert isinstance(original_of(linear), nn.Parameter)


def test_what_belongs_to_a_masked_parameter_is_told_by_its_name() -> None:
    model = nn.Sequential(masked_linear()[0])
    names = {name for name in model.state_dict() if INSIDE in name}
    assert names == set(model.state_dict()) - {"0.weight", "0.bias"}
    assert set(without_masks(model.state_dict())) == {"0.weight", "0.bias"}


def test_the_state_of_a_masked_module_loads_with_its_mask_and_without() -> None:
    linear, mask = masked_linear()
    state, plain, again = linear.state_dict(), nn.Linear(3, 2), masked_linear()[0]
    plain.load_state_dict(without_masks(state))
    assert torch.equal(plain.weight, linear.weight)
    mask_on(again).mask.fill_(True)
    again.load_state_dict(state)
    assert torch.equal(original_of(again), original_of(linear))
    assert torch.equal(mask_on(again).mask, mask.mask)


def test_a_state_without_masks_is_refused_by_a_masked_module_even_where_missing_keys_are_not() -> None:
    linear, _ = masked_linear()
    with pytest.raises(BermoError, match="has a mask in this model, but none in the weights"):
        linear.load_state_dict(nn.Linear(3, 2).state_dict(), strict=False)
    remove_mask_(linear)
    linear.load_state_dict(nn.Linear(3, 2).state_dict())
    assert set(linear.state_dict()) == {"weight", "bias"}


def test_taking_a_mask_off_leaves_its_product_and_does_not_touch_a_copy() -> None:
    linear, _ = masked_linear()
    other, expected = copy.deepcopy(linear), linear.weight.detach().clone()
    remove_mask_(linear)
    assert not is_masked(linear)
    assert torch.equal(linear.weight, expected)
    assert is_masked(other)
    assert torch.equal(other.weight, expected)
