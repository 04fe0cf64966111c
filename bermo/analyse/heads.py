"""What heads are worth (Michel et al. 2019, "Are sixteen heads really better than one?"; Voita et al. 2019).

    importance   I_h = E_x |∂L(x) / ∂ξ_h| at ξ = 1, ξ_h the gate of head h; for an order over layers,
                 each layer's I is divided by its length
    one off      the score with ξ_h = 0
    one left     the score with all other heads of the layer off
    pruning      the score as heads go by importance, a tenth at a time, importance measured anew each time
    fixed        the score with the head's attention replaced by the position pattern nearest to it
                 (Raganato et al. 2020, "Fixed encoder self-attention patterns")

Axes: L layers, B texts, H heads.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bermo.analyse.attention import Advance, Grid, grid_of
from bermo.analyse.certainty import Ends, Judged, ends_of_least
from bermo.analyse.labelled import Labelled
from bermo.data.intervals import sign_test
from bermo.encoders.attention import AttentionCall, attending, heads_of_layers
from bermo.encoders.sites import encoder_of

STEPS = 10
POINT = 1.0
"""Points of score that heads may cost and still count as not missed."""
PATTERNS = ("itself", "previous", "next", "first", "last", "all before", "all after", "all")


@dataclass(frozen=True, kw_only=True)
class Importance:
    """Importance by gradient, layers × heads, and the score with all heads on."""

    metric: str
    full: float
    importance: Grid
    rows: int = 0
    interval: tuple[float, float] | None = None
    """Of the score with all heads on, by its rows."""


@dataclass(frozen=True, kw_only=True)
class Scan:
    """The score with something done to each head alone, layers × heads; `patterns` where one replaced it."""

    metric: str
    full: float
    scores: Grid
    patterns: tuple[tuple[str, ...], ...] = ()
    chance: Grid = ()
    """The p of the sign test against all heads on, uncorrected; empty where rows are not right or wrong."""
    rows: int = 0
    interval: tuple[float, float] | None = None
    """Of the score with all heads on, by its rows."""
    is_one_answer: bool = False
    """Whether the model gives one answer to everything, so that no head can be judged."""


@dataclass(frozen=True, kw_only=True)
class Pruning:
    """The score with ever fewer heads, by importance and by a random order."""

    metric: str
    kept: tuple[float, ...]
    by_importance: tuple[float, ...]
    at_random: tuple[float, ...]
    rows: int = 0
    interval: tuple[float, float] | None = None
    """Of the score with all heads on, by its rows."""
    chance: tuple[float, ...] = ()
    """The p of each step by importance against all heads on (sign test); empty without right rows."""
    least_ends: Ends = None
    """Of the least share of heads within a point of all, by accuracy."""


def heads_there(labelled: Labelled) -> tuple[int, ...]:
    """Return how many heads each layer has."""
    return heads_of_layers(encoder_of(labelled.model))


def all_on(labelled: Labelled) -> Tensor:
    """Return gates that change nothing (L, H)."""
    heads = heads_there(labelled)
    return torch.ones(len(heads), max(heads))


def score_with(labelled: Labelled, gates: Tensor) -> float:
    """Return the score under the gates."""
    return judge_with(labelled, gates).score


def judge_with(labelled: Labelled, gates: Tensor) -> Judged:
    """Return the score under the gates, and which rows were right."""
    with attending(encoder_of(labelled.model), gates=gates.to(labelled.accelerator.device)):
        return labelled.judge()


def gate_gradients(labelled: Labelled, gates: Tensor, batch: dict[str, Tensor]) -> Tensor:
    """Return |∂L(x)/∂ξ| for each row x of a batch, as (L, B, H)."""
    rows = len(batch["input_ids"])
    choices = batch["input_ids"].shape[1] if batch["input_ids"].dim() == 3 else 1
    device = batch["input_ids"].device
    own = gates.to(device)[:, None].repeat(1, rows, 1).requires_grad_()
    spread = own[:, :, None].expand(-1, -1, choices, -1).flatten(1, 2)
    with torch.enable_grad(), attending(encoder_of(labelled.model), gates=spread):
        # The loss is a mean over the rows, and each row's gate moves its own part only.
        loss = labelled.model(**batch).loss * rows
        (gradient,) = torch.autograd.grad(loss, own)
    return gradient.abs()


def head_importance(labelled: Labelled, gates: Tensor | None = None) -> Tensor:
    """Return I_h (L, H) over all rows, at the given gates."""
    gates = all_on(labelled) if gates is None else gates
    total, rows = torch.zeros(gates.shape, dtype=torch.double), 0
    for batch in labelled.batches(batch_size=16):
        gradients = gate_gradients(labelled, gates, batch)
        total += gradients.sum(1).double().cpu()
        rows += gradients.shape[1]
    return total / rows


def measure_importance(labelled: Labelled, advance: Advance = lambda done: None) -> Importance:
    """Measure the importance of all heads."""
    full = labelled.judge()
    return Importance(
        metric=labelled.metric,
        full=full.score,
        importance=grid_of(head_importance(labelled), heads_there(labelled)),
        rows=len(labelled.features),
        interval=full.interval,
    )


def measure_one_off(labelled: Labelled, advance: Advance = lambda done: None) -> Scan:
    """Score the model with each head off alone."""

    def gates(layer: int, head: int) -> Tensor:
        switches = all_on(labelled)
        switches[layer, head] = 0
        return switches

    return _scan(labelled, gates, advance)


def measure_one_left(labelled: Labelled, advance: Advance = lambda done: None) -> Scan:
    """Score the model with each head as the only one of its layer."""

    def gates(layer: int, head: int) -> Tensor:
        switches = all_on(labelled)
        switches[layer] = 0
        switches[layer, head] = 1
        return switches

    return _scan(labelled, gates, advance)


def _scan(labelled: Labelled, gates: Callable[[int, int], Tensor], advance: Advance) -> Scan:
    return _compared(labelled, lambda layer, head: judge_with(labelled, gates(layer, head)), advance)


def _compared(labelled: Labelled, judge: Callable[[int, int], Judged], advance: Advance) -> Scan:
    """Judge the model with something done to each head, beside the model as it is."""
    heads, full = heads_there(labelled), labelled.judge()
    scores, chance = all_on(labelled).double(), all_on(labelled).double()
    for layer, count in enumerate(heads):
        for head in range(count):
            judged = judge(layer, head)
            scores[layer, head] = judged.score
            if full.right is not None and judged.right is not None:
                chance[layer, head] = sign_test(full.right, judged.right)
            advance(1)
    return Scan(
        metric=labelled.metric,
        full=full.score,
        scores=grid_of(scores, heads),
        chance=() if full.right is None else grid_of(chance, heads),
        rows=len(labelled.features),
        interval=full.interval,
        is_one_answer=full.is_one_answer,
    )


def prune_order(importance: Tensor) -> list[int]:
    """Return all heads, least important first; importance is made comparable between layers."""
    scaled = importance / importance.norm(dim=1, keepdim=True).clamp(min=1e-20)
    return [int(index) for index in scaled.flatten().argsort(stable=True)]


def measure_pruning(labelled: Labelled, advance: Advance = lambda done: None) -> Pruning:
    """Take heads away in tenths until none is left, by importance and at random."""
    there = torch.tensor(heads_there(labelled))[:, None] > torch.arange(all_on(labelled).shape[1])
    places = there.flatten().nonzero()[:, 0].tolist()
    total = len(places)
    counts = sorted({round(total * step / STEPS) for step in range(STEPS + 1)})
    order = torch.randperm(total, generator=torch.Generator().manual_seed(0)).tolist()
    random = [places[index] for index in order]
    found: dict[bool, list[Judged]] = {True: [], False: []}
    for is_random in (False, True):
        gates = all_on(labelled)
        for count in counts:
            if is_random:
                gates.view(-1)[random[:count]] = 0
            elif count:
                on = {place for place in places if gates.view(-1)[place]}
                least = [place for place in prune_order(head_importance(labelled, gates)) if place in on]
                gates.view(-1)[least[: len(on) - (total - count)]] = 0
            found[is_random].append(judge_with(labelled, gates))
            advance(1)
    full, *fewer = found[False]
    kept = tuple(1 - count / total for count in counts)
    return Pruning(
        metric=labelled.metric,
        kept=kept,
        by_importance=tuple(item.score for item in found[False]),
        at_random=tuple(item.score for item in found[True]),
        rows=len(labelled.features),
        interval=full.interval,
        chance=tuple(sign_test(full.right, item.right) for item in fewer if full.right and item.right),
        least_ends=ends_of_least(kept, found[False], POINT),
    )


def pattern_map(name: str, probabilities: Tensor) -> Tensor:
    """Return a fixed pattern (B, 1, T, T) as wide as the attention.

    A row that could attend to nothing under the pattern keeps its own attention.

    What can be attended to is read from the attention itself: where a mask hides a token, its probability is
    exactly 0.
    """
    allowed = (probabilities > 0).any(1, keepdim=True)
    position = torch.arange(probabilities.shape[-1], device=probabilities.device)
    query, seen = position[:, None], position
    first = allowed.any(-2).float().argmax(-1)[..., None, None]
    last = position[-1] - allowed.any(-2).flip(-1).float().argmax(-1)[..., None, None]
    wanted = {
        "itself": seen == query,
        "previous": seen == query - 1,
        "next": seen == query + 1,
        "first": seen == first,
        "last": seen == last,
        "all before": seen < query,
        "all after": seen > query,
        "all": seen == seen,
    }[name]
    kept = (wanted & allowed).to(probabilities.dtype)
    total = kept.sum(-1, keepdim=True)
    return torch.where(total > 0, kept / total.clamp(min=1), probabilities.mean(1, keepdim=True))


@torch.inference_mode()
def nearest_patterns(labelled: Labelled) -> list[list[str]]:
    """Return for each head the pattern nearest to its attention by the mean of Σ_j min(p_ij, f_ij)."""
    overlap = torch.zeros(*all_on(labelled).shape, len(PATTERNS), dtype=torch.double)
    is_token: Tensor

    def see(call: AttentionCall) -> None:
        p = call.probabilities
        for index, name in enumerate(PATTERNS):
            shared = torch.minimum(p, pattern_map(name, p)).sum(-1)
            mean = (shared * is_token[:, None]).sum((0, -1)).double().cpu()
            overlap[call.layer - 1, : len(mean), index] += mean

    for number, batch in enumerate(labelled.batches(batch_size=16)):
        mask = batch["attention_mask"]
        is_token = mask.flatten(0, -2).float()
        inputs = {k: v for k, v in batch.items() if k in ("input_ids", "attention_mask", "token_type_ids")}
        with attending(encoder_of(labelled.model), see):
            labelled.model(**inputs)
        # Two batches are enough to see a head's habit.
        if number == 1:
            break
    nearest = zip(overlap.argmax(-1).tolist(), heads_there(labelled), strict=True)
    return [[PATTERNS[k] for k in row[:count]] for row, count in nearest]


def measure_fixed(labelled: Labelled, advance: Advance = lambda done: None) -> Scan:
    """Score the model with each head's attention replaced by its nearest fixed pattern, alone."""
    nearest = nearest_patterns(labelled)

    def judge(layer: int, head: int) -> Judged:
        with attending(encoder_of(labelled.model), _replacing(layer + 1, {head: nearest[layer][head]})):
            return labelled.judge()

    return replace(_compared(labelled, judge, advance), patterns=tuple(map(tuple, nearest)))


def _replacing(layer: int, heads: dict[int, str]) -> Callable[[AttentionCall], Tensor | None]:
    def exchange(call: AttentionCall) -> Tensor | None:
        if call.layer != layer:
            return None
        changed = call.probabilities.clone()
        for head, name in heads.items():
            changed[:, head] = pattern_map(name, call.probabilities)[:, 0]
        return changed

    return exchange
