"""Effective attention (Brunner et al. 2020, "On identifiability in Transformers").

    a head's output is p V, V (T, D) its values. Where T > D, V has a left null space: parts of p that
    change nothing.
    p_eff = p U Uᵀ,   U the left singular vectors of V with σ > 0        so that   p_eff V = p V

U Uᵀ projects onto what V can see, so p_eff is the part of p that matters. The longer the text, the larger the
null space, and the less p says; the correlation of p with p_eff shows by how much.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from bermo.analyse.attention import Advance
from bermo.analyse.certainty import Ends, ends_of_mean, told
from bermo.analyse.tokens import run_encoder, token_batches
from bermo.encoders.attention import AttentionCall, attending
from bermo.figures.data import Lines, Section, paragraphs
from bermo.vectors import Encoder

WINDOWS = 4
"""Texts of each length."""
LENGTHS = (8, 16, 32, 64, 128, 256, 512)


@dataclass(frozen=True, kw_only=True)
class EffectiveFacts:
    """For each length: tokens, the size of a head, and the correlation by layer."""

    lengths: tuple[int, ...]
    head_size: int
    correlations: tuple[tuple[float, ...], ...]
    ends: tuple[Ends, ...]
    """For each length the interval of the mean over layers, over texts."""


def effective_attention(probabilities: Tensor, value: Tensor) -> Tensor:
    """Take the null space of the values (…, T, D) out of the attention (…, T, T)."""
    left, sizes, _ = torch.linalg.svd(value.double(), full_matrices=False)
    tolerance = sizes.amax(-1, keepdim=True) * max(value.shape[-2:]) * torch.finfo(value.dtype).eps
    basis = left * (sizes > tolerance)[..., None, :]
    return (probabilities.double() @ basis @ basis.transpose(-1, -2)).to(probabilities.dtype)


def correlation(one: Tensor, other: Tensor) -> Tensor:
    """Return Pearson's correlation over the last two axes."""
    a, b = one.double().flatten(-2), other.double().flatten(-2)
    a, b = a - a.mean(-1, keepdim=True), b - b.mean(-1, keepdim=True)
    return (a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1)).clamp(min=1e-12)


def windows(encoder: Encoder, texts: Sequence[str], length: int) -> Iterator[str]:
    """Join texts until each window has at least `length` tokens; what is too much is cut when it is read."""
    parts: list[str] = []
    tokens = made = 0
    for text in texts:
        parts.append(text)
        tokens += len(encoder.tokenizer(text, verbose=False, truncation=True, max_length=length)["input_ids"])
        if tokens >= length + 2 * len(parts):
            yield " ".join(parts)
            made, parts, tokens = made + 1, [], 0
        if made == WINDOWS:
            return


@torch.inference_mode()
def measure_effective(
    encoder: Encoder, texts: Sequence[str], longest: int, advance: Advance = lambda done: None
) -> EffectiveFacts:
    """Correlate raw and effective attention on ever longer texts, joined from the given ones."""
    num_layers, head_size = encoder.num_layers - 1, 0
    lengths, rows, ends = [], [], []
    for length in (size for size in LENGTHS if size <= longest):
        joined = list(windows(encoder, texts, length))
        if not joined:
            break
        totals = torch.zeros(num_layers, dtype=torch.double)
        means = [0.0]

        def see(call: AttentionCall, totals: Tensor = totals) -> None:
            nonlocal head_size
            head_size = call.value.shape[-1]
            effective = effective_attention(call.probabilities, call.value)
            totals[call.layer - 1] += correlation(call.probabilities, effective).mean().cpu()

        # One text at a time, since padding would be part of a joint null space.
        for tokens in token_batches(encoder, joined, length, batch_size=1):
            with attending(encoder.backbone, see):
                run_encoder(encoder, tokens.batch)
            means.append(float(totals.mean()))
        lengths.append(length)
        rows.append(tuple((totals / len(joined)).tolist()))
        ends.append(ends_of_mean([after - before for before, after in pairwise(means)]))
        advance(1)
    return EffectiveFacts(
        lengths=tuple(lengths), head_size=head_size, correlations=tuple(rows), ends=tuple(ends)
    )


def effective_section(models: Mapping[str, EffectiveFacts]) -> Section:
    """Draw the correlation over the length, each model's mean over layers and its extreme layers."""
    lengths = max((item.lengths for item in models.values()), key=len)
    series: dict[str, tuple[float | None, ...]] = {}
    for name, item in models.items():
        rest = (None,) * (len(lengths) - len(item.lengths))
        for label, reduce in (("mean", _mean), ("lowest layer", min), ("highest layer", max)):
            values = tuple(float(reduce(row)) for row in item.correlations)
            series[f"{name}: {label}"] = values + rest
    figure = Lines(
        title="Raw and effective attention part as texts grow",
        x_label="tokens",
        y_label="correlation",
        x=tuple(map(float, lengths)),
        series=series,
        note="Effective attention is what is left when the null space of the values is taken out.",
    )
    lines = [
        f"{name}: a head has {item.head_size} units; the correlation goes from"
        f" {told(_mean(item.correlations[0]), item.ends[0])} at {item.lengths[0]} tokens to"
        f" {told(_mean(item.correlations[-1]), item.ends[-1])} at {item.lengths[-1]}."
        if len(item.lengths) > 1
        else f"{name}: the texts are too short to be compared by length."
        for name, item in models.items()
    ]
    return Section(title="Effective attention", text=paragraphs(lines), figures=(figure,) if lengths else ())


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
