"""gelu(a) ⊙ b by kernels, in Triton's interpreter, equals torch's own."""

import pytest
import torch
from torch.nn import functional

gated = pytest.importorskip("bermo.nn.fast.gated", reason="needs Triton")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("rows", "size"), [(35, 150), (3, 8)])
def test_output_and_gradient_equal_the_twin(rows: int, size: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    h = torch.randn(1, rows, 2 * size).to(dtype).requires_grad_()
    grad = torch.randn(1, rows, size).to(dtype)
    fast = gated.gated_gelu(h)
    assert fast.dtype == dtype
    (actual,) = torch.autograd.grad(fast, h, grad)
    slow_h = h.detach().float().requires_grad_()
    slow = gated.gated_gelu_twin(slow_h)
    (expected,) = torch.autograd.grad(slow, slow_h, grad.float())
    close = {"rtol": 1e-2, "atol": 1e-2} if dtype == torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(fast.float(), slow, **close)
    torch.testing.assert_close(actual.float(), expected, **close)


def test_the_twin_is_what_torch_computes() -> None:
    h = torch.randn(4, 10)
    first, gate = h.chunk(2, dim=-1)
    assert torch.equal(gated.gated_gelu_twin(h), functional.gelu(first) * gate)
