"""Word order in the vectors: can a word's position be read, and how far do shuffled texts move the vectors?

position   the mean error of a linear map from a word's vector to its number in the text (0, 1, …)
shuffled   cos(h_w, h′_w), h′ the vector of the same word in the same text with its words in random order;
           beside it the cosine of two different words, what is reached by any two vectors of the layer
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from bermo.analyse.attention import Advance
from bermo.analyse.certainty import ends_of_mean
from bermo.analyse.curves import NOTHING, Curve, curves_by_layer, layers_of
from bermo.analyse.numbers import read_out_lines
from bermo.analyse.read_out import ReadOut, halves, read_out
from bermo.analyse.words import has_mix, layer_names, pool_words
from bermo.figures.data import Section, paragraphs
from bermo.vectors import Encoder, stream_vectors

TEXTS = 200
LONGEST = 24
"""Words of a text: few texts have a word at a far position."""
Values = tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Order:
    """By layer: the error of a word's position, the cosine with the shuffled text, that of other words."""

    names: tuple[str, ...]
    position: tuple[ReadOut, ...]
    shuffled: Values
    ends: tuple[tuple[float, float], ...]
    """The 95 % interval of `shuffled`, over texts."""
    others: Values
    num_texts: int
    reason: str = ""


def measure_order(
    encoder: Encoder, texts: Sequence[str], longest: int, advance: Advance = lambda done: None
) -> Order:
    """Read a few texts as they are and shuffled."""
    split = [text.split()[:LONGEST] for text in texts]
    chosen = [words for words in split if len(words) > 2]
    if len(chosen) < 4:
        reason = f"Word order needs four texts of three words or more, but got {len(chosen)}."
        return Order(names=(), position=(), shuffled=(), ends=(), others=(), num_texts=0, reason=reason)
    chosen = chosen[:: max(1, len(chosen) // TEXTS)][:TEXTS]
    rng, orders = Random(0), []
    for words in chosen:
        order = list(range(len(words)))
        while order == sorted(order):
            rng.shuffle(order)
        orders.append(order)
    shuffled = [[words[k] for k in order] for words, order in zip(chosen, orders, strict=True)]
    plain, moved = _read(encoder, chosen, longest), _read(encoder, shuffled, longest)
    advance(len(texts))
    pairs = [
        (plain[text, k], moved[text, order.index(k)], text, k)
        for text, order in enumerate(orders)
        for k in range(len(order))
        if (text, k) in plain and (text, order.index(k)) in moved
    ]
    number = torch.tensor([text for _, _, text, _ in pairs])
    place = torch.tensor([float(k) for _, _, _, k in pairs])
    sizes = torch.bincount(number).tolist()
    train, test = (torch.isin(number, part) for part in halves(len(chosen)))
    position: list[ReadOut] = []
    cosines, ends, others = [], [], []
    for layer in range(len(pairs[0][0])):
        own = torch.stack([pair[0][layer] for pair in pairs])
        other = torch.stack([pair[1][layer] for pair in pairs])
        position += read_out((own[train], place[train]), (own[test], place[test]))
        alike = cosine_similarity(own, other, dim=-1)
        cosines.append(float(alike.mean()))
        ends.append(ends_of_mean(torch.bincount(number, weights=alike.double()).tolist(), sizes) or NOTHING)
        others.append(float(cosine_similarity(own, own.roll(len(own) // 2, 0), dim=-1).mean()))
    return Order(
        names=layer_names(encoder),
        position=tuple(position),
        shuffled=tuple(cosines),
        ends=tuple(ends),
        others=tuple(others),
        num_texts=len(chosen),
    )


def _read(encoder: Encoder, texts: list[list[str]], longest: int) -> dict[tuple[int, int], list[Tensor]]:
    """Return the vectors of each text's words, by text and position: one vector a layer."""
    found = {}
    for batch in stream_vectors(encoder, texts, with_mix=has_mix(encoder), max_length=longest):
        words = pool_words(batch)
        layers = [layer.float().cpu() for layer in words.vectors]
        for k, place in enumerate(zip(words.rows, words.positions, strict=True)):
            found[place] = [layer[k] for layer in layers]
    return found


def order_section(models: Mapping[str, Order]) -> Section:
    """Draw the error of the position and the cosine with the shuffled text, by layer."""
    reasons = [f"{name}: {item.reason}" for name, item in models.items() if item.reason]
    models = {name: item for name, item in models.items() if not item.reason}
    if not models:
        return Section(title="Word order", text=paragraphs(reasons), figures=())
    position = read_out_lines(
        "Error of a word's position read from its vector",
        "mean error in words",
        {name: (item.names, item.position) for name, item in models.items()},
    )
    curves: dict[str, Curve] = {}
    for name, item in models.items():
        curves[f"{name}: same word, shuffled text"] = Curve(
            names=item.names, values=item.shuffled, ends=item.ends
        )
        curves[f"{name}: another word"] = Curve(names=item.names, values=item.others)
    moved = curves_by_layer(
        "How far a shuffled text moves its words' vectors",
        "cosine",
        curves,
        "Bands: 95 %, over texts.",
    )
    lines = [_said(name, item) for name, item in models.items()]
    return Section(title="Word order", text=paragraphs(lines + reasons), figures=(position, moved))


def _said(name: str, item: Order) -> str:
    layers = layers_of(item.names)
    best = min(layers, key=lambda k: item.position[k].error)
    far = min(layers, key=lambda k: item.shuffled[k])
    found = item.position[best]
    return (
        f"{name}: a word's position is read best at layer {item.names[best]}, off by {found.error:.2f} words"
        f" ({found.low:.2f} … {found.high:.2f}; guessing {found.guess:.2f}). Shuffling moves words most at"
        f" layer {item.names[far]}: cosine {item.shuffled[far]:.2f} ({item.ends[far][0]:.2f} …"
        f" {item.ends[far][1]:.2f}; of different words {item.others[far]:.2f}), over {item.num_texts} texts."
    )
