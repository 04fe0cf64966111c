"""Does a hidden vector still name its token (Brunner et al. 2020, "On identifiability in Transformers")?

    x_i = h_i^0, the token's input vector; h_i^l, its vector at layer l
    nearest   i is found again if cos(h_i^l, x_j) is largest at j = i, over the tokens j of the same text
    linear    the same with g_l(h_i^l), g_l the ridge regression of x on h^l over the other half of the texts

Memory: two D × D matrices a layer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from bermo.analyse.attention import Advance
from bermo.analyse.certainty import Ends, ends_of_share, told
from bermo.figures.data import Lines, Section, paragraphs
from bermo.printing import percent
from bermo.vectors import Encoder, TokenVectors, stream_vectors

RIDGE = 1e-2
"""Penalty of the ridge regression as a share of the mean variance of a unit."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Share of tokens found again at each layer; `linear` is None where there was only one text."""

    nearest: tuple[float, ...]
    linear: tuple[float | None, ...]
    chance: float
    """Share that guessing within the text would find."""
    num_tokens: int
    nearest_ends: tuple[Ends, ...]
    linear_ends: tuple[Ends, ...]


def found_again(hidden: Tensor, inputs: Tensor, is_token: Tensor) -> Tensor:
    """Count in each text (B) the tokens (B, T, D) whose own input vector is the nearest in their text."""
    cosines = normalize(hidden.float(), dim=-1) @ normalize(inputs.float(), dim=-1).transpose(1, 2)
    cosines = cosines.masked_fill(~is_token[:, None, :], -2.0)
    position = torch.arange(hidden.shape[1], device=hidden.device)
    hits = (cosines.argmax(-1) == position) & is_token
    return hits.sum(1)


class LinearMap:
    """Ridge regression with an intercept, from running sums: g(h) = (h − μ_h) W + μ_x."""

    def __init__(self, size: int) -> None:
        self.hh = torch.zeros(size, size, dtype=torch.double)
        self.hx = torch.zeros(size, size, dtype=torch.double)
        self.h = torch.zeros(size, dtype=torch.double)
        self.x = torch.zeros(size, dtype=torch.double)
        self.count = 0

    def add(self, hidden: Tensor, inputs: Tensor) -> None:
        """Add rows (N, D) of vectors and the input vectors they should give."""
        h, x = hidden.cpu(), inputs.cpu()
        # Products in single precision, sums in double: a batch is short, the stream is not.
        self.hh += (h.T @ h).double()
        self.hx += (h.T @ x).double()
        self.h += h.double().sum(0)
        self.x += x.double().sum(0)
        self.count += len(h)

    def solve(self) -> tuple[Tensor, Tensor]:
        """Return W (D, D) and the intercept (D)."""
        mean_h, mean_x = self.h / self.count, self.x / self.count
        covariance = self.hh / self.count - torch.outer(mean_h, mean_h)
        cross = self.hx / self.count - torch.outer(mean_h, mean_x)
        penalty = RIDGE * covariance.diagonal().mean().clamp(min=1e-12)
        eye = torch.eye(len(covariance), dtype=torch.double)
        weight = torch.linalg.solve(covariance + penalty * eye, cross)
        return weight, mean_x - mean_h @ weight


def measure_identity(
    encoder: Encoder, texts: Sequence[str], max_length: int, advance: Advance = lambda done: None
) -> Identity:
    """Match each token to its input in its text; maps are fitted on every other text, scored on the rest."""
    learn, test = texts[1::2], texts[::2]
    maps = [LinearMap(encoder.hidden_size) for _ in range(encoder.num_layers)]
    for batch in stream_vectors(encoder, learn, max_length=max_length):
        inputs = batch.vectors[0][batch.is_token]
        for layer, hidden in enumerate(batch.vectors):
            maps[layer].add(hidden[batch.is_token], inputs)
        advance(len(batch.rows))
    solved = [item.solve() for item in maps] if learn else []
    sizes: list[float] = []
    parts: list[Tensor] = []
    for batch in stream_vectors(encoder, test, max_length=max_length):
        sizes += batch.is_token.sum(1).tolist()
        parts.append(torch.stack([_hits(batch, layer, solved) for layer in range(encoder.num_layers)], 1))
        advance(len(batch.rows))
    total = max(1, int(sum(sizes)))
    nearest, linear = torch.cat(parts, dim=2).tolist()
    return Identity(
        nearest=tuple(sum(hits) / total for hits in nearest),
        linear=tuple(sum(hits) / total if learn else None for hits in linear),
        # One token a text is found by guessing.
        chance=len(sizes) / total,
        num_tokens=int(sum(sizes)),
        nearest_ends=tuple(ends_of_share(hits, sizes) for hits in nearest),
        linear_ends=tuple(ends_of_share(hits, sizes) for hits in linear),
    )


def _hits(batch: TokenVectors, layer: int, solved: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Return how many tokens of each text are found as they are and after the linear map, (2, B)."""
    inputs, hidden = batch.vectors[0], batch.vectors[layer]
    nearest = found_again(hidden, inputs, batch.is_token)
    if not solved:
        return torch.stack([nearest, torch.zeros_like(nearest)]).cpu()
    weight, shift = (part.to(hidden) for part in solved[layer])
    return torch.stack([nearest, found_again(hidden @ weight + shift, inputs, batch.is_token)]).cpu()


def identity_section(models: Mapping[str, Identity]) -> Section:
    """Draw the share of tokens found again over the layers."""
    depth = max(len(item.nearest) for item in models.values())
    series: dict[str, tuple[float | None, ...]] = {}
    for name, item in models.items():
        rest = (None,) * (depth - len(item.nearest))
        series[f"{name}: nearest"] = item.nearest + rest
        series[f"{name}: linear map"] = item.linear + rest
    chance = ", ".join(f"{name} {percent(item.chance)}" for name, item in models.items())
    figure = Lines(
        title="Share of tokens that their vector still names",
        x_label="layer (0: embeddings)",
        y_label="share of tokens",
        x=tuple(map(float, range(depth))),
        series=series,
        note=f"Among the tokens of the same text; guessing finds: {chance}.",
    )
    lines = [_said(name, item) for name, item in models.items()]
    return Section(title="Token identity", text=paragraphs(lines), figures=(figure,))


def _said(name: str, item: Identity) -> str:
    near, mapped = told(item.nearest[-1], item.nearest_ends[-1], ".1%"), item.linear[-1]
    after = "" if mapped is None else f", {told(mapped, item.linear_ends[-1], '.1%')} after a linear map"
    return (
        f"{name}: at the last layer {near} of {item.num_tokens} tokens are nearest to their own input{after}."
    )
