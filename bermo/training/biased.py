"""The fused forward of LayerNorm(x + dropout(attn(x, mask, position bias))), as MPNet's attention is.

torch's own attention adds the bias, made once for all layers, and gives it a gradient.
"""

from collections.abc import Callable
from typing import Any, cast

from torch import Tensor

from bermo.training.fusible import is_biased_attention
from bermo.training.parts import Parts, attend


def biased_attention(module: Any, parts: Parts) -> Callable[..., tuple[Tensor, ...]] | None:
    """Return the fused forward of a module that `is_biased_attention`, of others None."""
    if not is_biased_attention(module):
        return None
    from bermo.nn.fast.residual import fits_kernels

    attn, number = module.attn, parts.next_seed()

    def forward(
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        position_bias: Tensor | None = None,
        output_attentions: bool = False,
        **others: Any,
    ) -> tuple[Tensor, ...]:
        if output_attentions or position_bias is None or not fits_kernels(hidden_states):
            arguments = (hidden_states, attention_mask, position_bias, output_attentions)
            return cast(tuple[Tensor, ...], type(module).forward(module, *arguments, **others))
        shape = (*hidden_states.shape[:-1], -1, attn.attention_head_size)
        heads = [linear(hidden_states).view(shape) for linear in (attn.q, attn.k, attn.v)]
        mask = _mask(parts, position_bias, attention_mask).to(heads[0].dtype)
        joined = attend(attn, heads, mask, attn.attention_head_size**-0.5).flatten(2)
        return (parts.add_and_norm(module, attn.o, joined, hidden_states, number),)

    return forward


def _mask(parts: Parts, bias: Tensor, mask: Tensor | None) -> Tensor:
    """The sum of position bias and mask in the working dtype, made once for all layers."""
    return parts.keep(bias, lambda: (bias if mask is None else bias + mask).to(parts.dtype))
