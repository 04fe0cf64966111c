"""Tokens that a layer hands on: those that the others attend to most (PoWER-BERT, Goyal et al. 2020).

    significance_t = Σ_heads Σ_{queries q ≠ t} p[q, t] / heads     attention that token t receives
    hard   the ⌈part · tokens⌉ most significant stay, the first always, in their order
    soft   token of rank k is multiplied by r[k], which is learned in [0, 1]

Parts are in 256ths, and ranks are relative to the length of the text, so that padding changes nothing.
Axes: B texts, H heads, T tokens, K kept tokens, D units.
"""

import torch
from torch import Tensor

WHOLE = 256
"""A part of so many keeps every token."""
LEAST = 0.01
"""Factors are not less when layers are compared."""
FIRST = 1e9
"""The significance of the first token, which stands for the text."""


def significance(query_BHTD: Tensor, key_BHTD: Tensor, mask_BT: Tensor) -> Tensor:
    """Return the attention that each token receives from the others, (B, T); padding has −1."""
    scores_BHTT = query_BHTD @ key_BHTD.transpose(-1, -2) * query_BHTD.shape[-1] ** -0.5
    is_padding_BT = mask_BT == 0
    scores_BHTT = scores_BHTT.float().masked_fill(is_padding_BT[:, None, None], float("-inf"))
    received_BTT = torch.softmax(scores_BHTT, dim=-1).mean(1) * mask_BT[:, :, None]
    total_BT = received_BTT.sum(1) - received_BTT.diagonal(dim1=1, dim2=2)
    is_first_T = torch.arange(total_BT.shape[1], device=total_BT.device) == 0
    return total_BT.masked_fill(is_padding_BT, -1.0).masked_fill(is_first_T[None], FIRST)


def kept_count(length: Tensor | int, part: int) -> Tensor | int:
    """Return ⌈part · length / 256⌉."""
    return (length * part + WHOLE - 1) // WHOLE


def select(hidden_BTD: Tensor, received_BT: Tensor, whole_BT: Tensor, part: int) -> tuple[Tensor, Tensor]:
    """Return the kept tokens in their order, (B, K, D), and which of them are real, (B, K).

    `whole_BT` is the mask of all tokens of the texts, of which `part` is kept; some may be gone already.

    A text shorter than the longest keeps its own share; what fills its row up counts as padding.
    """
    kept = kept_count(whole_BT.shape[1], part)
    best_BK = received_BT.topk(kept, dim=1).indices  # type: ignore[arg-type]
    own_B = kept_count(whole_BT.sum(1), part)
    is_own_BK = torch.arange(best_BK.shape[1], device=best_BK.device)[None] < own_B[:, None]  # type: ignore[index]
    places_BK, order_BK = best_BK.sort(dim=1)
    mask_BK = is_own_BK.gather(1, order_BK).to(whole_BT.dtype)
    hidden_BKD = hidden_BTD.gather(1, places_BK[:, :, None].expand(-1, -1, hidden_BTD.shape[2]))
    return hidden_BKD, mask_BK


def soften(hidden_BTD: Tensor, received_BT: Tensor, mask_BT: Tensor, soft_R: Tensor) -> Tensor:
    """Multiply each token by the factor of its rank among the text's tokens; the first one stays whole."""
    rank_BT = received_BT.argsort(dim=1, descending=True).argsort(dim=1)
    place_BT = rank_BT * len(soft_R) // mask_BT.sum(1, keepdim=True).clamp(min=1)
    factor_BT = soft_R.clamp(0, 1)[place_BT.clamp(max=len(soft_R) - 1)]
    factor_BT = torch.where(rank_BT == 0, torch.ones_like(factor_BT), factor_BT)
    return hidden_BTD * factor_BT[:, :, None].to(hidden_BTD.dtype)


def parts_of(soft_LR: Tensor, share: float) -> list[int]:
    """Return how much each layer keeps, in 256ths: in proportion to its learned factors, never more than the
    layer before it, and `share` of all tokens in the mean over layers.
    """
    learned = soft_LR.detach().double().clamp(LEAST, 1).mean(1).cpu()
    low, high = 0.0, WHOLE / LEAST
    for _ in range(60):
        middle = (low + high) / 2
        is_more = sum(_falling(learned * middle)) > share * WHOLE * len(learned)
        low, high = (low, middle) if is_more else (middle, high)
    return _falling(learned * low)


def _falling(parts_L: Tensor) -> list[int]:
    falling = parts_L.clamp(1, WHOLE).cummin(0).values
    return [int(part) for part in falling.round().tolist()]
