"""What layers do: how alike they are, how much each changes, what the mix takes, what a cut loses.

    CKA(X, Y) = HSIC(K, L) / √(HSIC(K, K) HSIC(L, L)),  K = X Xᵀ, L = Y Yᵀ      (Kornblith et al. 2019)
    change of layer k = mean ‖h_k − h_{k−1}‖ / ‖h_{k−1}‖
    centre of gravity of a mix = Σ_k k w_k                                       (Tenney et al. 2019)
    cut after k = the output made of h_0 … h_k alone: the mix with its shares renormalised, or h_k

HSIC is Song et al.'s unbiased estimator: the usual one calls any two layers alike when there are fewer words
than units. Memory: the vectors of at most `SAMPLE` words at all layers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from bermo.analyse.attention import Advance, Grid, grid_of
from bermo.analyse.certainty import Ends, ends_of_least, ends_of_mean, holm
from bermo.analyse.labelled import Labelled
from bermo.analyse.words import Key, has_mix, layer_names, pool_words
from bermo.data.intervals import sign_test
from bermo.encoders.families import family_of
from bermo.encoders.sites import Site, encoder_of, prunable_sites
from bermo.encoders.structure import structure_of
from bermo.errors import BermoError
from bermo.methods.student import student_from_teacher
from bermo.nn.mix import LayerMix, Mix
from bermo.vectors import Encoder, stream_vectors

SAMPLE_TEXTS, SAMPLE = 200, 1000
LEAST = 4
"""Words that the unbiased estimator needs."""
TOLERANCE = 0.5
"""Points of score that a cut may cost and still count as no loss."""


@dataclass(frozen=True, kw_only=True)
class LayerFacts:
    """Similarity of all layers, the change each makes, the mix, and how near a cut model's output stays."""

    names: tuple[str, ...]
    alike: tuple[tuple[float | None, ...], ...]
    change: tuple[float, ...]
    """Of layers 1 … L."""
    cut: tuple[float | None, ...]
    """Mean cosine of the output cut after layer 1 … L with the whole output."""
    weights: tuple[float, ...]
    """Share of layers 0 … L in the mix; all on the last without a mix, none for a mix that has no shares."""
    centre: float | None
    change_ends: tuple[Ends, ...]
    cut_ends: tuple[Ends, ...]
    """Of `change` and of `cut`, over texts."""


@dataclass(frozen=True, kw_only=True)
class Kept:
    """Share of weights that are not zero: layers × matrices, and layers × heads where heads are separate."""

    matrices: tuple[str, ...]
    shares: tuple[tuple[float | None, ...], ...]
    layers: tuple[float, ...]
    heads: Grid
    total: float


@dataclass(frozen=True, kw_only=True)
class CutScores:
    """The score of the model cut after layer 1 … L; nothing is trained again."""

    metric: str
    scores: tuple[float, ...]
    rows: int = 0
    interval: Ends = None
    """Of the whole model's score, by its rows."""
    chance: tuple[float, ...] = ()
    """The p of each cut against the whole (sign test, corrected for all cuts); empty without right rows."""
    enough_ends: Ends = None
    """Of the fewest layers within the tolerance of all, by accuracy."""


@dataclass(frozen=True, eq=False)
class Sample:
    """Words and their vectors at every layer, and the mix last if there is one: (layers, N, D)."""

    keys: tuple[tuple[int, int, Key], ...]
    vectors: Tensor


def unbiased_hsic(one: Tensor, other: Tensor) -> float:
    """Return Song et al.'s estimator for two kernel matrices (N, N), N ≥ 4."""
    count = len(one)
    k, l = (matrix - torch.diag(matrix.diagonal()) for matrix in (one, other))  # noqa: E741
    both = (k.T * l).sum() + k.sum() * l.sum() / ((count - 1) * (count - 2))
    return float((both - 2 / (count - 2) * (k.sum(0) @ l.sum(1))) / (count * (count - 3)))


def alikeness(one: Tensor, other: Tensor) -> float | None:
    """Return the unbiased linear CKA of two layers' vectors (N, D) of the same words; None under four."""
    if len(one) < LEAST:
        return None
    return _normalised(_kernel(one), _kernel(other))


def _kernel(vectors: Tensor) -> Tensor:
    centred = vectors.double() - vectors.double().mean(0)
    return centred @ centred.T


def _normalised(one: Tensor, other: Tensor) -> float | None:
    scale = unbiased_hsic(one, one) * unbiased_hsic(other, other)
    return None if scale <= 0 else unbiased_hsic(one, other) / scale**0.5


def grid_of_alikeness(one: Tensor, other: Tensor) -> tuple[tuple[float | None, ...], ...]:
    """Return the alikeness of each layer of one sample (layers, N, D) with each of the other's."""
    if one.shape[1] < LEAST:
        return tuple((None,) * len(other) for _ in one)
    kernels = [_kernel(vectors).float() for vectors in other]
    own = [unbiased_hsic(kernel, kernel) for kernel in kernels]
    rows = []
    for vectors in one:
        kernel = _kernel(vectors).float()
        size = unbiased_hsic(kernel, kernel)
        rows.append(
            tuple(
                None if size * self <= 0 else unbiased_hsic(kernel, item) / (size * self) ** 0.5
                for item, self in zip(kernels, own, strict=True)
            )
        )
    return tuple(rows)


def cut_mix(mix: Mix | None, layers: Sequence[Tensor], depth: int) -> Tensor | None:
    """Return the output made of h_0 … h_depth (each (B, T, D)), or None for a mix that cannot be cut."""
    if mix is None:
        return layers[depth]
    if not isinstance(mix, LayerMix):
        return None
    chosen = [layer for layer in mix.layers if layer <= depth]
    if not chosen or (mix.norm == "across" and len(chosen) < 2):
        return None
    short = LayerMix(depth + 1, norm=mix.norm, dropout=0.0, layers=chosen, eps=mix.eps)
    with torch.no_grad():
        short.logits.copy_(mix.logits[:, [mix.layers.index(layer) for layer in chosen]])
        short.scale.copy_(mix.scale)
    return short.eval().to(layers[0].device)(layers[: depth + 1])


def take_sample(encoder: Encoder, texts: Sequence[str], max_length: int) -> Sample:
    """Read a few texts, evenly chosen, and keep the same words of them for any model that cuts them alike."""
    chosen = texts[:: max(1, len(texts) // SAMPLE_TEXTS)][:SAMPLE_TEXTS]
    a_text = -(-SAMPLE // len(chosen))
    keys: list[tuple[int, int, Key]] = []
    parts: list[Tensor] = []
    stream = stream_vectors(encoder, chosen, with_mix=has_mix(encoder), max_length=max_length)
    for batch in stream:
        words = pool_words(batch)
        kept = [k for k, position in enumerate(words.positions) if position < a_text]
        keys += [(words.rows[k], words.positions[k], words.keys[k]) for k in kept]
        parts.append(torch.stack(words.vectors)[:, kept].cpu())
    order = sorted(range(len(keys)), key=lambda k: keys[k])[:SAMPLE]
    return Sample(tuple(keys[k] for k in order), torch.cat(parts, dim=1)[:, order])


def measure_layers(
    encoder: Encoder, texts: Sequence[str], max_length: int, advance: Advance = lambda done: None
) -> LayerFacts:
    """Measure the layers of one model on a sample of words."""
    sample = take_sample(encoder, texts, max_length)
    depth = encoder.num_layers
    plain = sample.vectors[:depth]
    moved = [
        (plain[k] - plain[k - 1]).norm(dim=-1) / plain[k - 1].norm(dim=-1).clamp(min=1e-12)
        for k in range(1, depth)
    ]
    _, text = torch.unique(torch.tensor([row for row, _, _ in sample.keys]), return_inverse=True)
    words = torch.bincount(text).tolist()
    advance(1)
    weights, cut = mix_shares(encoder), _cut_likeness(encoder, texts, max_length)
    return LayerFacts(
        names=layer_names(encoder),
        alike=grid_of_alikeness(sample.vectors, sample.vectors),
        change=tuple(float(values.mean()) for values in moved),
        change_ends=tuple(
            ends_of_mean(torch.bincount(text, weights=values.double()).tolist(), words) for values in moved
        ),
        cut=tuple(value for value, _ in cut),
        cut_ends=tuple(ends for _, ends in cut),
        weights=weights,
        centre=sum(k * w for k, w in enumerate(weights)) if weights else None,
    )


@torch.inference_mode()
def _cut_likeness(encoder: Encoder, texts: Sequence[str], max_length: int) -> list[tuple[float | None, Ends]]:
    """Return the mean cosine of the output cut after each layer with the whole output, and its interval."""
    depth = encoder.num_layers - 1
    chosen = texts[:: max(1, len(texts) // SAMPLE_TEXTS)][: SAMPLE_TEXTS // 4]
    sums: list[list[float] | None] = [[] for _ in range(depth)]
    sizes: list[float] = []
    for batch in stream_vectors(encoder, chosen, max_length=max_length, batch_size=8):
        whole = cut_mix(encoder.mix, batch.vectors, depth)
        if whole is None:
            return [(None, None)] * depth
        for k in range(1, depth + 1):
            part, before = cut_mix(encoder.mix, batch.vectors, k), sums[k - 1]
            if part is None or before is None:
                sums[k - 1] = None
                continue
            cosine = cosine_similarity(part.float(), whole.float(), dim=-1) * batch.is_token
            before += cosine.double().sum(1).tolist()
        sizes += batch.is_token.sum(1).tolist()
    return [
        (None, None) if parts is None else (sum(parts) / sum(sizes), ends_of_mean(parts, sizes))
        for parts in sums
    ]


def mix_shares(encoder: Encoder) -> tuple[float, ...]:
    """Return the share of h_0 … h_L in the output; nothing for a mix that gives each text its own."""
    if encoder.mix is None:
        return (*(0.0,) * (encoder.num_layers - 1), 1.0)
    if not isinstance(encoder.mix, LayerMix):
        return ()
    known = dict(zip(encoder.mix.layers, encoder.mix.weights.tolist(), strict=True))
    return tuple(known.get(layer, 0.0) for layer in range(encoder.num_layers))


def measure_cut(labelled: Labelled, advance: Advance = lambda done: None) -> CutScores:
    """Score the model cut after each layer."""
    depth = labelled.model.config.num_hidden_layers
    judged = []
    for k in range(1, depth + 1):
        with torch.random.fork_rng(devices=[]):
            short = student_from_teacher(labelled.model, tuple(range(1, k + 1)))
        judged.append(labelled.judge(short.to(labelled.accelerator.device)))
        advance(1)
    whole = judged[-1]
    chance = [sign_test(whole.right, item.right) for item in judged[:-1] if whole.right and item.right]
    return CutScores(
        metric=labelled.metric,
        scores=tuple(item.score for item in judged),
        rows=len(labelled.features),
        interval=whole.interval,
        chance=tuple(holm(chance)),
        enough_ends=ends_of_least(range(1, depth + 1), judged, TOLERANCE),
    )


def measure_kept(encoder: Encoder) -> Kept:
    """Count the weights that are not zero, by layer, matrix and head."""
    sites = prunable_sites(encoder.backbone)
    shares: dict[int, dict[str, tuple[int, int]]] = {}
    for site in sites:
        name = site.name.split(".", 2)[2]
        weight = site.weight.detach()
        shares.setdefault(site.layer, {})[name] = (int(weight.count_nonzero()), weight.numel())
    matrices = tuple(dict.fromkeys(name for row in shares.values() for name in row))
    rows = list(shares.values())
    layers = tuple(_ratio(list(row.values())) or 0.0 for row in rows)
    return Kept(
        matrices=matrices,
        shares=tuple(tuple(_ratio([row[m]]) if m in row else None for m in matrices) for row in rows),
        layers=layers,
        heads=_kept_heads(encoder, sites),
        total=_ratio([pair for row in rows for pair in row.values()]) or 0.0,
    )


def _ratio(pairs: Sequence[tuple[int, int]]) -> float | None:
    """Return the share kept; None where a shrunk layer has nothing left of a matrix."""
    size = sum(size for _, size in pairs)
    return sum(kept for kept, _ in pairs) / size if size else None


def _kept_heads(encoder: Encoder, sites: Sequence[Site]) -> Grid:
    """Return the kept share of each head's query, key and value rows; empty where the matrices are fused."""
    config = encoder_of(encoder.backbone).config
    projections = family_of(config).projections
    if projections is None:
        return ()
    heads = [len(shape.heads) for shape in structure_of(encoder.backbone).layers]
    shares = torch.zeros(len(heads), max(heads))
    for site in sites:
        count = heads[site.layer - 1]
        if not count or site.name.split(".", 2)[2] not in projections.paths:
            continue
        weight = site.weight.detach()
        weight = weight.T if site.is_transposed else weight
        if len(weight) % count:
            raise BermoError(f"{site.name} has {len(weight)} rows, not a multiple of {count} heads.")
        # One matrix for all three holds them side by side, each with all heads.
        parts = weight.chunk(3) if len(projections.paths) == 1 else (weight,)
        for part in parts:
            share = (part != 0).float().reshape(count, -1).mean(1)
            shares[site.layer - 1, :count] += share.cpu() / 3
    return grid_of(shares, heads)
