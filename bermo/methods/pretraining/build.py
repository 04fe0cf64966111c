"""What a pretraining works with: text, batches, teacher and model, built from its spec."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from bermo.data.pretrain.corpus import Corpus, load_corpus
from bermo.data.pretrain.masking import Masker
from bermo.data.pretrain.neighbours import Neighbours
from bermo.data.pretrain.order import Shuffled
from bermo.data.pretrain.packing import Chooser, PackedBatches, Pairs, Stream
from bermo.data.pretrain.permuted import Permuted, Unordered
from bermo.data.pretrain.phrases import Phrases, find_phrases
from bermo.data.pretrain.short_first import ShortFirst
from bermo.data.pretrain.spelled import spell
from bermo.data.pretrain.taught import TaughtBatches
from bermo.encoders.backbone import load_config
from bermo.encoders.elmo import ElmoConfig
from bermo.encoders.families import family_of, longest_input, num_layers
from bermo.encoders.layers import drop_layers_
from bermo.encoders.where import resolve
from bermo.errors import BermoError
from bermo.methods.pretraining.teach import Teacher, attach_maps_
from bermo.models.pretraining import (
    MaskedPretraining,
    Pretraining,
    ReplacedPretraining,
    Shape,
    build_masked,
    build_neighbours,
    build_permuted,
    build_replaced,
)
from bermo.models.start import Start, check_layers, dropouts_of, start_generator, start_masked
from bermo.pretrain_spec import ObjectiveKind, PretrainSpec
from bermo.progress import Display

PAIR_KINDS: Mapping[ObjectiveKind, int] = {"mlm+nsp": 2, "mlm+sop": 2, "structbert": 3}
"""How many kinds of pairs an objective tells apart."""
PretrainBatches = PackedBatches | TaughtBatches | ShortFirst
# The masks of held-out text are the same for every seed.
HELD_SEED = 0


@dataclass(frozen=True, kw_only=True)
class Work:
    """Everything that one pretraining works with."""

    spec: PretrainSpec
    corpus: Corpus
    batches: PretrainBatches
    out: Path
    display: Display
    accelerator: Accelerator
    teacher: Teacher | None = None

    @property
    def digest(self) -> str:
        """A short name of the text, and of the encoders that the training starts from and learns from."""
        names = [name for name in (self.spec.shape.model, self.spec.objective.teacher) if name]
        return "-".join([self.corpus.digest, *map(_weights_digest, names)])


def load_text(spec: PretrainSpec, tell: Callable[[str], None]) -> Corpus:
    """Read the text in the tokens of the encoder to go on from, of --tokenizer, or of its own vocabulary."""
    if spec.shape.model is None:
        return load_corpus(spec.text, spec.shape.positions, tell, spec.objective.teacher)
    config = load_config(spec.shape.model)
    if spec.shape.layers is not None:
        check_layers(config, spec.shape.model, spec.shape.layers)
    longest = longest_input(config)
    if longest is not None and spec.text.length > longest:
        raise BermoError(
            f"{spec.shape.model} has positions for {longest} tokens, but --length is {spec.text.length}."
            " Make --length smaller."
        )
    text = replace(spec.text, tokenizer=spec.shape.model)
    return load_corpus(text, longest or spec.shape.positions, tell, spec.objective.teacher)


def make_teacher(spec: PretrainSpec, accelerator: Accelerator) -> Teacher | None:
    """Load the teacher of the spec, if it has one."""
    if spec.objective.teacher is None:
        return None
    own, which = spec.shape.sizes.layers, spec.objective.teach_layers
    if spec.shape.model is not None:
        own = spec.shape.layers or num_layers(load_config(spec.shape.model)) - 1
    return Teacher(spec.objective.teacher, own, which, accelerator)


def make_batches(
    spec: PretrainSpec, corpus: Corpus, teacher: Teacher | None = None, is_held: bool = False
) -> PretrainBatches:
    """Pack training or held-out text into rows for the objective, with those of a teacher if there is one."""
    packed = _pack(spec, corpus, spec.text.length, is_held)
    if teacher is not None and corpus.frame is not None:
        return TaughtBatches(packed, corpus.frame, teacher.row_length(spec.text.length))
    if spec.text.short_length is None or spec.text.short_steps is None or is_held:
        return packed
    return ShortFirst(packed, _pack(spec, corpus, spec.text.short_length, is_held), spec.text.short_steps)


def _pack(spec: PretrainSpec, corpus: Corpus, length: int, is_held: bool) -> PackedBatches:
    objective, seed = spec.objective, HELD_SEED if is_held else spec.seed
    tokens = corpus.held if is_held else corpus.train
    source: Stream | Pairs
    match objective.kind:
        case "mlm+nsp" | "mlm+sop" | "structbert":
            kind: Any = objective.kind.removeprefix("mlm+").replace("structbert", "three")
            source = Pairs(tokens, corpus.pieces, length, seed, kind)
        case _:
            source = Stream(tokens, corpus.pieces, length, seed)
    return PackedBatches(source, _chooser(spec, corpus, seed, is_held), spec.pace.batch_size, seed)


def _chooser(spec: PretrainSpec, corpus: Corpus, seed: int, is_held: bool) -> Chooser:
    objective = spec.objective
    if objective.kind == "elmo":
        return Neighbours(corpus.pieces)
    if objective.kind == "xlnet" and not is_held:
        return Permuted(corpus.pieces, seed)
    masker = Masker(
        corpus.pieces,
        objective.masking,
        objective.share,
        seed,
        is_plain=objective.kind == "electra",
        phrases=_phrases(corpus) if objective.masking == "phrase" else None,
    )
    match objective.kind:
        case "structbert":
            return Shuffled(masker)
        case "xlnet":
            return Unordered(masker)
        case _:
            return masker


@lru_cache(1)
def _phrases(corpus: Corpus) -> Phrases:
    """Return the phrases of the training text, which hold for held-out text too."""
    return find_phrases(corpus.train, corpus.pieces)


def build_model(spec: PretrainSpec, corpus: Corpus, teacher: Teacher | None = None) -> Pretraining:
    """Build the model of the spec: what is not loaded is random, drawn from its seed."""
    torch.manual_seed(spec.seed)
    model: Pretraining
    if spec.shape.model is not None:
        start = Start(dropout=spec.shape.dropout, layers=spec.shape.layers, cuts=corpus.cuts)
        words = start_masked(spec.shape.model, start)
        if spec.objective.kind == "electra":
            model = ReplacedPretraining(start_generator(spec.shape.model, start), words.core)
        else:
            model = MaskedPretraining(words, PAIR_KINDS.get(spec.objective.kind, 0))
    elif spec.objective.kind == "electra":
        model = build_replaced(_shape(spec, corpus))
    elif spec.objective.kind == "elmo":
        spelled = spell(corpus.tokenizer)
        model = build_neighbours(elmo_config(spec, corpus), spelled.pieces, spelled.kinds)
    elif spec.objective.kind == "xlnet":
        model = build_permuted(_shape(spec, corpus))
    else:
        model = build_masked(_shape(spec, corpus), PAIR_KINDS.get(spec.objective.kind, 0))
    if spec.pace.only_head:
        model.encoder.requires_grad_(False)
    if spec.pace.recompute:
        _recompute_(model)
    if spec.pace.layer_drop:
        backbone = model.encoder.backbone
        drop_layers_(backbone, family_of(backbone.config), spec.pace.layer_drop)
    if teacher is not None:
        attach_maps_(model, teacher)
    # Parts that were loaded or wrapped are in evaluation mode, in which nothing is dropped.
    return model.train()


def _recompute_(model: Pretraining) -> None:
    """Let the layers of the encoder be computed again in the backward pass (Chen et al. 2016)."""
    if not model.encoder.supports_gradient_checkpointing:
        family = model.encoder.backbone.config.model_type
        raise BermoError(f"{family} cannot compute its layers again. Leave --recompute out.")
    model.encoder.gradient_checkpointing_enable()


def later_dropouts(spec: PretrainSpec) -> Mapping[str, float]:
    """Return the dropout that the saved encoder is fine-tuned with: that of the one it went on from."""
    if spec.shape.model is not None:
        return dropouts_of(load_config(spec.shape.model))
    if spec.objective.kind in ("elmo", "xlnet"):
        return {"dropout": spec.shape.later_dropout}
    names = ("hidden_dropout_prob", "attention_probs_dropout_prob")
    return dict.fromkeys(names, spec.shape.later_dropout)


def elmo_config(spec: PretrainSpec, corpus: Corpus) -> ElmoConfig:
    """Write the shape of an ELMo as its config."""
    shape = spec.elmo.shape
    return ElmoConfig(
        vocab_size=corpus.pieces.size,
        filters=shape.filters,
        max_characters=spec.elmo.characters,
        num_highways=shape.highways,
        cells=shape.cells,
        projection_size=shape.projection,
        dropout=spec.shape.dropout,
        pad_token_id=corpus.pieces.pad,
    )


def _shape(spec: PretrainSpec, corpus: Corpus) -> Shape:
    return Shape(
        **asdict(spec.shape.sizes),
        vocabulary=corpus.pieces.size,
        positions=spec.shape.positions,
        dropout=spec.shape.dropout,
        pad=corpus.pieces.pad,
        inner_mix=spec.shape.inner_mix,
    )


def _weights_digest(name: str) -> str:
    """Return a short name of an encoder's files, or of its name where it is on the hub."""
    folder, total = Path(resolve(name)), hashlib.sha256()
    files = sorted([*folder.glob("*.safetensors"), *folder.glob("config.json")])
    for file in files:
        with file.open("rb") as handle:
            total.update(hashlib.file_digest(handle, "sha256").digest())
    return total.hexdigest()[:16] if files else name
