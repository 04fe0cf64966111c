"""Heads that follow a relation of grammar (Clark et al. 2019, "What does BERT look at?").

    A_ij   attention of word i to word j: a mean over the pieces of i, a sum over those of j; no special token
    right  argmax_{j ≠ i} A_ij is the head of i (from the dependent), or argmax_{j ≠ i} A_ji (from the head)
    offset the fixed distance to the head that is right most often: the baseline

Head and offset are chosen on every second sentence and scored on the others, so that the best of many heads
is not flattered; a head is said to follow a relation where a sign test against the offset holds after Holm's
correction for all relations. Axes: B texts, H heads, W words, T tokens.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bermo.analyse.attention import Advance
from bermo.analyse.certainty import holm
from bermo.analyse.tokens import run_encoder
from bermo.data.conllu import ROOT, read_conllu, tree_of
from bermo.data.intervals import LEVEL, sign_test, wilson
from bermo.data.word_tasks import evenly
from bermo.encoders.attention import AttentionCall, attending, heads_of_layers
from bermo.errors import BermoError
from bermo.figures.data import Bars, Figure, Section, Table, paragraphs
from bermo.nn.words import membership
from bermo.vectors import Encoder
from bermo.vectors.stream import Batch, batches

FEWEST = 20
"""Words that a relation needs in each half."""
FARTHEST = 10
DIRECTIONS = ("from the dependent", "from the head")
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class ParsedText:
    """The words of a sentence, the head of each, and their relations."""

    words: tuple[str, ...]
    heads: tuple[int, ...]
    relations: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class FollowedRelation:
    """The head that follows a relation best on one half of the sentences, and its scores on the other."""

    relation: str
    words: int
    layer: int
    head: int
    direction: str
    right: float
    interval: tuple[float, float]
    offset: int
    offset_right: float
    p: float
    """Of a sign test against the offset, corrected for all relations."""


@dataclass(frozen=True, kw_only=True)
class RelationFacts:
    """The relations with enough words, the most frequent first."""

    relations: tuple[FollowedRelation, ...]
    sentences: int


def read_parsed(path: Path, limit: int) -> list[ParsedText]:
    """Read at most `limit` sentences of a treebank, evenly chosen, each a tree; too few are an error."""
    sentences = evenly(read_conllu(path), limit)
    texts = [
        ParsedText(
            words=sentence.words,
            heads=tree_of(path, sentence),
            relations=tuple(name.partition(":")[0] for name in sentence.relations),
        )
        for sentence in sentences
    ]
    halves: list[Counter[str]] = [Counter(), Counter()]
    for number, text in enumerate(texts):
        pairs = zip(text.heads, text.relations, strict=True)
        halves[number % 2].update(relation for head, relation in pairs if head != ROOT)
    if not any(min(halves[0][name], halves[1][name]) >= FEWEST for name in halves[0]):
        raise _too_few(len(texts))
    return texts


def _too_few(num_sentences: int) -> BermoError:
    return BermoError(
        f"No relation has {FEWEST} words or more in each half of these {num_sentences} sentences. Give a"
        " longer treebank, or more of it with --max-texts."
    )


def word_attention(probabilities_BHTT: Tensor, is_in_BWT: Tensor) -> Tensor:
    """Return the attention between words, (B, H, W, W), from that between their pieces."""
    member = is_in_BWT.to(probabilities_BHTT.dtype)
    mean = member / member.sum(-1, keepdim=True).clamp(min=1)
    return mean[:, None] @ probabilities_BHTT @ member.transpose(1, 2)[:, None]


class _Found:
    """Which words every head gets right, gathered while the encoder runs."""

    def __init__(self, texts: Sequence[ParsedText], heads: Sequence[int]) -> None:
        self.texts, self.heads = texts, heads
        self.relations: list[str] = []
        self.halves: list[int] = []
        self.offsets: list[int] = []
        self.right: list[Bools] = []

    def watch(self, batch: Batch) -> Callable[[AttentionCall], None]:
        """Return a visitor for one batch; `right` gets an array (2, layers, heads) for each word."""
        assert batch.word_of is not None
        is_in = membership(batch.word_of, max(1, int(batch.word_of.max()) + 1))
        size = is_in.any(-1)
        places = []
        for at, row in enumerate(batch.rows.tolist()):
            text, known = self.texts[row], size[at].tolist()
            known += [False] * (len(text.words) - len(known))
            for word, head in enumerate(text.heads):
                if head != ROOT and known[word] and known[head]:
                    places.append((at, word, head))
                    self.relations.append(text.relations[word])
                    self.halves.append(row % 2)
                    self.offsets.append(head - word)
        first = len(self.right)
        shape = (2, len(self.heads), max(self.heads))
        self.right += [np.zeros(shape, dtype=bool) for _ in places]
        index = torch.tensor(places, dtype=torch.long).reshape(-1, 3)

        def see(call: AttentionCall) -> None:
            maps = word_attention(call.probabilities.float(), is_in)
            # No word is its own head, and what is no word is none's.
            maps = maps.diagonal_scatter(
                torch.full_like(maps.diagonal(dim1=-2, dim2=-1), -1), dim1=-2, dim2=-1
            )
            absent = ~size[:, None, None, :]
            found = [
                maps.masked_fill(absent, -1).argmax(-1),
                maps.transpose(-1, -2).masked_fill(absent, -1).argmax(-1),
            ]
            text, word, head = index.to(maps.device).unbind(1)
            for side, chosen in enumerate(found):
                hits = (chosen[text, :, word] == head[:, None]).cpu().numpy()
                for at, row in enumerate(hits):
                    self.right[first + at][side, call.layer - 1, : row.shape[0]] = row

        return see


@torch.inference_mode()
def measure_relations(
    encoder: Encoder, texts: Sequence[ParsedText], max_length: int, advance: Advance = lambda done: None
) -> RelationFacts:
    """Find the head that follows each relation on half of the sentences, and score it on the others."""
    found = _Found(texts, heads_of_layers(encoder.backbone))
    for batch in batches(encoder, [list(text.words) for text in texts], max_length, 16):
        with attending(encoder.backbone, found.watch(batch)):
            run_encoder(encoder, batch)
        advance(len(batch.rows))
    return followed(found.relations, found.halves, found.offsets, found.right, len(texts))


def followed(
    relations: Sequence[str],
    halves: Sequence[int],
    offsets: Sequence[int],
    right: Sequence[Bools],
    num_sentences: int,
) -> RelationFacts:
    """Choose heads and offsets by the words of the first half, and score them on those of the second."""
    half, offset = np.array(halves), np.array(offsets)
    counts = Counter(relations)
    rows: list[FollowedRelation] = []
    for relation in sorted(counts, key=lambda name: (-counts[name], name)):
        is_it = np.array([name == relation for name in relations])
        first, second = (np.flatnonzero(is_it & (half == side)) for side in (0, 1))
        if min(len(first), len(second)) < FEWEST:
            continue
        hits = np.stack([right[at] for at in first.tolist()]).mean(0)
        side, layer, head = (int(k) for k in np.unravel_index(hits.argmax(), hits.shape))
        steps = [step for step in range(-FARTHEST, FARTHEST + 1) if step]
        usual = max(steps, key=lambda step: int((offset[first] == step).sum()))
        ours = [bool(right[at][side, layer, head]) for at in second.tolist()]
        fixed = [bool(offset[at] == usual) for at in second]
        low, high = wilson(sum(ours), len(ours))
        rows.append(
            FollowedRelation(
                relation=relation,
                words=len(second),
                layer=layer + 1,
                head=head + 1,
                direction=DIRECTIONS[side],
                right=100 * sum(ours) / len(ours),
                interval=(100 * low, 100 * high),
                offset=usual,
                offset_right=100 * sum(fixed) / len(fixed),
                p=sign_test(fixed, ours),
            )
        )
    if not rows:
        raise _too_few(num_sentences)
    corrected = holm([row.p for row in rows])
    return RelationFacts(
        relations=tuple(_with_p(row, p) for row, p in zip(rows, corrected, strict=True)),
        sentences=num_sentences,
    )


def _with_p(row: FollowedRelation, p: float) -> FollowedRelation:
    return FollowedRelation(**{**row.__dict__, "p": p})


def follows(row: FollowedRelation) -> bool:
    """Tell whether a head is shown to be better than the fixed offset."""
    return row.p < LEVEL and row.right > row.offset_right


def relations_section(models: Mapping[str, RelationFacts]) -> Section:
    """Draw each relation's best head beside the fixed offset."""
    figures: list[Figure] = []
    lines = []
    for name, facts in models.items():
        shown = [row for row in facts.relations if follows(row)]
        best = ", ".join(
            f"{row.relation} ({row.layer}.{row.head}, {row.right:.0f} %, {row.interval[0]:.0f} …"
            f" {row.interval[1]:.0f})"
            for row in shown[:5]
        )
        lines.append(
            f"{name}: of {len(facts.relations)} relations in {facts.sentences} sentences {len(shown)} have a"
            " head that finds them more often than the best fixed offset does (sign test, corrected for all"
            f" relations){': ' if best else ''}{best}."
        )
        figures += [_table(name, facts), _bars(name, facts)]
    return Section(title="Heads and relations", text=paragraphs(lines), figures=tuple(figures))


def _table(name: str, facts: RelationFacts) -> Table:
    return Table(
        title=f"{name}: the head that follows each relation",
        columns=(
            "relation",
            "right",
            "least",
            "most",
            "head",
            "direction",
            "offset",
            "its right",
            "p",
            "words",
        ),
        rows=tuple(
            (
                row.relation,
                round(row.right, 1),
                *(round(end, 1) for end in row.interval),
                f"{row.layer}.{row.head}",
                row.direction,
                f"{row.offset:+d}",
                round(row.offset_right, 1),
                round(row.p, 4),
                row.words,
            )
            for row in facts.relations
        ),
        note="In %, on sentences that chose neither head nor offset. head: layer.head. least and most: 95 %"
        " (Wilson). offset: where the head of the relation stands most often. p: sign test of head against"
        " offset, corrected for all relations (Holm).",
    )


def _bars(name: str, facts: RelationFacts) -> Bars:
    return Bars(
        title=f"{name}: relations found by one head and by a fixed offset",
        x_label="relation",
        y_label="right (%)",
        names=tuple(row.relation for row in facts.relations),
        series={
            "best head": tuple(round(row.right, 1) for row in facts.relations),
            "fixed offset": tuple(round(row.offset_right, 1) for row in facts.relations),
        },
        errors={"best head": tuple(row.interval for row in facts.relations)},
    )
