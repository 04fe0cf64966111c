"""The top layer for the one token that a text's head reads: the other tokens' outputs are never used.

    query, attention output, norms, feed-forward    of the read token       keys, values    of all tokens

The result is exact and saves about three quarters of the top layer's work, which counts in a student of two
or three layers. It is done in the graph that is written for another runtime; the torch model is not changed.
Families with BERT's layers (RoBERTa, XLM-R, CamemBERT, ERNIE, ELECTRA) can be cut; other families are
written as they are.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from torch import Tensor, nn
from torch.nn import functional

from bermo.encoders.backbone import make_inputs
from bermo.encoders.sites import layers_of
from bermo.encoders.structure import ClosedAttention
from bermo.models.tasks import BermoForSequenceClassification
from bermo.nn.heads import pooled_rows, take_rows


class ReadAttention(nn.Module):
    """softmax(q_r Kᵀ / √d) V for the rows r that are read; q_r, K, V by the core's own matrices."""

    def __init__(self, core: nn.Module, rows_BK: Tensor) -> None:
        super().__init__()
        self.core, self.rows_BK = core, rows_BK

    def forward(
        self, hidden_states: Tensor, attention_mask: Tensor | None = None, **kwargs: Any
    ) -> tuple[Tensor, None]:
        core = cast(Any, self.core)
        read = take_rows(hidden_states, self.rows_BK)
        query, key, value = (
            matrix(states).unflatten(-1, (-1, core.attention_head_size)).transpose(1, 2)
            for matrix, states in (
                (core.query, read),
                (core.key, hidden_states),
                (core.value, hidden_states),
            )
        )
        # Which keys are padding does not depend on the query, so the first query's row of the mask serves
        # all.
        mask = None if attention_mask is None else attention_mask[:, :, :1]
        context = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return context.transpose(1, 2).flatten(2), None


class ReadAnswers(nn.Module):
    """A text model as (input_ids, attention_mask, token_type_ids) -> logits, its top layer cut to the read
    token.
    """

    def __init__(self, model: BermoForSequenceClassification) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        core = self.model.bermo
        inputs = make_inputs(core.backbone, input_ids, attention_mask, token_type_ids, None)
        rows = pooled_rows(core.config.pooling, attention_mask)
        with _cut_top(layers_of(self.model)[-1], rows):
            mixed = core.mix_rows(inputs, rows, has_top_rows=True)
        return (self.model.head(mixed[:, 0]),)


@contextmanager
def _cut_top(layer: nn.Module, rows_BK: Tensor) -> Iterator[None]:
    """Let a layer compute only these rows inside the `with` block, where it returns (B, K, D)."""
    attention = cast(Any, layer).attention
    core = attention.self
    is_closed = isinstance(core, ClosedAttention)

    def before_output(module: nn.Module, args: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        context, residual = args
        # A core without heads gives vectors of width 0, which ONNX cannot gather; any rows of it will do.
        context = context[:, : rows_BK.shape[1]] if is_closed else context
        return context, take_rows(residual, rows_BK)

    handle = attention.output.register_forward_pre_hook(before_output)
    if not is_closed:
        attention.self = ReadAttention(core, rows_BK)
    try:
        yield
    finally:
        handle.remove()
        attention.self = core
