"""What a user left open, chosen from the encoder and the data: rate, epochs, batch, head and pooling.

    rate     3e-5 at width 768, more where the encoder is narrower: (768 / width)^1.75; the box has its own
    epochs   3, or as many as give 400 steps
    batch    32 rows, 16 under 1,000 rows
    head     a linear probe of the frozen encoder (head.py), where the kind of task has one
    contrast weight 1 under 1,000 rows of classes (contrast.py), without a teacher, pruning or a random head
    pooling  as the folder says (sentence-transformers), else what the probe finds better
    mix      starts at the last layer under the same conditions, else at random
    pruning  movement by sensitivity over all matrices; units by size

A spec is resolved once, before training; from then on every value is concrete, and the folder of the run
keeps it. With a random head pooling is the family's: that is how all measured recipes train.
"""

import math
from dataclasses import dataclass, replace

from bermo.data.tasks import Kind
from bermo.errors import BermoError
from bermo.methods.checks import resolve_prune
from bermo.spec import MixKind, MixSpec, Pooling, RunSpec, replace_in

RATE = 3e-5
WIDTH = 768
RATE_POWER = 1.75
LARGEST_RATE = 5e-4
BOX_RATE = 5e-4
EPOCHS = 3.0
LEAST_STEPS = 400
MOST_EPOCHS = 100.0
BATCH = 32
SMALL_BATCH = 16
FEW_ROWS = 1000
CONTRAST = 1.0
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


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """A spec without open values (but for a pooling that the probe chooses), and what was chosen and why."""

    spec: RunSpec
    reasons: tuple[str, ...]


def resolve_defaults(spec: RunSpec, facts: Facts) -> Resolved:
    """Choose every open value of the spec but a pooling that no file names."""
    train, reasons = spec.train, []
    lr, batch_size, epochs = train.lr, train.batch_size, train.epochs
    if lr is None:
        lr = usual_rate(facts)
        reasons.append(f"rate {lr:.1g} ({'the box' if facts.is_box else f'width {facts.width}'})")
    if batch_size is None:
        batch_size = SMALL_BATCH if facts.num_rows < FEW_ROWS else BATCH
        reasons.append(f"{batch_size} rows a step")
    if epochs is None:
        steps_an_epoch = math.ceil(facts.num_rows / batch_size)
        epochs = usual_epochs(steps_an_epoch)
        steps = f"{facts.num_rows:,} rows: {epochs * steps_an_epoch:,.0f} steps"
        reasons.append(f"{epochs:g} epochs ({steps})")
    model, said = _resolve_model(spec, facts)
    contrast = train.contrast
    if contrast and facts.kind != "classification":
        raise BermoError(f"Contrast needs classes of whole texts, not {facts.kind}. Leave --contrast out.")
    if contrast is None:
        contrast = CONTRAST if _can_contrast(spec, facts, model["head"]) else 0.0
        said += [f"contrast of classes {contrast:g}"] if contrast else []
    if mix := _resolve_mix(spec, _can_contrast(spec, facts, model["head"])):
        model["mix"] = mix
        said += ["the mix starts at the last layer"] if mix.init == "last" else []
    chosen = {"lr": lr, "batch_size": batch_size, "epochs": epochs, "contrast": contrast}
    resolved = replace_in(replace(spec, prune=resolve_prune(spec.prune)), train=chosen, model=model)
    return Resolved(spec=resolved, reasons=(*reasons, *said))


def _can_contrast(spec: RunSpec, facts: Facts, head: object) -> bool:
    """Tell whether the contrast of classes was measured to help in such a training."""
    is_whole = spec.train.together == 1 and spec.train.accumulation == 1
    is_alone = spec.distill.teacher is None and spec.prune.method == "none" and is_whole
    is_small = facts.kind == "classification" and facts.num_rows < FEW_ROWS
    return is_small and is_alone and head == "probe"


def _resolve_mix(spec: RunSpec, is_small: bool) -> MixSpec | None:
    """Return the mix with the start that the spec leaves open; None where it has no shares, or says it."""
    mix = spec.model.mix
    if mix.init is not None or mix.kind not in SHARED_KINDS:
        return None
    return replace(mix, init="last" if is_small else "xavier")


def usual_rate(facts: Facts) -> float:
    """Return the learning rate for the encoder, with one digit."""
    if facts.is_box:
        return BOX_RATE
    rate = min(LARGEST_RATE, RATE * (WIDTH / facts.width) ** RATE_POWER)
    return float(f"{rate:.0e}")


def usual_epochs(steps_an_epoch: int) -> float:
    """Return the passes over the data: the usual number, or enough for the least number of steps."""
    return float(min(MOST_EPOCHS, max(EPOCHS, math.ceil(LEAST_STEPS / steps_an_epoch))))


def has_open_pooling(spec: RunSpec, kind: Kind) -> bool:
    """Tell whether the probe has to choose the pooling of a spec that is resolved otherwise."""
    return spec.model.pooling is None and spec.model.head == "probe" and kind in POOLED_KINDS


def _resolve_model(spec: RunSpec, facts: Facts) -> tuple[dict[str, object], list[str]]:
    """Choose how the head starts and, where a file names it, the pooling."""
    # A student made of its teacher's layers has its teacher's head and pooling.
    can_probe = facts.kind in PROBED_KINDS and spec.distill.student_layers is None
    if spec.model.head == "probe" and not can_probe:
        is_student = spec.distill.student_layers is not None
        what = "a student of its teacher's layers" if is_student else f"a task of the kind {facts.kind}"
        raise BermoError(f"There is no linear probe for the head of {what}. Leave --head out.")
    head = (spec.model.head or "probe") if can_probe else "random"
    pooling, said = spec.model.pooling, []
    if spec.model.head is None and head == "probe":
        said.append("the head starts as a linear probe")
    if pooling is None and head == "probe" and facts.kind in POOLED_KINDS and facts.trained_pooling:
        pooling = facts.trained_pooling
        said.append(f"pooling {pooling} (as the encoder's folder says)")
    return {"head": head, "pooling": pooling}, said
