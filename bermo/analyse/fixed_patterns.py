"""How well each head is one of the fixed patterns (Raganato et al. 2020), for all heads at once.

    share of a pattern   of all tokens that attend, those whose most attended token is the pattern's:
                         the previous, the next, the same, the first, the last, or any punctuation

A token that has no such other (the first has none before it) does not count for the pattern. The last token
is the separator, where the family has one. Axes: B texts, H heads, T tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bermo.analyse.attention import Advance, Grid, grid_of
from bermo.analyse.certainty import num_sure
from bermo.analyse.tokens import Tokens, run_encoder, token_batches
from bermo.data.intervals import two_sided
from bermo.encoders.attention import AttentionCall, attending, heads_of_layers
from bermo.figures.data import Figure, Heat, Section, Table, paragraphs
from bermo.printing import percent
from bermo.vectors import Encoder

FIXED = ("previous", "next", "same", "first", "last", "punctuation")
MOSTLY = 0.5
"""A head of which more than this share follows a pattern is said to be one."""


@dataclass(frozen=True, kw_only=True)
class FixedFacts:
    """For each pattern the share of tokens that follow it, layers × heads, and of how many tokens."""

    shares: Mapping[str, Grid]
    tokens: int
    texts: int
    chance: Mapping[str, Grid]
    """The p of as many texts of which more than half, or less, of the tokens follow the pattern."""


def pattern_targets(tokens: Tokens) -> dict[str, Tensor]:
    """Return for each pattern which tokens it attends to from each, (B, T, T)."""
    is_token = tokens.is_token
    length = is_token.shape[1]
    position = torch.arange(length, device=is_token.device)
    step = position[None, :] - position[:, None]
    both = is_token[:, :, None] & is_token[:, None, :]
    last = position == (is_token.long() * position).argmax(1)[:, None]
    columns = {"first": tokens.is_first, "last": last, "punctuation": tokens.is_punctuation}
    offsets = {"previous": -1, "next": 1, "same": 0}
    return {
        **{name: (step == offset) & both for name, offset in offsets.items()},
        **{name: mask[:, None, :] & both for name, mask in columns.items()},
    }


@torch.inference_mode()
def measure_fixed_patterns(
    encoder: Encoder, texts: Sequence[str], max_length: int, advance: Advance = lambda done: None
) -> FixedFacts:
    """Read the most attended token of every token in every head over the texts."""
    heads = heads_of_layers(encoder.backbone)
    right = {name: torch.zeros(len(heads), max(heads), dtype=torch.double) for name in FIXED}
    above, below = (
        {name: torch.zeros(len(heads), max(heads), dtype=torch.long) for name in FIXED} for _ in range(2)
    )
    totals = dict.fromkeys(FIXED, 0)
    num_tokens = num_texts = 0
    for tokens in token_batches(encoder, texts, max_length):
        targets = pattern_targets(tokens)
        possible = {name: target.any(-1) for name, target in targets.items()}

        def see(
            call: AttentionCall,
            targets: Mapping[str, Tensor] = targets,
            possible: Mapping[str, Tensor] = possible,
        ) -> None:
            chosen = call.probabilities.argmax(-1, keepdim=True)
            for name in FIXED:
                wide = targets[name][:, None].expand(*call.probabilities.shape)
                hits = wide.gather(-1, chosen)[..., 0] & possible[name][:, None]
                there = slice(hits.shape[1])
                right[name][call.layer - 1, there] += hits.sum((0, 2)).double().cpu()
                lead = 2 * hits.sum(2) - possible[name].sum(1)[:, None]
                above[name][call.layer - 1, there] += (lead > 0).sum(0).cpu()
                below[name][call.layer - 1, there] += (lead < 0).sum(0).cpu()

        with attending(encoder.backbone, see):
            run_encoder(encoder, tokens.batch)
        for name in FIXED:
            totals[name] += int(possible[name].sum())
        num_tokens += int(tokens.is_token.sum())
        num_texts += len(tokens.is_token)
        advance(len(tokens.is_token))
    return FixedFacts(
        shares={name: grid_of(right[name] / max(1, totals[name]), heads) for name in FIXED},
        tokens=num_tokens,
        texts=num_texts,
        chance={name: _chances(above[name], below[name], heads) for name in FIXED},
    )


def _chances(above: Tensor, below: Tensor, heads: Sequence[int]) -> Grid:
    rows = zip(above.tolist(), below.tolist(), strict=True)
    values = [[two_sided(*pair) for pair in zip(more, fewer, strict=True)] for more, fewer in rows]
    return grid_of(torch.tensor(values, dtype=torch.double), heads)


def fixed_patterns_section(models: Mapping[str, FixedFacts]) -> Section:
    """Draw each head's nearest pattern, and how well it fits."""
    figures: list[Figure] = []
    lines = []
    for name, facts in models.items():
        best = nearest(facts)
        there = [cell for row in best for cell in row if cell is not None]
        mostly = [pattern for pattern, share in there if share > MOSTLY]
        counts = ", ".join(f"{mostly.count(p)} {p}" for p in FIXED if p in mostly)
        lines.append(
            f"{name}: {len(mostly)} of {len(there)} heads follow one fixed pattern for most of"
            f" {facts.tokens:,} tokens{': ' if counts else ''}{counts}; {_sure(facts, best)} of them beyond"
            f" chance (sign test of the texts of which more than half, or less, follow it, over {facts.texts}"
            f" texts, corrected for {len(there)} heads)."
        )
        figures += [_table(name, best), _heat(name, best)]
    return Section(title="Heads as fixed patterns", text=paragraphs(lines), figures=tuple(figures))


def nearest(facts: FixedFacts) -> list[list[tuple[str, float] | None]]:
    """Return the pattern that each head follows most often, and how often; None where there is no head."""
    grids = [facts.shares[name] for name in FIXED]
    best: list[list[tuple[str, float] | None]] = []
    for rows in zip(*grids, strict=True):
        cells: list[tuple[str, float] | None] = []
        for values in zip(*rows, strict=True):
            known = [(value, name) for value, name in zip(values, FIXED, strict=True) if value is not None]
            cells.append((max(known)[1], max(known)[0]) if known else None)
        best.append(cells)
    return best


def _sure(facts: FixedFacts, best: Sequence[Sequence[tuple[str, float] | None]]) -> int:
    """Return how many heads follow their pattern in more texts than chance would give."""
    # A head that follows none for most tokens is a try that found nothing.
    values = [
        (facts.chance[cell[0]][layer][head] if cell[1] > MOSTLY else None) or 1.0
        for layer, row in enumerate(best)
        for head, cell in enumerate(row)
        if cell is not None
    ]
    return num_sure(values)


def _table(name: str, best: Sequence[Sequence[tuple[str, float] | None]]) -> Table:
    return Table(
        title=f"{name}: the fixed pattern nearest to each head",
        columns=("layer", *(f"head {head}" for head in range(1, len(best[0]) + 1))),
        rows=tuple(
            (str(layer), *(None if cell is None else f"{cell[0]} {percent(cell[1], 0)}" for cell in row))
            for layer, row in enumerate(best, start=1)
        ),
        note=f"The share of tokens whose most attended token is the pattern's: {', '.join(FIXED)}.",
    )


def _heat(name: str, best: Sequence[Sequence[tuple[str, float] | None]]) -> Heat:
    return Heat(
        title=f"{name}: how well one fixed pattern describes each head",
        x_label="head",
        y_label="layer",
        unit="share of tokens",
        values=tuple(tuple(None if cell is None else cell[1] for cell in row) for row in best),
        columns=tuple(str(head) for head in range(1, len(best[0]) + 1)),
        rows=tuple(str(layer) for layer in range(1, len(best) + 1)),
        limits=(0.0, 1.0),
    )
