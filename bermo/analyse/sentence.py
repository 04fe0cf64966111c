"""One sentence, looked at from all sides: attention of chosen heads, what each token brings to the answer,
the answer after each layer, the share of each layer in the mix, and where its words stand in other texts.

    contribution   c_i = ‖∂y / ∂x_i‖ / Σ_k ‖∂y / ∂x_k‖     y the numbers that make the answer, x_i the input
                   embedding of token i (Brunner et al. 2020); with several y_k by random signs u,
                   E ‖Σ_k u_k ∂y_k / ∂x_i‖² = ‖∂y / ∂x_i‖_F² (Hutchinson)
    without        the answer's score with token i hidden from attention, less its score with all tokens
    after layer l  the head on what the mix would give if all of its share were layer l's (nn/mix_parts.py)
    telling        of a head: the mean, over the words, of the most that one gives to a word which is neither
                   itself nor its neighbour; the heads with the largest are shown where none is named
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor, nn

from bermo.analyse.answering import NO_ANSWER, Answerer, places_of
from bermo.analyse.attention import Advance
from bermo.analyse.contexts import Context, nearest_contexts
from bermo.analyse.effective import effective_attention
from bermo.encoders.attention import AttentionCall, attending, can_attend, heads_of_layers
from bermo.encoders.backbone import hidden_states, make_inputs
from bermo.errors import BermoError
from bermo.nn.mix_parts import layer_parts, layer_shares, projections
from bermo.vectors import Encoder

MAX_TOKENS = 64
"""A longer text is cut: no map of it could be read."""
SHOWN_HEADS = 4
PROBES = 64
"""Random signs, where an answer is made of several numbers."""
PAIR = "\t"
Rows = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, kw_only=True)
class HeadMap:
    """What one head attends to, rows attend to columns; `effective` is empty where it is the same."""

    layer: int
    head: int
    telling: float
    attention: Rows
    effective: Rows = ()


@dataclass(frozen=True, kw_only=True)
class Looked:
    """One sentence as one model sees it."""

    text: str
    tokens: tuple[str, ...]
    is_cut: bool
    kind: str
    answer: str
    score: float | None
    """Of the answer: a probability, a value; None for a vector."""
    contributions: tuple[float, ...]
    without: tuple[float, ...]
    layers: tuple[float, ...]
    """The score of the answer after each layer from 0 on; for a vector the cosine with the whole's."""
    answers: tuple[str, ...]
    """What the head answers after each layer; empty for a vector."""
    shares: tuple[float, ...]
    """Of each layer in the mix; empty without a mix."""
    made_of: tuple[float, ...]
    """How much of the mixed vectors is which layer's, by projection; a layer can take away."""
    heads: tuple[HeadMap, ...]
    contexts: tuple[Context, ...]
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class SentenceFacts:
    """All sentences of one model; `chosen` tells who chose the heads."""

    sentences: tuple[Looked, ...]
    chosen: bool
    layer: int
    """The layer of the nearest contexts."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Read:
    """A sentence as a batch of one."""

    ids: Tensor
    mask: Tensor
    segments: Tensor | None
    special: tuple[bool, ...]
    words: tuple[int | None, ...]
    tokens: tuple[str, ...]
    is_cut: bool


def split_sentence(text: str) -> tuple[str, ...]:
    """Return the two texts of a pair, which a tab parts, or the one text."""
    return tuple(part.strip() for part in text.split(PAIR))


def check_sentence(answerer: Answerer, encoder: Encoder, text: str) -> None:
    """Refuse a sentence that this model cannot read."""
    parts = split_sentence(text)
    if not all(parts):
        raise BermoError("A sentence is empty. Give one with --sentence, in quotation marks.")
    if len(parts) > 2 or (len(parts) == 2 and answerer.num_texts == 1):
        raise BermoError(
            f"A sentence has {len(parts) - 1} tabs, but {encoder.name} reads one text. Take them out."
        )
    if len(parts) < answerer.num_texts:
        raise BermoError(
            f"{encoder.name} answers pairs of texts, but got one. Give both with a tab between them:"
            " --sentence $'one text\\tthe other'."
        )
    if not any(not is_special for is_special in read_sentence(encoder, text, MAX_TOKENS).special):
        raise BermoError(f'The tokenizer of {encoder.name} finds no token in "{text[:40]}".')


def check_heads(encoder: Encoder, heads: Sequence[str]) -> None:
    """Refuse a head that is not there."""
    counts = heads_of_layers(encoder.backbone)
    for layer, head in map(place_of_head, heads):
        if not 1 <= layer <= len(counts):
            raise BermoError(
                f"There is no head {layer}.{head}: {encoder.name} has the layers 1 to {len(counts)}."
            )
        if not 1 <= head <= counts[layer - 1]:
            there = f"the heads 1 to {counts[layer - 1]}" if counts[layer - 1] else "no heads"
            raise BermoError(f"There is no head {layer}.{head}: layer {layer} of {encoder.name} has {there}.")


def place_of_head(name: str) -> tuple[int, int]:
    """Read "3.5": the fifth head of layer 3."""
    layer, _, head = name.partition(".")
    return int(layer), int(head)


def read_sentence(encoder: Encoder, text: str, longest: int) -> Read:
    """Tokenise a sentence; [MASK] stands for the tokenizer's own mask token."""
    tokenizer, limit = encoder.tokenizer, min(MAX_TOKENS, longest)
    if tokenizer.mask_token is not None:
        text = text.replace("[MASK]", str(tokenizer.mask_token))
    parts = split_sentence(text)
    options = {"return_special_tokens_mask": True, "return_token_type_ids": True, "verbose": False}
    full = tokenizer(*parts, **options)
    batch = tokenizer(*parts, truncation=True, max_length=limit, **options)
    ids = batch["input_ids"]
    names = [
        str(tokenizer.decode([token])).strip() or str(tokenizer.convert_ids_to_tokens(token)) for token in ids
    ]
    mask_id = tokenizer.mask_token_id
    special = [
        bool(one) and token != mask_id for one, token in zip(batch["special_tokens_mask"], ids, strict=True)
    ]
    return Read(
        ids=torch.tensor([ids], device=encoder.device),
        mask=torch.ones(1, len(ids), dtype=torch.long, device=encoder.device),
        segments=torch.tensor([batch["token_type_ids"]], device=encoder.device),
        special=tuple(special),
        words=tuple(batch.word_ids()),
        tokens=tuple(names),
        is_cut=len(full["input_ids"]) > len(ids),
    )


def measure_sentences(
    encoder: Encoder,
    answerer: Answerer,
    sentences: Sequence[str],
    *,
    longest: int,
    heads: Sequence[str] = (),
    corpus: Sequence[str] = (),
    words: Sequence[str] = (),
    layer: int | None = None,
    advance: Advance = lambda done: None,
) -> SentenceFacts:
    """Look at each sentence."""
    at = encoder.num_layers - 1 if layer is None else layer
    looked = []
    for text in sentences:
        read = read_sentence(encoder, text, longest)
        one = look(encoder, answerer, text, read, heads)
        if corpus:
            one = replace(one, contexts=nearest_contexts(encoder, text, corpus, words, at, longest))
        looked.append(one)
        advance(1)
    return SentenceFacts(sentences=tuple(looked), chosen=bool(heads), layer=at)


def look(encoder: Encoder, answerer: Answerer, text: str, read: Read, heads: Sequence[str]) -> Looked:
    """Look at one sentence."""
    mask_id = encoder.tokenizer.mask_token_id
    places = places_of(answerer, read.ids[0].tolist(), read.special, mask_id)
    reason = answerer.reason
    if answerer.kind == "words" and not places:
        reason = f"Write [MASK] where a word is to be guessed. {NO_ANSWER}"
        answerer = Answerer(kind="vector", pooling="mean")
    rows = torch.tensor([places], device=encoder.device, dtype=torch.long)
    with torch.no_grad():
        layers = _layers(encoder, read)
        whole = answerer.logits(_mixed(encoder, layers, read.mask), read.mask, rows)
        answer = answerer.choose(whole)
        score = float(answerer.score(whole, answer, whole))
        by_layer = _by_layer(encoder, answerer, layers, read, rows)
        shares = layer_shares(encoder.mix, layers, read.mask)
        made_of = projections(encoder.mix, layers, read.mask)
        scores = [answerer.score(logits, answer, whole) for logits in by_layer]
        without = _without(encoder, answerer, read, rows, answer, whole) - score

    def name_of(token: int) -> str:
        return str(encoder.tokenizer.decode([token])).strip() or f"#{token}"

    has_mix = encoder.mix is not None
    is_vector = answerer.kind == "vector"
    return Looked(
        text=text,
        tokens=read.tokens,
        is_cut=read.is_cut,
        kind=answerer.kind,
        answer=answerer.say(whole[0], name_of),
        score=None if is_vector else score,
        contributions=_numbers(contributions(encoder, answerer, read, rows, answer)),
        without=_numbers(without),
        layers=tuple(float(value) for value in scores),
        answers=() if is_vector else tuple(answerer.say(logits[0], name_of) for logits in by_layer),
        shares=_numbers(shares[:, 0]) if has_mix and shares is not None else (),
        made_of=_numbers(made_of[:, 0].mean(-1)) if has_mix and made_of is not None else (),
        heads=head_maps(encoder, read, heads) if can_attend(encoder.backbone) else (),
        contexts=(),
        reason=reason,
    )


def contributions(encoder: Encoder, answerer: Answerer, read: Read, rows: Tensor, answer: Tensor) -> Tensor:
    """Return c_i of each token (T,): they sum to 1."""
    table = cast(nn.Embedding, encoder.backbone.get_input_embeddings())
    generator = torch.Generator().manual_seed(0)
    with torch.inference_mode(False), torch.enable_grad():
        embeddings = table(read.ids.clone()).detach().requires_grad_()
        vectors = _mixed(encoder, _layers(encoder, read, embeddings), read.mask)
        chosen = answerer.chosen(answerer.logits(vectors, read.mask, rows), answer)[0]
        # One number needs no signs: its gradient is the Jacobian.
        count = 1 if len(chosen) == 1 else PROBES
        total = torch.zeros(read.ids.shape[1], dtype=torch.double)
        for _ in range(count):
            signs = torch.randint(0, 2, chosen.shape, generator=generator).to(chosen) * 2 - 1
            (gradient,) = torch.autograd.grad((signs * chosen).sum(), embeddings, retain_graph=True)
            total += gradient[0].double().square().sum(-1).cpu()
    norms = (total / count).sqrt()
    return norms / norms.sum().clamp(min=1e-30)


@torch.no_grad()
def head_maps(encoder: Encoder, read: Read, heads: Sequence[str] = ()) -> tuple[HeadMap, ...]:
    """Return the maps of the named heads, or of the most telling ones."""
    calls: dict[int, AttentionCall] = {}

    def see(call: AttentionCall) -> None:
        calls[call.layer] = call

    with attending(encoder.backbone, see):
        encoder.backbone(**make_inputs(encoder.backbone, read.ids, read.mask, read.segments, None))
    far = _far_words(read)
    telling = {
        (layer, head): _telling(call.probabilities[0, head], far)
        for layer, call in calls.items()
        for head in range(call.probabilities.shape[1])
    }
    places = [(layer, head - 1) for layer, head in map(place_of_head, heads)]
    chosen = places or sorted(telling, key=lambda place: -telling[place])[:SHOWN_HEADS]
    return tuple(_head_map(calls[layer], head, telling[layer, head]) for layer, head in chosen)


def _head_map(call: AttentionCall, head: int, telling: float) -> HeadMap:
    raw = call.probabilities[0, head]
    effective = effective_attention(raw, call.value[0, head])
    is_same = bool((raw - effective).abs().max() < 1e-3)
    return HeadMap(
        layer=call.layer,
        head=head + 1,
        telling=telling,
        attention=tuple(map(_numbers, raw)),
        effective=() if is_same else tuple(map(_numbers, effective)),
    )


def _far_words(read: Read) -> Tensor:
    """Return which token may attend to which for a head to be telling: (T, T), words beyond neighbours."""
    number = torch.tensor([-9 if word is None else word for word in read.words])
    is_word = torch.tensor(
        [
            word is not None and not is_special and any(map(str.isalnum, token))
            for word, is_special, token in zip(read.words, read.special, read.tokens, strict=True)
        ]
    )
    distance = (number[:, None] - number).abs()
    return is_word[:, None] & is_word & (distance > 1)


def _telling(attention: Tensor, far: Tensor) -> float:
    """Return the mean over words of the most that one gives to a far word; 0 where there is none."""
    asking = far.any(1)
    most = torch.where(far, attention.cpu(), 0.0).amax(1)[asking]
    return float(most.mean()) if len(most) else 0.0


def _layers(encoder: Encoder, read: Read, embeddings: Tensor | None = None) -> tuple[Tensor, ...]:
    ids = read.ids if embeddings is None else None
    inputs = make_inputs(encoder.backbone, ids, read.mask, read.segments, embeddings)
    return cast(tuple[Tensor, ...], hidden_states(encoder.backbone, inputs).hidden_states)


def _mixed(encoder: Encoder, layers: tuple[Tensor, ...], mask: Tensor) -> Tensor:
    return layers[-1] if encoder.mix is None else encoder.mix(layers, mask)


def _by_layer(
    encoder: Encoder, answerer: Answerer, layers: tuple[Tensor, ...], read: Read, rows: Tensor
) -> list[Tensor]:
    """Return the head's logits after each layer; none where the head reads several layers side by side."""
    parts = layer_parts(encoder.mix, layers, read.mask)
    return [] if parts is None else [answerer.logits(part, read.mask, rows) for part in parts]


def _without(
    encoder: Encoder, answerer: Answerer, read: Read, rows: Tensor, answer: Tensor, whole: Tensor
) -> Tensor:
    """Return the answer's score with each token hidden in turn, (T,)."""
    scores = []
    # One at a time: a mix may standardise over all texts of a batch.
    for token in range(read.ids.shape[1]):
        mask = read.mask.clone()
        mask[0, token] = 0
        layers = _layers(encoder, replace(read, mask=mask))
        # The head reads the same places: a token that is hidden is not seen, but has a vector.
        logits = answerer.logits(_mixed(encoder, layers, read.mask), read.mask, rows)
        scores.append(answerer.score(logits, answer, whole))
    return torch.cat(scores)


def _numbers(values: Tensor) -> tuple[float, ...]:
    return tuple(values.float().cpu().tolist())
