"""Every family computes and learns under autocast to bfloat16, with padding in the batch."""

import pytest
import torch

from tests.small_models import model_of
from tests.tiny import CONFIGS, make_batch


@pytest.mark.parametrize("family", CONFIGS)
def test_every_family_learns_in_bfloat16(family: str) -> None:
    model, batch = model_of(family, layers=1).eval(), make_batch(family)
    wide = model(**batch).logits
    with torch.autocast("cpu", torch.bfloat16):
        half = model(**batch).logits
    torch.testing.assert_close(half.float(), wide, rtol=0.1, atol=0.1)
    half.square().sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
