"""XLNet's two streams: a token is guessed from its place and from tokens that may be read, never from itself.

    content   h_i starts as the word at i, and reads itself and the tokens that i may read
    query     g_i starts as one learned vector, and reads the contents of the tokens that i may read
    i may read j    if rank_j = 0, or rank_j < rank_i

Both streams have the same weights; the word at i is guessed from g_i (Yang et al. 2019). Once pretrained, an
encoder is its content stream alone, in which every token reads every other.

Axes: B rows, T tokens, K guessed places, D hidden units.
"""

from typing import Any, cast

import torch
from torch import Tensor
from transformers import PreTrainedModel, XLNetLMHeadModel


def guess_states(
    backbone: PreTrainedModel, input_ids: Tensor, ranks_BT: Tensor, places_BK: Tensor, weights_BK: Tensor
) -> Tensor:
    """Return the query stream at the places, (B, K, D); what it says where the weight is 0 means nothing."""
    rank_BT1, rank_B1T = ranks_BT[:, :, None], ranks_BT[:, None, :]
    is_hidden_BTT = (rank_B1T > 0) & (rank_BT1 <= rank_B1T)
    is_place_BKT = places_BK[:, :, None] == torch.arange(ranks_BT.shape[1], device=ranks_BT.device)
    # Two queries of one place would be added up, so those that do not count have none.
    mapping_BKT = is_place_BKT & (weights_BK > 0)[:, :, None]
    outputs = backbone(
        input_ids,
        perm_mask=is_hidden_BTT.to(backbone.dtype),
        target_mapping=mapping_BKT.to(backbone.dtype),
        use_mems=False,
    )
    return cast(Tensor, outputs.last_hidden_state)


def freeze_segments_(backbone: PreTrainedModel) -> None:
    """Stop training what tells segments apart: rows of one segment give it no gradient."""
    for layer in cast(Any, backbone).layer:
        layer.rel_attn.seg_embed.requires_grad_(False)
        layer.rel_attn.r_s_bias.requires_grad_(False)


def with_words(backbone: PreTrainedModel, bias_V: Tensor) -> PreTrainedModel:
    """Return a copy of the encoder with its softmax over words on top, as transformers has it."""
    whole: Any = XLNetLMHeadModel(backbone.config)
    with torch.no_grad():
        whole.transformer.load_state_dict(backbone.state_dict())
        whole.lm_loss.bias.copy_(bias_V)
    whole.tie_weights()
    return cast(PreTrainedModel, whole)
