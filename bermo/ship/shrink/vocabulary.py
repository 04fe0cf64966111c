"""A vocabulary cut to the user's texts: fewer rows in the embeddings, the same tokens for these texts.

What stays: special tokens, every token that the texts use, and all single characters, so that other texts are
cut into smaller pieces instead of becoming unknown. Then, for the texts given, the pieces are the same as
before:

    WordPiece   the longest known piece comes first, and the pieces that won are all still there
    BPE         the merges behind each kept token stay, and the others never applied to these texts
    Unigram     the best cut of a text is made of kept pieces, and no better one can appear

A character that the vocabulary knows only inside longer pieces keeps all pieces that hold it. A vocabulary of
whole words has no pieces to fall back on, and is refused.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn
from transformers import AutoTokenizer, PretrainedConfig, PreTrainedTokenizerBase

from bermo.encoders.families import first_position
from bermo.encoders.sites import encoder_of
from bermo.errors import BermoError
from bermo.files import write_json
from bermo.models.encoder import BermoPreTrainedModel
from bermo.nn.factored import FactoredEmbedding
from bermo.nn.heads import MaskedHead
from bermo.progress import Display, Quiet

CHUNK = 1000


@dataclass(frozen=True, kw_only=True)
class VocabularyCut:
    """Which old ids stay, rising; the new id of a token is its index among them."""

    ids: tuple[int, ...]
    old_size: int
    used: int
    """Tokens that the texts use."""

    @property
    def new_id(self) -> dict[int, int]:
        return {old: new for new, old in enumerate(self.ids)}


def plan_cut(
    tokenizer: PreTrainedTokenizerBase,
    config: PretrainedConfig,
    texts: Sequence[str],
    display: Display | None = None,
) -> VocabularyCut:
    """Say which tokens stay for these texts; a tokenizer that cannot be cut safely is an error."""
    state = _state(tokenizer)
    kind, vocabulary = state["model"]["type"], _vocabulary(state)
    if kind not in ("WordPiece", "BPE", "Unigram"):
        raise BermoError(
            f"The tokenizer is a {kind} model, whose words have no smaller pieces: a word that is cut out"
            " would be unknown. Only WordPiece, BPE and Unigram vocabularies can be cut."
        )
    used = _used(tokenizer, texts, display or Quiet())
    special = set(tokenizer.all_special_ids) | {item["id"] for item in state["added_tokens"]}
    kept = used | special | {vocabulary[t] for t in _unknowns(state) if t in vocabulary}
    names = {number: token for token, number in vocabulary.items()}
    kept |= _letters(state, vocabulary)
    if kind == "BPE":
        kept |= _parts(state, vocabulary, [names[number] for number in kept if number in names])
    # Where positions start behind the padding token's id, that id must not change.
    kept |= set(range(first_position(config)))
    return VocabularyCut(ids=tuple(sorted(kept)), old_size=len(tokenizer), used=len(used))


def cut_tokenizer(
    tokenizer: PreTrainedTokenizerBase, cut: VocabularyCut, folder: Path, texts: Sequence[str]
) -> PreTrainedTokenizerBase:
    """Write the smaller tokenizer into a folder, load it from there, and check it on the texts."""
    tokenizer.save_pretrained(folder)
    path = folder / "tokenizer.json"
    state = json.loads(path.read_text(encoding="utf-8"))
    _renumber_(state, cut)
    write_json(path, state)
    for name in (
        "vocab.txt",
        "vocab.json",
        "merges.txt",
        "spiece.model",
        "sentencepiece.bpe.model",
    ):
        (folder / name).unlink(missing_ok=True)
    settings = folder / "tokenizer_config.json"
    values = json.loads(settings.read_text(encoding="utf-8"))
    # The tokens' numbers stand in tokenizer.json; a second list of them would be the old one.
    values.pop("added_tokens_decoder", None)
    write_json(settings, values)
    small = cast(PreTrainedTokenizerBase, AutoTokenizer.from_pretrained(folder, trust_remote_code=False))
    new_id = cut.new_id
    for begin in range(0, len(texts), CHUNK):
        part = list(texts[begin : begin + CHUNK])
        before, after = tokenizer(part)["input_ids"], small(part)["input_ids"]
        for text, old, new in zip(part, before, after, strict=True):
            if [new_id[number] for number in old] != new:
                raise BermoError(
                    f'With the smaller vocabulary "{text[:60]}" is cut in another way. This tokenizer'
                    " cannot be cut; leave --vocabulary out."
                )
    return small


@torch.no_grad()
def cut_embeddings_(model: BermoPreTrainedModel, cut: VocabularyCut) -> None:
    """Keep the embedding rows of the remaining tokens, in place, and those of a head tied to them."""
    known = model.get_input_embeddings()
    old = known.table if isinstance(known, FactoredEmbedding) else cast(nn.Embedding, known)
    rows = torch.tensor(cut.ids, device=old.weight.device)
    new_id = cut.new_id
    padding = None if old.padding_idx is None else new_id[old.padding_idx]
    new = nn.Embedding.from_pretrained(old.weight[rows].clone(), freeze=False, padding_idx=padding)
    new.weight.requires_grad_(old.weight.requires_grad)
    if isinstance(known, FactoredEmbedding):
        known.table = new
    else:
        model.set_input_embeddings(new)
    head = getattr(model, "head", None)
    if isinstance(head, MaskedHead):
        bias = nn.Parameter(head.decoder.bias[rows].clone())
        head.decoder = nn.Linear(new.embedding_dim, len(rows))
        head.decoder.weight, head.decoder.bias = new.weight, bias
    for config in (encoder_of(model).config, model.config):
        renumber_tokens_(config, cut)
    encoder_of(model).config.vocab_size = len(rows)


def renumber_tokens_(config: PretrainedConfig, cut: VocabularyCut) -> None:
    """Give the special tokens that a config names their new numbers, in place."""
    new_id = cut.new_id
    for name, value in list(vars(config).items()):
        if name.endswith("_token_id") and isinstance(value, int):
            setattr(config, name, new_id.get(value))


def _state(tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise BermoError("This tokenizer has no tokenizer.json, so its vocabulary cannot be cut.")
    return cast(dict[str, Any], json.loads(backend.to_str()))


def _vocabulary(state: dict[str, Any]) -> dict[str, int]:
    known = state["model"]["vocab"]
    if isinstance(known, dict):
        return dict(known)
    return {item[0]: number for number, item in enumerate(known)}


def _used(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], display: Display) -> set[int]:
    used: set[int] = set()
    display.start("reading texts", len(texts), 0)
    try:
        for begin in range(0, len(texts), CHUNK):
            for ids in tokenizer(list(texts[begin : begin + CHUNK]))["input_ids"]:
                used.update(ids)
            display.step(min(begin + CHUNK, len(texts)), None)
    finally:
        display.close()
    return used


def _unknowns(state: dict[str, Any]) -> list[str]:
    model = state["model"]
    if model["type"] == "Unigram":
        unknown = model.get("unk_id")
        return [] if unknown is None else [model["vocab"][unknown][0]]
    return [token for token in [model.get("unk_token")] if token]


def _letters(state: dict[str, Any], vocabulary: dict[str, int]) -> set[int]:
    """Return all one-character tokens, also inside words, and all tokens with a character that has none."""
    prefix = state["model"].get("continuing_subword_prefix") or ""
    suffix = state["model"].get("end_of_word_suffix") or ""
    added = {item["content"] for item in state["added_tokens"]}

    def bare(token: str) -> str:
        inner = token.removeprefix(prefix) if prefix else token
        return inner.removesuffix(suffix) if suffix else inner

    kept, alone = set(), set()
    for token, number in vocabulary.items():
        # SentencePiece marks the start of a word with ▁, and byte pieces look like <0x41>.
        is_byte = token.startswith("<0x") and token.endswith(">")
        if token in added or len(bare(token).removeprefix("▁")) <= 1 or is_byte:
            kept.add(number)
            if len(bare(token)) == 1:
                alone.add(token)
    forms = (lambda c: (c, prefix + c)) if prefix else (lambda c: (c,))
    for token, number in vocabulary.items():
        if token not in added and any(
            form not in alone for character in bare(token) for form in forms(character)
        ):
            kept.add(number)
    return kept


def _parts(state: dict[str, Any], vocabulary: dict[str, int], tokens: Iterable[str]) -> set[int]:
    """Return every token that BPE passes through on its way to some tokens."""
    ranks = {pair: rank for rank, pair in enumerate(_merges(state))}
    suffix = state["model"].get("end_of_word_suffix") or ""
    prefix = state["model"].get("continuing_subword_prefix") or ""
    ids: set[int] = set()
    for token in tokens:
        for part in _passed(token, ranks, prefix, suffix):
            if part in vocabulary:
                ids.add(vocabulary[part])
    return ids


def _passed(token: str, ranks: dict[tuple[str, str], int], prefix: str, suffix: str) -> set[str]:
    whole = token.removesuffix(suffix) if suffix else token
    ends = suffix if suffix and token.endswith(suffix) else ""
    inner = whole.removeprefix(prefix) if prefix else whole
    starts = prefix if prefix and whole.startswith(prefix) else ""
    pieces = [*inner]
    if not pieces:
        return {token}
    pieces = [starts + pieces[0], *(prefix + piece for piece in pieces[1:])]
    pieces[-1] += ends
    seen = set(pieces)
    while True:
        pairs = enumerate(pairwise(pieces))
        merges = [(ranks.get(pair, len(ranks)), position) for position, pair in pairs]
        rank, position = min(merges, default=(len(ranks), 0))
        if rank == len(ranks):
            return seen
        merged = pieces[position] + pieces[position + 1].removeprefix(prefix or "\0")
        pieces[position : position + 2] = [merged]
        seen.add(merged)


def _merges(state: dict[str, Any]) -> list[tuple[str, str]]:
    pairs = (m.split(" ", 1) if isinstance(m, str) else m for m in state["model"]["merges"])
    return [(left, right) for left, right in pairs]


def _renumber_(state: dict[str, Any], cut: VocabularyCut) -> None:
    """Rewrite every number in a tokenizer's state, and leave out the tokens and merges that are gone."""
    new_id, model = cut.new_id, state["model"]
    vocabulary = _vocabulary(state)
    if isinstance(model["vocab"], dict):
        left = {t: new_id[n] for t, n in vocabulary.items() if n in new_id}
        model["vocab"] = dict(sorted(left.items(), key=lambda item: item[1]))
    else:
        model["vocab"] = [item for n, item in enumerate(model["vocab"]) if n in new_id]
        if model.get("unk_id") is not None:
            model["unk_id"] = new_id[model["unk_id"]]
    if model["type"] == "BPE":
        prefix = model.get("continuing_subword_prefix") or "\0"
        model["merges"] = [
            [left, right]
            for left, right in _merges(state)
            if all(t in model["vocab"] for t in (left, right, left + right.removeprefix(prefix)))
        ]
    for item in state["added_tokens"]:
        item["id"] = new_id[item["id"]]
    if state.get("padding"):
        state["padding"]["pad_id"] = new_id[state["padding"]["pad_id"]]
    _renumber_processor_(state.get("post_processor"), new_id)


def _renumber_processor_(processor: dict[str, Any] | None, new_id: dict[int, int]) -> None:
    if processor is None:
        return
    for inner in processor.get("processors", []):
        _renumber_processor_(inner, new_id)
    for name in ("sep", "cls"):
        if name in processor:
            token, number = processor[name]
            processor[name] = [token, new_id[number]]
    for token in cast(dict[str, Any], processor.get("special_tokens") or {}).values():
        token["ids"] = [new_id[number] for number in token["ids"]]
