"""What fine-tuning changed: layers put back one by one to what they were before it, and how far heads moved.

    restored l   the score with the weights of layer l as pretrained, all others as fine-tuned
    weights      ‖W_h − W_h⁰‖ / ‖W_h⁰‖ over the query, key and value rows of head h
    attention    the Jensen–Shannon divergence of the head's maps before and after, 0 to 1, over all tokens

Axes: L layers, H heads, T tokens.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bermo.analyse.attention import Advance, Grid, grid_of
from bermo.analyse.certainty import Ends, ends_of_mean, holm, told
from bermo.analyse.labelled import Labelled
from bermo.analyse.tokens import run_encoder, token_batches
from bermo.data.intervals import LEVEL, sign_test
from bermo.encoders.attention import AttentionCall, attending, can_attend, heads_of_layers
from bermo.encoders.families import family_of
from bermo.encoders.layers import layer_modules
from bermo.encoders.sites import encoder_of, layers_of, prunable_sites
from bermo.figures.data import Figure, Heat, Lines, Section, paragraphs
from bermo.vectors import Encoder

TEXTS = 32


@dataclass(frozen=True, kw_only=True)
class Restored:
    """The score with each layer as pretrained; `reason` says why nothing was measured."""

    metric: str = ""
    full: float = 0.0
    interval: tuple[float, float] | None = None
    names: tuple[str, ...] = ()
    scores: tuple[float, ...] = ()
    chance: tuple[float, ...] = ()
    """The p of the sign test against the fine-tuned model, corrected (Holm); empty without right rows."""
    rows: int = 0
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Moved:
    """How far each head moved, layers × heads; a grid is empty where it cannot be measured."""

    weights: Grid = ()
    attention: Grid = ()
    attention_ends: Ends = None
    """Of the mean over all heads, over texts."""
    reason: str = ""


def mismatch(tuned: nn.Module, base: nn.Module) -> str:
    """Say why two encoders cannot be compared weight by weight, or nothing."""
    shapes = [
        {name: tuple(value.shape) for name, value in model.state_dict().items()} for model in (tuned, base)
    ]
    if shapes[0] == shapes[1]:
        return ""
    return "The model's weights have other shapes than those of the encoder that it was made from."


def measure_restored(labelled: Labelled, base: Encoder, advance: Advance = lambda done: None) -> Restored:
    """Score the model with the embeddings, each layer, and all of them, as they were before fine-tuning."""
    model = copy.deepcopy(labelled.model)
    encoder = encoder_of(model)
    reason = mismatch(encoder, base.backbone)
    if reason:
        return Restored(reason=reason)
    family = family_of(encoder.config)
    embeddings = [
        (encoder.get_submodule(name), base.backbone.get_submodule(name)) for name in family.layers.embeddings
    ]
    layers = list(zip(layers_of(model), layer_modules(base.backbone, family), strict=True))
    parts = {"embeddings": embeddings} | {str(k): [pair] for k, pair in enumerate(layers, start=1)}
    parts["all"] = embeddings + layers
    full, scores, chances = labelled.judge(), [], []
    for pairs in parts.values():
        before = [copy.deepcopy(own.state_dict()) for own, _ in pairs]
        for own, pretrained in pairs:
            own.load_state_dict(pretrained.state_dict())
        judged = labelled.judge(model)
        for (own, _), state in zip(pairs, before, strict=True):
            own.load_state_dict(state)
        scores.append(judged.score)
        chances += [sign_test(full.right, judged.right)] if full.right and judged.right else []
        advance(1)
    return Restored(
        metric=labelled.metric,
        full=full.score,
        interval=full.interval,
        names=tuple(parts),
        scores=tuple(scores),
        chance=tuple(holm(chances)),
        rows=len(labelled.features),
    )


def measure_moved(
    encoder: Encoder, base: Encoder, texts: Sequence[str], longest: int, advance: Advance = lambda done: None
) -> Moved:
    """Compare every head's weights and, on a few texts, its attention, with those before fine-tuning."""
    reason = mismatch(encoder.backbone, base.backbone)
    if reason:
        return Moved(reason=reason)
    chosen = texts[:: max(1, len(texts) // TEXTS)][:TEXTS]
    can = can_attend(encoder.backbone)
    attention, ends = _attention_moved(encoder, base, chosen, longest) if can else ((), None)
    advance(1)
    return Moved(weights=_weights_moved(encoder, base), attention=attention, attention_ends=ends)


def _weights_moved(encoder: Encoder, base: Encoder) -> Grid:
    """Return the relative change of each head's rows; empty where a family's projections are not known."""
    projections = family_of(encoder.backbone.config).projections
    if projections is None:
        return ()
    counts = [len(row) for row in _rows_of_heads(encoder)]
    change, size = (torch.zeros(len(counts), max(counts), dtype=torch.double) for _ in range(2))
    for own, other in zip(prunable_sites(encoder.backbone), prunable_sites(base.backbone), strict=True):
        if own.name.split(".", 2)[2] not in projections.paths:
            continue
        pair = [site.weight.detach().double().cpu() for site in (own, other)]
        pair = [weight.T if own.is_transposed else weight for weight in pair]
        # One matrix for all three holds them side by side, each with all heads.
        for new, old in zip(
            *(w.chunk(3) if len(projections.paths) == 1 else (w,) for w in pair), strict=True
        ):
            row, count = own.layer - 1, counts[own.layer - 1]
            change[row, :count] += (new - old).reshape(count, -1).square().sum(1)
            size[row, :count] += old.reshape(count, -1).square().sum(1)
    return grid_of((change / size.clamp(min=1e-30)).sqrt(), counts)


def _rows_of_heads(encoder: Encoder) -> list[range]:
    """The heads of each distinct layer: ALBERT has one that is called several times."""
    heads = heads_of_layers(encoder.backbone)
    distinct = len(layers_of(encoder.backbone))
    return [range(heads[k * len(heads) // distinct]) for k in range(distinct)]


@torch.inference_mode()
def _attention_moved(
    encoder: Encoder, base: Encoder, texts: Sequence[str], longest: int
) -> tuple[Grid, Ends]:
    counts = heads_of_layers(encoder.backbone)
    total = torch.zeros(len(counts), max(counts), dtype=torch.double)
    of_texts: list[float] = []
    sizes: list[float] = []
    for batch in token_batches(encoder, texts, longest):
        before, weights = _maps(base, batch), batch.is_token[:, None].cpu()
        mean = torch.zeros(len(weights), dtype=torch.double)
        for layer, after in _maps(encoder, batch).items():
            apart = divergence(before[layer], after)
            total[layer - 1, : apart.shape[1]] += (apart * weights).sum((0, 2))
            mean += (apart * weights).sum((1, 2)) / sum(counts)
        of_texts += mean.tolist()
        sizes += weights.sum((1, 2)).tolist()
    return grid_of(total / max(1.0, sum(sizes)), list(counts)), ends_of_mean(of_texts, sizes)


def _maps(encoder: Encoder, batch: object) -> dict[int, Tensor]:
    seen: dict[int, Tensor] = {}

    def see(call: AttentionCall) -> None:
        seen[call.layer] = call.probabilities.double().cpu()

    with attending(encoder.backbone, see):
        run_encoder(encoder, batch.batch)  # type: ignore[attr-defined]
    return seen


def divergence(one: Tensor, other: Tensor) -> Tensor:
    """Return the Jensen–Shannon divergence over the last axis, in bits: 0 for the same, 1 at most."""
    middle = (one + other) / 2
    parts = [torch.where(p > 0, p * (p / middle.clamp(min=1e-30)).log2(), 0.0) for p in (one, other)]
    return (parts[0].sum(-1) + parts[1].sum(-1)) / 2


def restored_section(models: Mapping[str, Restored]) -> Section:
    """Draw the score with each part as pretrained."""
    able = {name: item for name, item in models.items() if not item.reason}
    lines = [f"{name}: {item.reason}" for name, item in models.items() if item.reason]
    figures: list[Figure] = []
    for name, item in able.items():
        inner = item.scores[:-1]
        figures.append(
            Lines(
                title=f"{name}: score with one layer as before fine-tuning",
                x_label="layer put back (0: embeddings)",
                y_label=item.metric,
                x=tuple(map(float, range(len(inner)))),
                series={
                    "one put back": inner,
                    "fine-tuned": (item.full,) * len(inner),
                    "all put back": (item.scores[-1],) * len(inner),
                },
            )
        )
        lines.append(_said(name, item))
    return Section(title="Fine-tuning: layers put back", text=paragraphs(lines), figures=tuple(figures))


def _said(name: str, item: Restored) -> str:
    worst = min(range(len(item.scores) - 1), key=lambda k: item.scores[k])
    ends = "" if item.interval is None else f" ({item.interval[0]:.1f} … {item.interval[1]:.1f})"
    sure = sum(p < LEVEL for p in item.chance[:-1])
    test = (
        f" Of {len(item.scores) - 1} parts put back alone, {sure} change the answers beyond chance (sign"
        " test, Holm's correction)."
        if item.chance
        else ""
    )
    return (
        f"{name}: {item.metric} {item.full:.2f}{ends} on {item.rows} rows; with all put back"
        f" {item.scores[-1]:.2f}{_chance(item, -1)}; the most is lost with {_part(item.names[worst])}:"
        f" {item.scores[worst]:.2f}{_chance(item, worst)}.{test}"
    )


def _chance(item: Restored, at: int) -> str:
    return f" (p {item.chance[at]:.2f}, corrected)" if item.chance else ""


def _part(name: str) -> str:
    return name if name == "embeddings" else f"layer {name}"


def moved_section(models: Mapping[str, Moved]) -> Section:
    """Draw how far heads moved, by weights and by attention."""
    figures: list[Figure] = []
    lines = []
    for name, item in models.items():
        if item.reason:
            lines.append(f"{name}: {item.reason}")
        for what, grid in (("weights", item.weights), ("attention", item.attention)):
            if grid:
                figures.append(_heat(name, what, grid))
                lines.append(_most(name, what, grid, item.attention_ends))
    return Section(title="Fine-tuning: heads moved", text=paragraphs(lines), figures=tuple(figures))


def _heat(name: str, what: str, grid: Grid) -> Heat:
    return Heat(
        title=f"{name}: change of each head's {what}",
        x_label="head",
        y_label="layer",
        columns=tuple(str(k + 1) for k in range(max(map(len, grid)))),
        rows=tuple(str(k + 1) for k in range(len(grid))),
        values=grid,
        digits=3,
    )


def _most(name: str, what: str, grid: Grid, ends: Ends) -> str:
    known = [(v, r + 1, c + 1) for r, row in enumerate(grid) for c, v in enumerate(row) if v is not None]
    value, layer, head = max(known)
    mean = sum(v for v, _, _ in known) / len(known)
    # Weights are all counted; attention is read on some texts.
    average = f"{mean:.3f}" if what == "weights" else told(mean, ends)
    return (
        f"{name}: the {what} of heads changed by {average} on average, most in {layer}.{head} ({value:.3f})."
    )
