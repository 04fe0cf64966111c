"""What heads attend to (Clark et al. 2019, "What does BERT look at?"; Kovaleva et al. 2019 for the classes).

    share on S      mean over tokens i of Σ_{j ∈ S} p_ij      S: first token, separators, punctuation, itself
    distance(a, b)  mean over tokens i of JS(p_i^a ‖ p_i^b)         in bits: 0 the same, 1 nothing in common
    map of heads    classical scaling of the distances to two dimensions

Attention is read layer by layer while the encoder runs and reduced at once: no map outlives its batch. Axes:
B texts, H heads, T tokens.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bermo.analyse.certainty import Ends, ends_of_mean, num_sure, told
from bermo.analyse.patterns import CLASSES, map_features, pattern_classifier
from bermo.analyse.tokens import Tokens, run_encoder, token_batches
from bermo.data.intervals import two_sided
from bermo.encoders.attention import AttentionCall, attending, heads_of_layers
from bermo.figures.data import Figure, Heat, Lines, Number, Points, Section, Table, paragraphs
from bermo.printing import percent
from bermo.vectors import Encoder

TARGETS = ("first token", "separators", "punctuation", "itself", "neighbours")
CLASS_TEXTS, DISTANCE_TEXTS, DISTANCE_TOKENS = 100, 16, 32
Grid = tuple[tuple[Number, ...], ...]
"""Layers × heads; None where a shrunk layer has no such head."""
Advance = Callable[[int], None]


@dataclass(frozen=True, kw_only=True)
class AttentionFacts:
    """Grids of layers × heads, and the map of all heads."""

    shares: Mapping[str, Grid]
    """For each target, the share of a head's attention that goes there."""
    token_shares: Mapping[str, float]
    """For each target, its share of all positions that can be attended to, which a uniform head gives it."""
    entropy: Grid
    """Mean entropy of a token's attention, in bits."""
    classes: tuple[tuple[str, ...], ...]
    """Of the heads that each layer has."""
    class_shares: Mapping[str, tuple[Number, ...]]
    """For each class, the share of a layer's maps that are of it."""
    accuracy: float
    distances: Grid
    """Between all heads that there are, layer by layer."""
    plane: tuple[tuple[float, float], ...]
    class_chance: tuple[float, ...]
    """Of every head, the p of its class: its two most frequent classes over texts by a sign test."""
    num_classed: int
    """Texts whose maps were classed."""
    first_ends: Ends
    """Of the mean share of the first token over all heads, over texts."""


def target_shares(probabilities: Tensor, tokens: Tokens) -> dict[str, Tensor]:
    """Return for each target the attention it gets, (B, H), as a mean over the real tokens that attend."""
    length = probabilities.shape[-1]
    position = torch.arange(length, device=probabilities.device)
    distance = (position[:, None] - position).abs()
    query_mask = tokens.is_token.to(probabilities.dtype)
    columns = {
        "first token": tokens.is_first,
        "separators": tokens.is_separator,
        "punctuation": tokens.is_punctuation,
    }
    totals = {
        name: torch.einsum("bhij,bi,bj->bh", probabilities, query_mask, mask.to(probabilities.dtype))
        for name, mask in columns.items()
    }
    for name, near in (("itself", distance == 0), ("neighbours", distance == 1)):
        kept = probabilities * near.to(probabilities.dtype)
        totals[name] = torch.einsum("bhij,bi->bh", kept, query_mask)
    counts = query_mask.sum(1, keepdim=True)
    return {name: total / counts for name, total in totals.items()}


def even_shares(tokens: Tokens) -> dict[str, Tensor]:
    """Return for each text (B) what each target would get from a head that attends to all tokens alike."""
    mask = tokens.is_token.float()
    even = mask[:, None, None, :].expand(-1, 1, mask.shape[1], -1) / mask.sum(1)[:, None, None, None]
    return {name: value[:, 0] for name, value in target_shares(even, tokens).items()}


def entropy(probabilities: Tensor, is_token: Tensor) -> Tensor:
    """Return the mean entropy of the real tokens' attention, (B, H), in bits."""
    bits = torch.special.entr(probabilities).sum(-1) / torch.log(torch.tensor(2.0))
    query_mask = is_token.to(bits.dtype)
    return (bits * query_mask[:, None]).sum(-1) / query_mask.sum(1, keepdim=True)


def crop(probabilities: Tensor, is_token: Tensor) -> Tensor:
    """Return one text's maps (H, T, T) without its padding."""
    positions = is_token.nonzero(as_tuple=True)[0]
    return probabilities[:, positions][:, :, positions]


def head_distances(maps: Tensor) -> Tensor:
    """Return the mean Jensen–Shannon divergence in bits between all heads' maps (N, T, T) of one text."""
    bits = torch.log(torch.tensor(2.0, dtype=maps.dtype))
    own = torch.special.entr(maps).sum(-1)
    rows = []
    for one, own_entropy in zip(maps, own, strict=True):
        middle = torch.special.entr((maps + one) / 2).sum(-1)
        rows.append((middle - (own + own_entropy) / 2).mean(-1) / bits)
    distances = torch.stack(rows).clamp(min=0)
    return (distances + distances.T) / 2


def plane(distances: Tensor) -> Tensor:
    """Place points in two dimensions (N, 2) so that distances change little: classical scaling."""
    count = len(distances)
    centre = torch.eye(count, dtype=torch.double) - 1 / count
    values, vectors = torch.linalg.eigh(-0.5 * centre @ distances.double() ** 2 @ centre)
    size = min(2, count)
    top = vectors[:, -size:].flip(1) * values[-size:].flip(0).clamp(min=0).sqrt()
    # An eigenvector has no sign of its own; the largest part is made positive, so that runs agree.
    sign = torch.sign(top.gather(0, top.abs().argmax(0, keepdim=True)))
    top = top * torch.where(sign == 0, 1.0, sign)
    return torch.nn.functional.pad(top, (0, 2 - size))


class _Sums:
    """What is gathered while the encoder runs."""

    def __init__(self, heads: Sequence[int], total: int) -> None:
        shape = (len(heads), max(heads))
        self.heads, self.total = heads, total
        self.shares = {name: torch.zeros(shape, dtype=torch.double) for name in TARGETS}
        self.even = dict.fromkeys(TARGETS, 0.0)
        self.entropy = torch.zeros(shape, dtype=torch.double)
        self.classes = torch.zeros(*shape, len(CLASSES), dtype=torch.double)
        self.distances = torch.zeros(sum(heads), sum(heads), dtype=torch.double)
        self.num_texts = self.num_classed = self.num_compared = 0
        self.firsts: list[float] = []
        self._first = torch.zeros(0, dtype=torch.double)
        self._maps: list[list[Tensor]] = []

    def watch(self, tokens: Tokens) -> Callable[[AttentionCall], None]:
        """Return a visitor for one batch."""
        size = len(tokens.is_token)
        classed, compared = (self._quota(limit, size) for limit in (CLASS_TEXTS, DISTANCE_TEXTS))
        self._maps = [[] for _ in range(compared)]
        self._first = torch.zeros(size, dtype=torch.double)
        classify = pattern_classifier()

        def see(call: AttentionCall) -> None:
            layer, p = call.layer - 1, call.probabilities.float()
            there = slice(self.heads[layer])
            for name, share in target_shares(p, tokens).items():
                self.shares[name][layer, there] += share.sum(0).double().cpu()
                if name == "first token":
                    self._first += share.sum(1).double().cpu()
            self.entropy[layer, there] += entropy(p, tokens.is_token).sum(0).double().cpu()
            for text in range(max(classed, compared)):
                maps = crop(p[text], tokens.is_token[text])
                if text < classed:
                    sentence = tokens.sentence[text][tokens.is_token[text]]
                    chosen = classify(map_features(maps, sentence))
                    self.classes[layer, torch.arange(len(chosen)), chosen] += 1
                if text < compared:
                    self._maps[text].append(_short(maps))

        self.num_classed += classed
        self.num_compared += compared
        return see

    def _quota(self, limit: int, size: int) -> int:
        """How many texts of a batch of `size` are examined closely, so that `limit` are over all lengths."""
        before, after = (limit * n // self.total for n in (self.num_texts, self.num_texts + size))
        return min(size, after - before)

    def end(self, tokens: Tokens) -> None:
        """Close a batch: compare the heads of its texts."""
        self.num_texts += len(tokens.is_token)
        self.firsts += (self._first / sum(self.heads)).tolist()
        for name, share in even_shares(tokens).items():
            self.even[name] += float(share.sum())
        for layers in self._maps:
            self.distances += head_distances(torch.cat(layers)).double().cpu()


def _short(maps: Tensor) -> Tensor:
    """Keep a text's first tokens and renormalise their attention, since comparing all heads is quadratic."""
    cut = maps[:, :DISTANCE_TOKENS, :DISTANCE_TOKENS]
    return cut / cut.sum(-1, keepdim=True).clamp(min=1e-9)


@torch.inference_mode()
def measure_attention(
    encoder: Encoder, texts: Sequence[str], max_length: int, advance: Advance = lambda done: None
) -> AttentionFacts:
    """Read the attention of all heads over the texts; `advance` hears of each batch."""
    heads = heads_of_layers(encoder.backbone)
    sums = _Sums(heads, len(texts))
    for tokens in token_batches(encoder, texts, max_length):
        with attending(encoder.backbone, sums.watch(tokens)):
            run_encoder(encoder, tokens.batch)
        sums.end(tokens)
        advance(len(tokens.is_token))
    distances = sums.distances / max(1, sums.num_compared)
    counts = sums.classes.sum(1) / sums.classes.sum((1, 2))[:, None]
    chosen = sums.classes.argmax(-1).tolist()
    names = [[CLASSES[k] for k in row[:count]] for row, count in zip(chosen, heads, strict=True)]
    return AttentionFacts(
        shares={name: grid_of(total / sums.num_texts, heads) for name, total in sums.shares.items()},
        token_shares={name: total / sums.num_texts for name, total in sums.even.items()},
        entropy=grid_of(sums.entropy / sums.num_texts, heads),
        classes=tuple(map(tuple, names)),
        class_shares={
            name: tuple(
                share if count else None for share, count in zip(counts[:, k].tolist(), heads, strict=True)
            )
            for k, name in enumerate(CLASSES)
        },
        accuracy=pattern_classifier().accuracy,
        distances=tuple(map(tuple, distances.tolist())),
        plane=tuple((x, y) for x, y in plane(distances).tolist()),
        class_chance=tuple(
            two_sided(*(int(number) for number in head.topk(2).values))
            for row, count in zip(sums.classes, heads, strict=True)
            for head in row[:count]
        ),
        num_classed=sums.num_classed,
        first_ends=ends_of_mean(sums.firsts),
    )


def grid_of(values: Tensor, heads: Sequence[int]) -> Grid:
    """Return layers × heads as a grid, with None for heads that a layer does not have."""
    return tuple(
        tuple(value if head < count else None for head, value in enumerate(row))
        for row, count in zip(values.tolist(), heads, strict=True)
    )


def known(values: Sequence[Number]) -> list[float]:
    """Return the numbers that are there."""
    return [value for value in values if value is not None]


def attention_section(models: Mapping[str, AttentionFacts]) -> Section:
    """Draw the shares over the layers, the classes of all heads, and the map of heads."""
    figures: list[Figure] = []
    for name, facts in models.items():
        depth = len(facts.entropy)
        axis = tuple(float(layer) for layer in range(1, depth + 1))
        means = {target: tuple(map(_mean, grid)) for target, grid in facts.shares.items()}
        even = ", ".join(f"{target} {percent(share)}" for target, share in facts.token_shares.items())
        figures += [
            Lines(
                title=f"{name}: where attention goes, layer by layer",
                x_label="layer",
                y_label="share of attention",
                x=axis,
                series=means,
                note=f"Mean over heads and tokens. Even attention would give: {even}.",
            ),
            Lines(
                title=f"{name}: classes of attention maps, layer by layer",
                x_label="layer",
                y_label="share of maps",
                x=axis,
                series=facts.class_shares,
                note=f"By a classifier, right for {percent(facts.accuracy)} of held-out drawn maps.",
            ),
            _class_table(name, facts),
            _heat(f"{name}: entropy of each head's attention", facts.entropy, "bits"),
            _heat(f"{name}: attention to the first token", facts.shares["first token"], "share"),
            _points(name, facts),
        ]
    return Section(title="Attention", text=_sentences(models), figures=tuple(figures))


def _mean(row: Sequence[Number]) -> Number:
    there = known(row)
    return sum(there) / len(there) if there else None


def _heat(title: str, grid: Grid, unit: str) -> Heat:
    return Heat(
        title=title,
        x_label="head",
        y_label="layer",
        unit=unit,
        values=grid,
        columns=tuple(str(head) for head in range(1, len(grid[0]) + 1)),
        rows=tuple(str(layer) for layer in range(1, len(grid) + 1)),
    )


def _class_table(name: str, facts: AttentionFacts) -> Table:
    width = len(facts.entropy[0])
    return Table(
        title=f"{name}: the class of each head",
        columns=("layer", *(f"head {head}" for head in range(1, width + 1))),
        rows=tuple(
            (str(layer), *row, *[None] * (width - len(row)))
            for layer, row in enumerate(facts.classes, start=1)
        ),
        note=f"The most frequent class of a head's maps: {', '.join(CLASSES)}.",
    )


def _points(name: str, facts: AttentionFacts) -> Points:
    places = [(layer, head) for layer, row in enumerate(facts.classes, 1) for head in range(1, len(row) + 1)]
    return Points(
        title=f"{name}: heads that look alike lie together",
        x_label="first dimension (bits)",
        y_label="second dimension (bits)",
        x=tuple(x for x, _ in facts.plane),
        y=tuple(y for _, y in facts.plane),
        names=tuple(f"{layer}.{head}" for layer, head in places),
        groups=tuple(f"layer {layer}" for layer, _ in places),
        note="Classical scaling of the Jensen–Shannon distances between heads; names are layer.head.",
    )


def _sentences(models: Mapping[str, AttentionFacts]) -> str:
    lines = []
    for name, facts in models.items():
        kinds = [kind for row in facts.classes for kind in row]
        counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in CLASSES if kind in kinds)
        firsts = [share for row in facts.shares["first token"] for share in known(row)]
        mean = sum(firsts) / len(firsts)
        sure = num_sure(facts.class_chance)
        lines.append(
            f"{name}: of {len(kinds)} heads {counts}; the class of {sure} of them beyond chance (sign test of"
            f" a head's two most frequent classes over {facts.num_classed} texts, corrected for"
            f" {len(kinds)} heads). The first token gets {told(mean, facts.first_ends, '.1%')} of all"
            " attention."
        )
    return paragraphs(lines)
