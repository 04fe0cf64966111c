"""Masks of every form that torch's attention takes, for two texts of 20 tokens."""

from typing import Any

import torch

MASKS: dict[str, dict[str, Any]] = {
    "none": {},
    "causal": {"is_causal": True},
    "bool": {"attn_mask": torch.arange(20).ge(3).view(1, 1, 1, 20).expand(2, 1, 20, 20)},
    "added": {"attn_mask": torch.zeros(2, 1, 20, 20).index_fill_(3, torch.tensor([5, 6]), -torch.inf)},
    "nothing seen": {
        "attn_mask": torch.ones(2, 1, 20, 20, dtype=torch.bool).index_fill_(2, torch.tensor([4]), False)
    },
}
