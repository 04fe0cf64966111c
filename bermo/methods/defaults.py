"""What a user left open, chosen from the encoder and the data: rate, epochs, batch, head and pooling.

    rate     3e-5 at width 768, more where the encoder is narrower: (768 / width)^1.75; the box has its own;
             three tenths of it where pairs are read apart
    epochs   3, or as many as give 400 steps
    batch    32 rows, 16 under 1,000 rows
    head     a linear probe of the frozen encoder (head.py), where the kind of task has one
    contrast weight 1 under 1,000 rows of classes (contrast.py), without a teacher, pruning or a random head;
             none where pairs are read apart, since no text alone tells the class of its pair
    average  with contrast, of an encoder narrower than 768, whose rate is high; without other methods
    pooling  as the folder says (sentence-transformers), else what the probe finds better
    pairs    as the teacher reads them; under 1,000 rows what the probe finds better (classes: of an encoder
             narrower than 768), else as one text
    mix      across, but none of pairs apart, and none where a sentence encoder narrower than 768 learns with
             contrast: it was trained to give its last layer's vectors; starts at the last layer where there
             is contrast, else at random
    pruning  movement by sensitivity over all matrices; units by size

A spec is resolved once, before training; from then on every value is concrete, and the folder of the run
keeps it. With a random head pooling is the family's: that is how all measured recipes train.
"""

import math
from dataclasses import dataclass, replace

from bermo.data.tasks import Kind
from bermo.errors import BermoError
from bermo.method_spec import MethodSpec
from bermo.methods.checks import resolve_prune
from bermo.spec import USUAL_MIX, HeadStart, MixKind, MixSpec, Pairs, Pooling, RunSpec, replace_in

RATE = 3e-5
WIDTH = 768
RATE_POWER = 1.75
LARGEST_RATE = 5e-4
BOX_RATE = 2e-4
EPOCHS = 3.0
LEAST_STEPS = 400
MOST_EPOCHS = 100.0
BATCH = 32
SMALL_BATCH = 16
FEW_ROWS = 1000
CONTRAST = 1.0
APART_RATE = 0.3
"""Share of the usual rate with which a model learns that reads pairs apart: its start is nearly its best."""
POOLED_KINDS: tuple[Kind, ...] = ("classification", "multi-label", "regression")
SHARED_KINDS: tuple[MixKind, ...] = ("across", "within", "tensor", "raw", "sum-last-four")
"""Kinds of mix whose layers have shares that are learned."""
PROBED_KINDS: tuple[Kind, ...] = (*POOLED_KINDS, "tagging")


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What the choices are made from."""

    width: int
    is_box: bool
    kind: Kind
    num_rows: int
    family_pooling: Pooling
    trained_pooling: Pooling | None = None
    has_pairs: bool = False
    teacher_pairs: Pairs | None = None
    has_fewer_tokens: bool = False
    """Whether the encoder hands on fewer tokens from layer to layer, of which only the first is sure."""


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """A spec without open values (but for those that the probe chooses: pooling, and how pairs are read),
    and what was chosen and why.
    """

    spec: RunSpec
    reasons: tuple[str, ...]


def resolve_defaults(spec: RunSpec, facts: Facts) -> Resolved:
    """Choose every open value of the spec but those that the probe chooses."""
    train, reasons = spec.train, []
    lr, batch_size, epochs = train.lr, train.batch_size, train.epochs
    model, said = _resolve_model(spec, facts)
    # Where the probe has yet to choose how pairs are read, what depends on it stays open until then.
    pairs = model["pairs"]
    if lr is None and pairs is not None:
        lr = usual_rate(facts, is_apart=pairs == "apart")
        reasons.append(f"rate {lr:.1g} ({'the box' if facts.is_box else f'width {facts.width}'})")
    if batch_size is None:
        batch_size = SMALL_BATCH if facts.num_rows < FEW_ROWS else BATCH
        reasons.append(f"{batch_size} rows a step")
    if epochs is None:
        steps_an_epoch = math.ceil(facts.num_rows / batch_size)
        epochs = usual_epochs(steps_an_epoch)
        steps = f"{facts.num_rows:,} rows: {epochs * steps_an_epoch:,.0f} steps"
        reasons.append(f"{epochs:g} epochs ({steps})")
    contrast = train.contrast
    if contrast and facts.kind != "classification":
        raise BermoError(f"Contrast needs classes of whole texts, not {facts.kind}. Leave --contrast out.")
    can_contrast = _can_contrast(spec, facts, model["head"])
    if contrast is None and pairs is not None:
        contrast = CONTRAST if can_contrast and pairs == "joined" else 0.0
        said += [f"contrast of classes {contrast:g}"] if contrast else []
    average = train.average
    if average is None and pairs is not None:
        is_measured = bool(contrast) and can_contrast and facts.width < WIDTH
        average = "on" if is_measured and spec.method == MethodSpec() else "off"
        said += ["a mean of the weights is kept"] if average == "on" else []
    if pairs is not None:
        given = spec.model.mix
        is_sentence = facts.trained_pooling is not None and facts.width < WIDTH
        has_none = pairs == "apart" or (can_contrast and is_sentence and spec.method.mix_path is None)
        model["mix"] = mix = _resolve_mix(given, has_none, can_contrast)
        said += ["the mix starts at the last layer"] if given.init is None and mix.init == "last" else []
        said += ["no mix of layers"] if given.kind is None and mix.kind == "none" else []
    few = {"contrast": contrast, "average": average}
    chosen = few | {"lr": lr, "batch_size": batch_size, "epochs": epochs}
    resolved = replace_in(replace(spec, prune=resolve_prune(spec.prune)), train=chosen, model=model)
    return Resolved(spec=resolved, reasons=(*reasons, *said))


def _can_contrast(spec: RunSpec, facts: Facts, head: object) -> bool:
    """Tell whether the contrast of classes was measured to help in such a training."""
    is_whole = spec.train.together == 1 and spec.train.accumulation == 1
    is_alone = spec.distill.teacher is None and spec.prune.method == "none" and is_whole
    is_small = facts.kind == "classification" and facts.num_rows < FEW_ROWS
    return is_small and is_alone and head == "probe"


def _resolve_mix(mix: MixSpec, has_none: bool, is_last_best: bool) -> MixSpec:
    """Return the mix with what the spec leaves open; whoever says anything of a mix has one."""
    kind = mix.kind or ("none" if has_none and mix == MixSpec() else USUAL_MIX)
    init = mix.init
    if init is None and kind in SHARED_KINDS:
        init = "last" if is_last_best or has_none else "xavier"
    return replace(mix, kind=kind, init=init)


def usual_rate(facts: Facts, is_apart: bool = False) -> float:
    """Return the learning rate for the encoder, with one digit."""
    rate = BOX_RATE if facts.is_box else min(LARGEST_RATE, RATE * (WIDTH / facts.width) ** RATE_POWER)
    return float(f"{APART_RATE * rate if is_apart else rate:.0e}")


def usual_epochs(steps_an_epoch: int) -> float:
    """Return the passes over the data: the usual number, or enough for the least number of steps."""
    return float(min(MOST_EPOCHS, max(EPOCHS, math.ceil(LEAST_STEPS / steps_an_epoch))))


def has_open_pooling(spec: RunSpec, kind: Kind) -> bool:
    """Tell whether the probe has to choose the pooling of a spec that is resolved otherwise."""
    return spec.model.pooling is None and spec.model.head == "probe" and kind in POOLED_KINDS


def _resolve_model(spec: RunSpec, facts: Facts) -> tuple[dict[str, object], list[str]]:
    """Choose how the head starts and, where a file names it, the pooling."""
    # A student made of its teacher's layers has its teacher's head and pooling.
    can_probe = facts.kind in PROBED_KINDS and not spec.has_teachers_layers
    if spec.model.head == "probe" and not can_probe:
        what = (
            "a student of its teacher's layers"
            if spec.has_teachers_layers
            else f"a task of the kind {facts.kind}"
        )
        raise BermoError(f"There is no linear probe for the head of {what}. Leave --head out.")
    head = (spec.model.head or "probe") if can_probe else "random"
    pooling, said = spec.model.pooling, []
    if spec.model.head is None and head == "probe":
        said.append("the head starts as a linear probe")
    if pooling is None and facts.has_fewer_tokens and not spec.has_teachers_layers:
        pooling = "first"
        said.append("pooling first (the encoder leaves other tokens out)")
    elif pooling is None and head == "probe" and facts.kind in POOLED_KINDS and facts.trained_pooling:
        pooling = facts.trained_pooling
        said.append(f"pooling {pooling} (as the encoder's folder says)")
    return {"head": head, "pooling": pooling, "pairs": _resolve_pairs(spec.model.pairs, facts, head)}, said


def _resolve_pairs(given: Pairs | None, facts: Facts, head: HeadStart) -> Pairs | None:
    """Return how the two texts of a pair are read; None where the probe has to choose."""
    can_choose = facts.has_pairs and facts.kind in POOLED_KINDS
    if given == "apart" and not can_choose:
        what = f"a task of the kind {facts.kind}" if facts.has_pairs else "one text a row"
        raise BermoError(f"There are no two texts to be read apart in {what}. Leave --pairs out.")
    if given is not None and facts.teacher_pairs not in (None, given):
        raise BermoError(
            f"The teacher reads pairs {facts.teacher_pairs}, and its student the same tokens, but got --pairs"
            f" {given}. Leave --pairs out."
        )
    is_small = facts.num_rows < FEW_ROWS and head == "probe"
    # A wide encoder learns classes better from both texts together, whatever its frozen vectors say.
    can_choose = can_choose and (facts.width < WIDTH or facts.kind == "regression")
    return given or facts.teacher_pairs or (None if can_choose and is_small else "joined")
