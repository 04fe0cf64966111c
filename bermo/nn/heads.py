"""What reads the mixed vectors: the token that stands for a text, the heads, and their losses.

    text     out(dropout(tanh(dense(pool(h)))))       BERT's pooler and classifier
    pair     out(dropout(tanh(scale(u, v, |u − v|, u ⊙ v, u · v))))    u, v: each text's pool(h), of length 1
    word     decoder(norm(act(dense(h)))) + bias      BERT's masked-LM head, decoder tied to the embeddings

Axes: B texts, T tokens, K chosen tokens, D hidden units, F features of a pair, C labels.
"""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

IGNORED = -100
MULTI_LABEL = "multi_label_classification"
"""What transformers calls several labels a text: a sigmoid for each, and binary cross-entropy."""


class PooledHead(nn.Module):
    """out(dropout(tanh(dense(x)))): one vector per text to one score per label."""

    def __init__(self, input_size: int, hidden_size: int, num_labels: int, dropout: float) -> None:
        super().__init__()
        self.dense = nn.Linear(input_size, hidden_size)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(hidden_size, num_labels)

    def forward(self, pooled_BD: Tensor) -> Tensor:
        """Return (B, C) scores."""
        return self.out(self.dropout(torch.tanh(self.dense(pooled_BD))))


class Scale(nn.Module):
    """x ⊙ weight + bias: a factor and a shift for each unit."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addcmul(self.bias, x, self.weight)


class PairHead(nn.Module):
    """out(dropout(tanh(scale(x)))): what two vectors say of each other to one score per label.

    InferSent's reading (Conneau et al. 2017) with the cosine; `scale` brings units of very different size to
    one.
    """

    def __init__(self, input_size: int, num_labels: int, dropout: float) -> None:
        super().__init__()
        self.scale = Scale(4 * input_size + 1)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(4 * input_size + 1, num_labels)

    def forward(self, pair_BF: Tensor) -> Tensor:
        """Return (B, C) scores."""
        scaled_BF = torch.tanh(self.scale(pair_BF)).to(self.out.weight.dtype)
        return self.out(self.dropout(scaled_BF))


def pair_features(first_BD: Tensor, second_BD: Tensor) -> Tensor:
    """Return (u, v, |u − v|, u ⊙ v, u · v) of the vectors brought to length 1, (B, 4 D + 1), in float32."""
    u_BD, v_BD = (functional.normalize(vectors.float(), dim=-1) for vectors in (first_BD, second_BD))
    product_BD = u_BD * v_BD
    return torch.cat([u_BD, v_BD, (u_BD - v_BD).abs(), product_BD, product_BD.sum(-1, keepdim=True)], dim=-1)


class TokenHead(nn.Module):
    """out(dropout(x)): one vector per token to one score per label."""

    def __init__(self, input_size: int, num_labels: int, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(input_size, num_labels)

    def forward(self, mixed_BTD: Tensor) -> Tensor:
        """Return (B, T, C) scores."""
        return self.out(self.dropout(mixed_BTD))


class MaskedHead(nn.Module):
    """decoder(norm(act(dense(x)))): one vector per token to one score per word of the vocabulary."""

    def __init__(
        self, input_size: int, embedding_size: int, vocab_size: int, act: nn.Module, eps: float
    ) -> None:
        super().__init__()
        self.dense = nn.Linear(input_size, embedding_size)
        self.act = act
        self.norm = nn.LayerNorm(embedding_size, eps=eps)
        self.decoder = nn.Linear(embedding_size, vocab_size)

    def forward(self, mixed_BTD: Tensor) -> Tensor:
        """Return (B, T, vocabulary) scores."""
        return self.decoder(self.norm(self.act(self.dense(mixed_BTD))))


def pooled_rows(pooling: Literal["first", "last"], mask_BT: Tensor) -> Tensor:
    """Return the index (B, 1) of each text's first or last real token, whichever side padding is on."""
    if pooling == "first":
        return mask_BT.long().argmax(dim=1, keepdim=True)
    return mask_BT.shape[1] - 1 - mask_BT.long().flip(1).argmax(dim=1, keepdim=True)


def take_rows(hidden_BTD: Tensor, rows_BK: Tensor) -> Tensor:
    """Return the tokens at the given indices, (B, K, D)."""
    return hidden_BTD.gather(1, rows_BK[..., None].expand(-1, -1, hidden_BTD.shape[-1]))


def masked_mean(hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
    """Return the mean of each text's real tokens, (B, D)."""
    real_BT1 = mask_BT.bool()[..., None]
    return torch.where(real_BT1, hidden_BTD, 0).sum(1) / real_BT1.sum(1).clamp(min=1)


def text_loss(logits_BC: Tensor, labels: Tensor, problem_type: str | None) -> Tensor:
    """Return squared error for one score, else cross-entropy; several labels a text if so declared."""
    logits_BC = logits_BC.float()
    if problem_type == "regression" or (problem_type is None and logits_BC.shape[1] == 1):
        return functional.mse_loss(logits_BC, labels.float().view_as(logits_BC))
    if problem_type == MULTI_LABEL:
        return functional.binary_cross_entropy_with_logits(logits_BC, labels.float().view_as(logits_BC))
    return functional.cross_entropy(logits_BC, labels.view(-1))


def token_loss(logits_BTC: Tensor, labels_BT: Tensor) -> Tensor:
    """Return the mean cross-entropy over labelled tokens; 0, not NaN, if a batch has none."""
    labels = labels_BT.reshape(-1)
    scores = logits_BTC.reshape(len(labels), -1).float()
    total = functional.cross_entropy(scores, labels, ignore_index=IGNORED, reduction="sum")
    return total / (labels != IGNORED).sum().clamp(min=1)


def weighted_loss(logits: Tensor, labels: Tensor, weights_C: Tensor) -> Tensor:
    """Return the mean cross-entropy of classes of texts or of words, each times the weight of its class; of
    several labels a text, those that it has are weighted.
    """
    if logits.ndim == 2 and labels.shape == logits.shape:
        return functional.binary_cross_entropy_with_logits(
            logits.float(), labels.float(), pos_weight=weights_C
        )
    labels = labels.reshape(-1)
    scores = logits.reshape(len(labels), -1).float()
    losses = functional.cross_entropy(scores, labels, ignore_index=IGNORED, reduction="none")
    return (losses * weights_C[labels.clamp(min=0)]).sum() / (labels != IGNORED).sum().clamp(min=1)


def labelled_loss(
    logits: Tensor,
    labels: Tensor,
    has_label_B: Tensor,
    problem_type: str | None,
    weights_C: Tensor | None = None,
) -> Tensor:
    """Return the loss of the rows that have a label, divided by all rows, or by all tags that count: a row
    without a label adds 0, whatever stands in its place.
    """
    logits, counts_B = logits.float(), torch.ones_like(has_label_B, dtype=torch.float32)
    if problem_type == MULTI_LABEL:
        losses_B = functional.binary_cross_entropy_with_logits(
            logits, labels.float().view_as(logits), reduction="none", pos_weight=weights_C
        ).mean(-1)
    elif logits.shape[-1] == 1 and labels.is_floating_point():
        losses_B = (logits - labels.view_as(logits)).square().mean(-1)
    else:
        flat = labels.reshape(-1)
        scores = logits.reshape(len(flat), -1)
        losses = functional.cross_entropy(scores, flat, ignore_index=IGNORED, reduction="none")
        if weights_C is not None:
            losses = losses * weights_C[flat.clamp(min=0)]
        losses_B = losses.view(len(labels), -1).sum(1)
        counts_B = (labels != IGNORED).view(len(labels), -1).sum(1)
    return torch.where(has_label_B, losses_B, 0).sum() / counts_B.sum().clamp(min=1)


def span_loss(logits_BT2: Tensor, start_B: Tensor, end_B: Tensor) -> Tensor:
    """Return the mean cross-entropy of start and end; an end outside the piece of text is ignored."""
    length = logits_BT2.shape[1]
    losses = [
        token_loss(scores_BT, torch.where((index < 0) | (index >= length), IGNORED, index))
        for scores_BT, index in zip(logits_BT2.unbind(-1), (start_B, end_B), strict=True)
    ]
    return (losses[0] + losses[1]) / 2
