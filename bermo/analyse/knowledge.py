"""Grammar in a masked language model: minimal pairs by pseudo-likelihood (Salazar et al. 2020; BLiMP).

    PLL(s) = Σ_t log P(s_t | s with token t masked)        a pair is right if PLL(good) > PLL(bad)
    with a control (the same words changed where grammar does not ask for it) its margin is subtracted:
    PLL(good) − PLL(bad) > PLL(control good) − PLL(control bad), so that a frequent word alone wins nothing

Only the masked token's logits are computed, so memory is (texts in a batch) × (words in the vocabulary).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from bermo.analyse.attention import Advance
from bermo.data.intervals import wilson
from bermo.data.pairs import Pair
from bermo.encoders import backbone
from bermo.encoders.hub import is_local
from bermo.encoders.trust import config_of
from bermo.errors import BermoError
from bermo.figures.data import Bars, Section, Table, paragraphs
from bermo.models.config import BermoConfig
from bermo.models.tasks import BermoForMaskedLM
from bermo.printing import percent
from bermo.runs.model_files import resolve_model
from bermo.vectors import Encoder

BATCH = 64


@dataclass(frozen=True, kw_only=True)
class Knowledge:
    """Share of pairs right, by kind; or why nothing was measured."""

    kinds: tuple[str, ...]
    accuracy: tuple[float, ...]
    counts: tuple[int, ...]
    wrong: tuple[tuple[str, str, str], ...]
    """The pairs that it has most wrong: kind, right sentence, wrong sentence."""
    reason: str = ""
    controlled: tuple[float | None, ...] = ()
    """The share right after the control's margin is subtracted; None for a kind without controls."""
    baseline: tuple[float | None, ...] = ()
    """The share right of the control's own preference: what the more frequent word alone gives."""


def load_masked(name: str | Path) -> BermoForMaskedLM:
    """Load a model with a trained masked-LM head: a saved BermoForMaskedLM, or an encoder that brings one."""
    source = resolve_model(name)
    config = config_of(source)
    if isinstance(config, BermoConfig):
        kind = (config.architectures or ["nothing"])[0]
        if kind != "BermoForMaskedLM":
            raise BermoError(f"{name} is a {kind} and has no masked-LM head, so it cannot weigh sentences.")
        loaded = BermoForMaskedLM.from_pretrained(source, local_files_only=is_local(source))
        return cast(BermoForMaskedLM, loaded.eval())
    if backbone.load_encoder(source, with_head=True).head is None:
        raise BermoError(f"{name} has no trained masked-LM head, so it cannot weigh sentences.")
    return BermoForMaskedLM.from_backbone(source, mix=None)


@torch.inference_mode()
def pseudo_likelihoods(
    model: BermoForMaskedLM, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]
) -> list[float]:
    """Return PLL of each text; special tokens are never masked."""
    copies: list[tuple[int, list[int], int]] = []
    limit = min(512, tokenizer.model_max_length)
    batch = tokenizer(
        list(texts),
        truncation=True,
        max_length=limit,
        return_special_tokens_mask=True,
        verbose=False,
    )
    for row, (ids, special) in enumerate(zip(batch["input_ids"], batch["special_tokens_mask"], strict=True)):
        copies += [(row, ids, position) for position, is_special in enumerate(special) if not is_special]
    copies.sort(key=lambda copy: len(copy[1]))
    totals: list[list[float]] = [[] for _ in texts]
    for start in range(0, len(copies), BATCH):
        part = copies[start : start + BATCH]
        for (row, _, _), value in zip(part, _log_chances(model, tokenizer, part), strict=True):
            totals[row].append(value)
    return [math.fsum(values) for values in totals]


def _log_chances(
    model: BermoForMaskedLM,
    tokenizer: PreTrainedTokenizerBase,
    copies: Sequence[tuple[int, list[int], int]],
) -> list[float]:
    """Return log P of each copy's masked token."""
    width, device = max(len(ids) for _, ids, _ in copies), next(model.parameters()).device
    is_left = tokenizer.padding_side == "left"
    input_ids = torch.full((len(copies), width), int(tokenizer.pad_token_id))
    mask = torch.zeros(len(copies), width, dtype=torch.long)
    positions = torch.zeros(len(copies), 1, dtype=torch.long)
    for k, (_, ids, position) in enumerate(copies):
        shift = width - len(ids) if is_left else 0
        input_ids[k, shift : shift + len(ids)] = torch.tensor(ids)
        mask[k, shift : shift + len(ids)] = 1
        positions[k, 0] = shift + position
    truth = input_ids.gather(1, positions)
    input_ids.scatter_(1, positions, int(tokenizer.mask_token_id))
    outputs = model.bermo(input_ids.to(device), mask.to(device), rows=positions.to(device))
    logits: Tensor = model.head(outputs.last_hidden_state)[:, 0]
    chances = torch.log_softmax(logits.float(), dim=-1).gather(1, truth.to(device))
    return [float(value) for value in chances[:, 0].cpu()]


def measure_knowledge(
    encoder: Encoder,
    source: str,
    pairs: Sequence[Pair],
    advance: Advance = lambda done: None,
) -> Knowledge:
    """Weigh both sentences of each pair; a model without a masked-LM head gives the reason instead."""
    try:
        model = load_masked(source)
    except BermoError as error:
        return Knowledge(kinds=(), accuracy=(), counts=(), wrong=(), reason=str(error))
    if encoder.tokenizer.mask_token_id is None:
        reason = f"The tokenizer of {encoder.name} has no mask token."
        return Knowledge(kinds=(), accuracy=(), counts=(), wrong=(), reason=reason)
    model.to(encoder.device)  # type: ignore[arg-type]
    margins: list[float] = []
    controls: list[float | None] = []
    for start in range(0, len(pairs), BATCH):
        part = pairs[start : start + BATCH]
        margins += _margins(model, encoder.tokenizer, [(pair.good, pair.bad) for pair in part])
        known = iter(_margins(model, encoder.tokenizer, [pair.control for pair in part if pair.control]))
        controls += [next(known) if pair.control else None for pair in part]
        advance(len(part))
    kinds = tuple(dict.fromkeys(pair.kind for pair in pairs))
    hits: dict[str, list[bool]] = {kind: [] for kind in kinds}
    less: dict[str, list[bool]] = {kind: [] for kind in kinds}
    alone: dict[str, list[bool]] = {kind: [] for kind in kinds}
    for pair, margin, control in zip(pairs, margins, controls, strict=True):
        hits[pair.kind].append(margin > 0)
        less[pair.kind] += [] if control is None else [margin > control]
        alone[pair.kind] += [] if control is None else [control > 0]
    worst = sorted(range(len(pairs)), key=lambda k: margins[k])[:10]
    return Knowledge(
        kinds=kinds,
        accuracy=tuple(sum(hits[kind]) / len(hits[kind]) for kind in kinds),
        counts=tuple(len(hits[kind]) for kind in kinds),
        wrong=tuple((pairs[k].kind, pairs[k].good, pairs[k].bad) for k in worst if margins[k] <= 0),
        controlled=tuple(_share(less[kind]) for kind in kinds),
        baseline=tuple(_share(alone[kind]) for kind in kinds),
    )


def _share(hits: Sequence[bool]) -> float | None:
    return sum(hits) / len(hits) if hits else None


def _margins(
    model: BermoForMaskedLM, tokenizer: PreTrainedTokenizerBase, pairs: Sequence[tuple[str, str]]
) -> list[float]:
    """Return PLL(first) − PLL(second) of each pair."""
    if not pairs:
        return []
    values = pseudo_likelihoods(model, tokenizer, [text for pair in pairs for text in pair])
    return [good - bad for good, bad in zip(values[::2], values[1::2], strict=True)]


def reasoning_section(models: Mapping[str, Knowledge]) -> Section:
    """Draw facts, numbers and roles as grammar is drawn."""
    return knowledge_section(models, "Facts and reasoning")


def knowledge_section(models: Mapping[str, Knowledge], title: str = "Knowledge of grammar") -> Section:
    """Draw the share of pairs right, and list the worst mistakes."""
    able = {name: item for name, item in models.items() if not item.reason}
    lines = [item.reason for item in models.values() if item.reason]
    if not able:
        return Section(title=title, text=paragraphs(dict.fromkeys(lines)), figures=())
    kinds = tuple(dict.fromkeys(kind for item in able.values() for kind in item.kinds))
    bars = [
        _bars("Share of minimal pairs where the right sentence is likelier", able, kinds, is_less=False),
        _bars("The same, less the control's preference", able, kinds, is_less=True),
    ]
    tables = [
        Table(
            title=f"{name}: its worst mistakes",
            columns=("what differs", "right", "wrong, but likelier"),
            rows=item.wrong,
        )
        for name, item in able.items()
        if item.wrong
    ]
    for name, item in able.items():
        lines += [f"{name}: {_said(item, at)}." for at in range(len(item.kinds))]
    return Section(title=title, text=paragraphs(lines), figures=(*bars, *tables))


def _bars(title: str, models: Mapping[str, Knowledge], kinds: tuple[str, ...], *, is_less: bool) -> Bars:
    """Draw one bar a kind and model, with its 95 % interval (Wilson)."""
    series: dict[str, tuple[float | None, ...]] = {}
    errors: dict[str, tuple[tuple[float, float], ...]] = {}
    for name, item in models.items():
        shares = item.controlled if is_less else item.accuracy
        known = dict(zip(item.kinds, shares, strict=False))
        counts = dict(zip(item.kinds, item.counts, strict=True))
        series[name] = tuple(known.get(kind) for kind in kinds)
        errors[name] = tuple(_ends(known.get(kind), counts.get(kind, 0)) for kind in kinds)
    note = "Guessing is right in half of them. Whiskers: 95 % (Wilson)."
    if is_less and any(None in shares for shares in series.values()):
        note += " Where there is no bar, there is no control."
    return Bars(
        title=title,
        x_label="what differs",
        y_label="share of pairs",
        names=kinds,
        series=series,
        errors=errors,
        note=note,
    )


def _ends(share: float | None, count: int) -> tuple[float, float]:
    return (0.0, 0.0) if share is None or not count else wilson(round(share * count), count)


def _said(item: Knowledge, at: int) -> str:
    """Say how many pairs of a kind are right, with the interval, and how many less the control."""
    parts = []
    for words, shares in (("right", item.accuracy), ("less the control", item.controlled)):
        share = shares[at] if at < len(shares) else None
        if share is not None:
            low, high = _ends(share, item.counts[at])
            parts.append(f"{percent(share)} {words} ({100 * low:.1f} … {100 * high:.1f})")
    alone = item.baseline[at] if at < len(item.baseline) else None
    if alone is not None:
        low, high = _ends(alone, item.counts[at])
        parts.append(f"{percent(alone)} by the control alone ({100 * low:.1f} … {100 * high:.1f})")
    return f"{item.kinds[at]}: {', '.join(parts)} of {item.counts[at]} pairs"
