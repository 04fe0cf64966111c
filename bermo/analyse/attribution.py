"""How much of a vector comes from which token: hidden-token attribution (Brunner et al. 2020).

    c_ij^l = ‖∂h_j^l / ∂x_i‖_F / Σ_k ‖∂h_j^l / ∂x_k‖_F       x_i the input embedding of token i;  Σ_i c_ij = 1

The Jacobian is pushed forward: a tangent u at token i alone gives J_ij u for all tokens j and all layers in
one pass, and E ‖J u‖² = ‖J‖_F² for u with independent unit entries (Hutchinson). The tangents of all i share
a batch, token i in copy i. Given the D unit vectors instead of random u, the norms are exact. Axes: U
tangents, T tokens, D units, L + 1 layers.
"""

import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from bermo.analyse.attention import Advance
from bermo.analyse.certainty import Ends, ends_of_mean, ends_of_share, told
from bermo.analyse.curves import MIX
from bermo.analyse.tokens import token_batches
from bermo.analyse.words import has_mix
from bermo.encoders.attention import attending, can_attend
from bermo.encoders.backbone import hidden_states, make_inputs
from bermo.figures.data import Figure, Lines, Section, paragraphs
from bermo.vectors import Encoder

TEXTS, TOKENS, TANGENTS = 10, 20, 2
DISTANCES = 10


@dataclass(frozen=True, kw_only=True)
class Attribution:
    """One number a layer, and the contribution by distance at each."""

    own: tuple[float, ...]
    """Mean share of a vector that comes from its own token."""
    not_main: tuple[float, ...]
    """Share of tokens that are not the largest contributor of their own vector."""
    by_distance: tuple[tuple[float, ...], ...]
    """Mean contribution of one token at distance 0, 1, …; the last holds all farther ones."""
    num_tokens: int
    own_ends: tuple[Ends, ...]
    not_main_ends: tuple[Ends, ...]
    neighbour_ends: tuple[Ends, ...]
    """Of `neighbour`; all intervals are over texts."""
    has_mix: bool = False
    """Whether the last of each is the mix's."""

    @property
    def neighbour(self) -> tuple[float, ...]:
        """Mean contribution of a token right before or after."""
        return tuple(row[1] for row in self.by_distance)


def jacobian_norms(encoder: Encoder, embeddings: Tensor, tangents: Tensor) -> Tensor:
    """Return ‖∂h_j^l / ∂x_i‖ as (L + 1, T, T), rows i and columns j, for a text's input embeddings (T, D).

    A mix as wide as a layer comes after the layers.
    """
    length = len(embeddings)
    mask = torch.ones(length, length, dtype=torch.long, device=embeddings.device)
    total: Tensor | float = 0.0
    # Fused kernels know no forward derivative, so attention is computed step by step.
    held = attending(encoder.backbone) if can_attend(encoder.backbone) else nullcontext()
    with warnings.catch_warnings(), torch.inference_mode(False), torch.no_grad(), held:
        # torch compiles its forward derivatives when first asked, in a way that it calls deprecated itself.
        warnings.simplefilter("ignore", DeprecationWarning)
        for tangent in tangents:
            with forward_ad.dual_level():
                moved = torch.zeros(length, length, embeddings.shape[1], device=embeddings.device)
                moved[range(length), range(length)] = tangent
                primal = embeddings.clone().expand(length, -1, -1).contiguous()
                dual = forward_ad.make_dual(primal, moved)
                inputs = make_inputs(encoder.backbone, None, mask, None, dual)
                layers = cast(tuple[Tensor, ...], hidden_states(encoder.backbone, inputs).hidden_states)
                if encoder.mix is not None and has_mix(encoder):
                    layers = (*layers, encoder.mix(layers, mask))
                total = total + torch.stack([_tangent(hidden) for hidden in layers])
    return cast(Tensor, total / len(tangents)).sqrt()


def _tangent(hidden: Tensor) -> Tensor:
    """Return the squared length of a dual tensor's tangent, or 0 where nothing moved."""
    moved = forward_ad.unpack_dual(hidden).tangent
    return torch.zeros(hidden.shape[:2]) if moved is None else moved.double().pow(2).sum(-1)


def contributions(norms: Tensor) -> Tensor:
    """Return c (L + 1, T, T): each column sums to 1."""
    return norms / norms.sum(-2, keepdim=True).clamp(min=1e-30)


def measure_attribution(
    encoder: Encoder, texts: Sequence[str], advance: Advance = lambda done: None
) -> Attribution:
    """Attribute the vectors of a few texts, evenly chosen, cut to `TOKENS` tokens."""
    step = max(1, len(texts) // TEXTS)
    chosen = texts[::step][:TEXTS]
    generator = torch.Generator().manual_seed(0)
    table = cast(nn.Embedding, encoder.backbone.get_input_embeddings())
    layers = encoder.num_layers + has_mix(encoder)
    texts_of: list[Tensor] = []
    near = torch.zeros(layers, DISTANCES + 1, dtype=torch.double)
    counts = torch.zeros(DISTANCES + 1, dtype=torch.double)
    sizes: list[float] = []
    pairs: list[float] = []
    for tokens in token_batches(encoder, chosen, TOKENS, batch_size=1):
        with torch.inference_mode(False), torch.no_grad():
            embeddings = table(tokens.batch.input_ids[0].clone())
            shape = (TANGENTS, embeddings.shape[1])
            tangents = torch.randn(shape, generator=generator).to(embeddings.device)
            shares = contributions(jacobian_norms(encoder, embeddings, tangents)).double().cpu()
        length = shares.shape[-1]
        position = torch.arange(length)
        own = shares.diagonal(dim1=1, dim2=2).sum(-1)
        missed = (shares.argmax(1) != position).sum(-1).double()
        beside = sum(shares.diagonal(step, dim1=1, dim2=2).sum(-1) for step in (-1, 1))
        texts_of.append(torch.stack([own, missed, cast(Tensor, beside)]))
        distance = (position[:, None] - position).abs().clamp(max=DISTANCES).flatten()
        near.index_add_(1, distance, shares.flatten(1))
        counts += torch.bincount(distance, minlength=DISTANCES + 1)
        sizes.append(length)
        pairs.append(2 * (length - 1))
        advance(1)
    total = int(sum(sizes))
    own, missed, beside = torch.stack(texts_of, dim=2)
    return Attribution(
        own=tuple((own.sum(1) / total).tolist()),
        not_main=tuple((missed.sum(1) / total).tolist()),
        by_distance=tuple(map(tuple, (near / counts.clamp(min=1)).tolist())),
        num_tokens=total,
        own_ends=tuple(ends_of_mean(row, sizes) for row in own.tolist()),
        not_main_ends=tuple(ends_of_share(row, sizes) for row in missed.tolist()),
        neighbour_ends=tuple(ends_of_mean(row, pairs) for row in beside.tolist()),
        has_mix=has_mix(encoder),
    )


def attribution_section(models: Mapping[str, Attribution]) -> Section:
    """Draw the own share, the tokens that lost their lead, and the contribution by distance."""
    depth = max(len(item.own) - item.has_mix for item in models.values())
    axis = tuple(map(float, range(depth)))
    figures: list[Figure] = []
    for field, title in (
        ("own", "Share of a vector that comes from its own token"),
        ("not_main", "Share of tokens that are not the main contributor of their own vector"),
        ("neighbour", "Mean share of a direct neighbour"),
    ):
        series = _series(models, field, depth)
        figures.append(
            Lines(
                title=title,
                x_label="layer (0: embeddings)",
                y_label="share",
                x=axis,
                series=series,
                note=f"Level: the mix. By Jacobian norms, estimated from {TANGENTS} random tangents a token.",
            )
        )
    for name, item in models.items():
        last = len(item.own) - 1 - item.has_mix
        shown = sorted({1, max(1, last // 2), last})
        figures.append(
            Lines(
                title=f"{name}: contribution of one token by its distance",
                x_label=f"distance in tokens ({DISTANCES}: {DISTANCES} or more)",
                y_label="mean share",
                x=tuple(map(float, range(DISTANCES + 1))),
                series={f"layer {layer}": item.by_distance[layer] for layer in shown}
                | ({MIX: item.by_distance[-1]} if item.has_mix else {}),
            )
        )
    lines = [_said(name, item) for name, item in models.items()]
    return Section(title="Mixing of tokens", text=paragraphs(lines), figures=tuple(figures))


def _series(models: Mapping[str, Attribution], field: str, depth: int) -> dict[str, tuple[float | None, ...]]:
    """Return a curve a model over its layers, and a level line for its mix."""
    series: dict[str, tuple[float | None, ...]] = {}
    for name, item in models.items():
        values = item.neighbour if field == "neighbour" else getattr(item, field)
        layers = values[: len(values) - item.has_mix]
        series[name] = (layers + (None,) * depth)[:depth]
        if item.has_mix:
            series[f"{name}: mix"] = (values[-1],) * depth
    return series


def _said(name: str, item: Attribution) -> str:
    last = len(item.own) - 1 - item.has_mix
    words = (
        f"{name}: at the last layer {told(item.own[last], item.own_ends[last], '.1%')} of a vector comes from"
        f" its own token, and {told(item.not_main[last], item.not_main_ends[last], '.1%')} of"
        f" {item.num_tokens} tokens are not its main contributor."
    )
    if not item.has_mix:
        return words
    return (
        f"{words} Of the mixed vector {told(item.own[-1], item.own_ends[-1], '.1%')} comes from its own token"
        f" and {told(item.neighbour[-1], item.neighbour_ends[-1], '.1%')} from a direct neighbour; at the"
        f" last layer {told(item.neighbour[last], item.neighbour_ends[last], '.1%')}."
    )
