"""Products from copies equal torch's linear layers, and write their gradients to their place."""

import pytest
import torch
from torch.nn import functional

from bermo.nn.fast.product import product


@pytest.mark.parametrize("is_transposed", [True, False])
@pytest.mark.parametrize("bias_is", ["trained", "detached", "missing"])
@pytest.mark.parametrize("has_target", [True, False])
def test_outputs_and_gradients_are_torchs(has_target: bool, bias_is: str, is_transposed: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 6, requires_grad=True)
    weight = torch.randn((6, 5) if is_transposed else (5, 6), requires_grad=True)
    bias = None if bias_is == "missing" else torch.randn(5, requires_grad=True)
    given = bias.detach() if bias is not None and bias_is == "detached" else bias
    target = torch.full_like(weight, 7.0) if has_target else None
    fast = product(x, weight, given, target, is_transposed)
    slow = functional.linear(x, weight.t() if is_transposed else weight, bias)
    torch.testing.assert_close(fast, slow)
    grad = torch.randn(2, 3, 5)
    trained = [t for t in (x, weight, bias if bias_is == "trained" else None) if t is not None]
    actual = torch.autograd.grad(fast, trained, grad)
    for a, b in zip(actual, torch.autograd.grad(slow, trained, grad), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    assert actual[1].is_contiguous()
    assert (target is not None and actual[1].data_ptr() == target.data_ptr()) == has_target
