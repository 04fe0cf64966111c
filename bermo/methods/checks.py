"""Options of pruning, of a teacher and of seeds together that cannot work, refused before torch is imported.

A pruning that can work is a method's own class (`pruning/criteria.py`), made here from the spec.
"""

from dataclasses import replace

from bermo.distill_spec import INNER
from bermo.errors import BermoError
from bermo.fields import leaves
from bermo.methods.fewer_tokens import check_kept_tokens
from bermo.pruning.criteria import L0, AnyMethod, Magnitude, Movement, Proximal, SoftMovement, usual_scope
from bermo.spec import USUAL_MIX, DistillSpec, PruneSpec, RunSpec, chosen

UNITS = ("heads-and-neurons", "layers")
"""Methods that prune whole units; `by` says how these are chosen."""


def check_methods(spec: RunSpec) -> None:
    """Refuse options of pruning and distillation that cannot work, before any file is read."""
    check_distill(spec.distill)
    check_answers(spec.distill)
    has_teacher = spec.distill.teacher is not None or spec.distill.answers is not None
    if not has_teacher and spec.distill != type(spec.distill)():
        raise BermoError("Options of distillation need a teacher. Name one with --teacher.")
    check_theseus(spec)
    if spec.method.tie_layers is not None:
        check_tied(spec)
    check_kept(spec)
    if spec.has_teachers_layers and spec.model.pooling is not None:
        raise BermoError(
            "A student made of its teacher's layers pools as the teacher does. Leave --pooling out."
        )
    if spec.train.contrast and spec.train.accumulation > 1:
        raise BermoError(
            "Contrast compares the texts of whole batches. Leave --accumulation or --contrast out."
        )
    if spec.distill.neighbours:
        check_neighbours(spec)
    check_prune(spec.prune)
    check_average(spec)
    check_together(spec)
    check_steady(spec)
    check_kept_tokens(spec)
    check_mix_path(spec)


def check_average(spec: RunSpec) -> None:
    """Refuse a mean of weights that are masked, rounded, replaced or moved by another method."""
    moving = ("quantize", "theseus", "mixout", "keep_tokens", "mix_path")
    others = {f"--{name.replace('_', '-')}": getattr(spec.method, name) is not None for name in moving}
    others |= {"--together": spec.train.together > 1, "--prune": spec.prune.method != "none"}
    for flag, is_set in others.items():
        if is_set and spec.train.average == "on":
            raise BermoError(f"A mean of the weights cannot be kept with {flag}. Leave --average out.")


def check_neighbours(spec: RunSpec) -> None:
    """Refuse neighbours of what has no vector, and of batches that are computed in parts."""
    if spec.data.task != "own/embedding":
        raise BermoError(
            "--distill-neighbours compares sentence vectors. Leave it out, or train a sentence encoder"
            " (--kind embedding)."
        )
    if spec.train.accumulation > 1:
        raise BermoError(
            "Neighbours are those of whole batches. Leave --accumulation or --distill-neighbours out."
        )


def check_kept(spec: RunSpec) -> None:
    """Refuse two choices of layers, and a choice without a number."""
    model = spec.model
    given = [name for name in ("first-layers", "keep-layers") if getattr(model, name.replace("-", "_"))]
    if spec.has_teachers_layers and given:
        raise BermoError(f"A student of its teacher's layers names them. Leave --{given[0]} out.")
    if len(given) > 1:
        raise BermoError("--first-layers and --keep-layers both choose layers. Leave one out.")
    if model.keep_by is not None and model.keep_layers is None:
        raise BermoError("--keep-by says which layers are kept. Say how many with --keep-layers.")
    if model.keep_by == "contribution" and model.untrained:
        raise BermoError("Random layers contribute nothing to choose by. Leave --untrained or --keep-by out.")


def check_theseus(spec: RunSpec) -> None:
    """Refuse what a model whose layers replace its teacher's cannot be combined with."""
    if spec.method.theseus is None:
        return
    if spec.distill.teacher is None:
        raise BermoError("--theseus replaces the layers of a teacher. Name one with --teacher.")
    if spec.distill != DistillSpec(teacher=spec.distill.teacher):
        raise BermoError("--theseus learns from the labels alone. Leave the options of distillation out.")
    others = {
        "--prune": spec.prune.method != "none",
        "--quantize": spec.method.quantize is not None,
        "--freeze-embeddings": spec.model.freeze_embeddings,
        "--low-rank": spec.method.low_rank is not None,
        "--embedding-rank": spec.method.embedding_rank is not None,
    }
    for flag, is_set in others.items():
        if is_set:
            raise BermoError(f"--theseus trains its own layers alone. Leave {flag} to a run after it.")


def check_tied(spec: RunSpec) -> None:
    """Refuse what layers that share their weights cannot be combined with."""
    method = spec.method
    others = {
        "--theseus": method.theseus is not None,
        "--prune": spec.prune.method != "none",
        "--quantize": method.quantize is not None,
        "--low-rank": method.low_rank is not None,
        "--keep-tokens": method.keep_tokens is not None,
        "--mixout": method.mixout is not None,
        "--lora": method.lora is not None,
        "--together": spec.train.together > 1,
    }
    for flag, is_set in others.items():
        if is_set:
            raise BermoError(f"Layers that share their weights cannot be trained with {flag}. Leave one out.")
    if spec.data.task == "own/embedding":
        raise BermoError(
            "A sentence encoder is saved in a form that has no tied layers. Leave --tie-layers out."
        )


def check_steady(spec: RunSpec) -> None:
    """Refuse what mixout, LoRA and several passes a step cannot be combined with."""
    if spec.method.quantize in ("ternary", "binary") and spec.prune.method != "none":
        raise BermoError(f"--quantize {spec.method.quantize} chooses its own zeros. Leave --prune out.")
    if spec.method.mixout is not None and spec.prune.method != "none":
        raise BermoError("Mixout would bring pruned weights back. Leave --mixout or --prune out.")
    others = {
        "--prune": spec.prune.method != "none",
        "--mixout": spec.method.mixout is not None,
        "--theseus": spec.method.theseus is not None,
    }
    for flag, is_set in others.items():
        if spec.method.lora is not None and is_set:
            raise BermoError(
                f"--lora leaves the matrices as they are, which {flag} would change. Leave one out."
            )
    if spec.method.has_passes and spec.data.task == "own/embedding":
        raise BermoError("--rdrop and --adversarial need answers, which a sentence encoder has none of.")
    if spec.method.adversarial is not None and spec.train.precision == "fp16":
        raise BermoError("--adversarial needs gradients that fp16 rounds to nothing. Use fp32 or bf16.")


def check_answers(spec: DistillSpec) -> None:
    """Refuse what a file of answers cannot teach."""
    if spec.answers is None:
        return
    only_answers = DistillSpec(
        answers=spec.answers,
        unlabelled=spec.unlabelled,
        hard=spec.hard,
        soft=spec.soft,
        temperature=spec.temperature,
    )
    if spec != only_answers:
        raise BermoError(
            "--teacher-answers has probabilities and no model, so there are no layers to learn from. Leave"
            " --teacher and the options of its layers out."
        )
    if min(spec.hard, spec.soft) < 0 or not spec.soft or spec.temperature <= 0:
        raise BermoError(
            "The weights of --teacher-answers must be 0 or more, distill-soft and temperature over 0, but got"
            f" hard {spec.hard}, soft {spec.soft}, temperature {spec.temperature}."
        )


def check_mix_path(spec: RunSpec) -> None:
    """Refuse a mix that cannot come or go."""
    path, kind = spec.method.mix_path, spec.model.mix.kind or USUAL_MIX
    if path is None:
        return
    if path == "closes" and kind not in ("raw", "sum-last-four"):
        raise BermoError(
            f'--mix-path closes ends in the last layer as it is, but the mix "{kind}" changes what it reads.'
            " Add --mix raw."
        )
    if kind not in ("across", "within", "tensor", "raw", "sum-last-four"):
        raise BermoError(
            f'--mix-path opens moves the shares of a learned mix, but "{kind}" has none. Add --mix across.'
        )
    if spec.method.theseus is not None:
        raise BermoError("--theseus trains its own layers alone. Leave --mix-path to a run after it.")


def check_distill(spec: DistillSpec) -> None:
    """Refuse weights of terms that make no sense, before anything is loaded."""
    spec = spec.parts
    weights = {name: getattr(spec, name) for name in ("hard", "soft", "neighbours", *INNER)}
    if spec.teacher is None:
        if spec.student_layers is not None:
            raise BermoError("student-layers are layers of a teacher. Name one with --teacher.")
        return
    _check_shares(spec)
    if min(weights.values()) < 0 or not (spec.soft or spec.neighbours or spec.has_inner):
        shown = ", ".join(f"{name.replace('_', '-')} {weight}" for name, weight in weights.items())
        raise BermoError(
            "The weights of distillation must be 0 or more, and one of the teacher's over 0, but got"
            f" {shown}."
        )
    if spec.temperature <= 0:
        raise BermoError(f"temperature must be over 0, but got {spec.temperature}.")


def _check_shares(spec: DistillSpec) -> None:
    """Refuse a share of the neurons or heads of layers that are not named."""
    for name, share in (("neurons", spec.student_neurons), ("heads", spec.student_heads)):
        if share < 1 and spec.student_layers is None:
            raise BermoError(f"student-{name} are of a teacher's layers. Name these with --student-layers.")
    if spec.student_heads < 1 and (spec.attention or spec.last_attention):
        raise BermoError(
            "Attention is compared head by head, and --student-heads takes some out. Leave it out, or learn"
            " --distill-relations instead."
        )


def check_together(spec: RunSpec) -> None:
    """Refuse options that several seeds cannot be trained together with, before any file is read."""
    train, distill = spec.train, spec.distill
    faults = {
        "an accumulation of gradients": train.accumulation > 1,
        "patience, since they all end together": train.patience is not None,
        "fp16": train.precision == "fp16",
        "pruning of whole units": spec.prune.method in UNITS,
        "proximal pruning": spec.prune.method == "proximal",
        "blocks of weights": spec.prune.block != (1, 1),
        "weights that are set back (rewind)": spec.prune.rewind is not None,
        "a teacher of attention relations": distill.relations > 0,
        "a teacher of attention": distill.parts.attention > 0 or distill.parts.last_attention > 0,
        "a sentence encoder": spec.data.task == "own/embedding",
        "contrast, whose pairs would be of several models": bool(train.contrast),
        "a mix that opens or closes": spec.method.mix_path is not None,
        "mixout": spec.method.mixout is not None,
        "low-rank updates": spec.method.lora is not None,
        "matrices of low rank": spec.method.has_factors,
        "several passes a step": spec.method.has_passes,
        "layers that replace a teacher's": spec.method.theseus is not None,
        "tokens that are left out": spec.method.keep_tokens is not None,
        "quantised weights": spec.method.quantize is not None,
        'the mix "tensor", which normalises over a whole batch': spec.model.mix.kind == "tensor",
    }
    refused = [name for name, is_set in faults.items() if is_set]
    if train.together > 1 and refused:
        raise BermoError(f"Seeds cannot be trained together with {refused[0]}. Leave --together out.")


def check_prune(spec: PruneSpec) -> None:
    """Refuse a spec that cannot work, before anything is loaded or trained."""
    if spec.method != "none":
        make_method(spec)
        return
    for leaf in leaves(spec):
        if leaf.dotted != "method" and leaf.default != getattr(PruneSpec(), leaf.dotted):
            raise BermoError(f"{leaf.shown} belongs to pruning. Choose a method with --prune.")


def resolve_prune(spec: PruneSpec) -> PruneSpec:
    """Return the spec with the ranking and the scope that it leaves open."""
    has_ranks = spec.method == "movement" or (spec.method == "heads-and-neurons" and spec.by == "movement")
    if not has_ranks:
        return replace(spec, scope=spec.scope or "matrix") if spec.method == "magnitude" else spec
    rank = spec.rank or ("sensitivity" if spec.method == "movement" else "size")
    return replace(spec, rank=rank, scope=spec.scope or usual_scope(rank))


def make_method(spec: PruneSpec) -> AnyMethod:
    """Unpack the spec into the method's own class; an option that the method cannot use is an error."""
    spec = resolve_prune(spec)
    if spec.method in UNITS:
        _refuse(spec, "block", *(["scope", "start", "rank"] if spec.method == "layers" else []))
        if spec.by == "movement" and spec.density is None:
            raise BermoError(f"--prune {spec.method} needs --density, the share that is kept.")
        rank = "score" if spec.method == "layers" and spec.by == "movement" else spec.rank
        return make_method(replace(spec, method=spec.by, by="movement", rank=rank))
    _refuse(spec, "by", *(["rewind"] if spec.method != "magnitude" else []))
    if spec.rewind is not None:
        _refuse(spec, "block", "warmup_steps", "initial_warmup", "final_warmup")
    match spec.method:
        case "magnitude" | "movement" if spec.density is None:
            raise BermoError(f"--prune {spec.method} needs --density, the share that is kept.")
        case "magnitude":
            _refuse(spec, "penalty", "threshold", "start", "rank")
            return Magnitude(density=_density(spec), scope=chosen(spec.scope), block=spec.block)
        case "movement":
            _refuse(spec, "penalty", "threshold")
            return Movement(
                density=_density(spec),
                scope=spec.scope,
                block=spec.block,
                start=spec.start,
                rank=chosen(spec.rank),
            )
        case "soft-movement":
            _refuse(spec, "scope", "start", "rank")
            return SoftMovement(
                penalty=spec.penalty,
                density=spec.density,
                threshold=spec.threshold,
                block=spec.block,
            )
        case "l0":
            _refuse(spec, "scope", "start", "rank", "threshold")
            return L0(penalty=spec.penalty, density=spec.density, block=spec.block)
        case "proximal":
            _refuse(spec, "scope", "start", "rank", "threshold", "block")
            return Proximal(penalty=spec.penalty, density=spec.density)
        case _:
            raise BermoError("There is no pruning method to make.")


def _density(spec: PruneSpec) -> float:
    assert spec.density is not None, "the caller has checked it"
    return spec.density


def _refuse(spec: PruneSpec, *names: str) -> None:
    flags = {leaf.dotted: leaf.shown for leaf in leaves(spec)}
    for name in names:
        if getattr(spec, name) != getattr(PruneSpec(), name):
            raise BermoError(f"{flags[name]} means nothing to --prune {spec.method}. Leave it out.")
