"""What a run is: frozen, keyword-only dataclasses that carry every choice, and nothing else.

    RunSpec = ModelSpec (encoder, mix, pooling) + DataSpec (task, files) + TrainSpec (rates, steps) + seeds

A spec imports no torch and never enters `nn/`: builders unpack it into plain arguments. Each field's
metadata holds its help text, and the flag under which the command line offers it.
"""

import dataclasses
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal, TypeVar

from bermo.errors import BermoError, nearest

MixKind = Literal[
    "across",
    "within",
    "tensor",
    "raw",
    "none",
    "second-to-last",
    "concat-last-four",
    "sum-last-four",
    "gate",
]
Pooling = Literal["first", "last", "mean"]
Precision = Literal["fp32", "bf16", "fp16"]
PruneMethod = Literal[
    "none",
    "magnitude",
    "movement",
    "soft-movement",
    "l0",
    "heads-and-neurons",
    "layers",
]
UnitScores = Literal["movement", "soft-movement", "l0"]
Tracker = Literal["none", "tensorboard", "wandb", "mlflow", "trackio"]

T = TypeVar("T")


def option(default: Any, help: str, flag: str | None = None) -> Any:
    """Declare a spec field with its help text and, where its name would be unclear, its own flag."""
    return field(default=default, metadata={"help": help, "flag": flag})


@dataclass(frozen=True, kw_only=True)
class MixSpec:
    """How the layers h_0 … h_L become one sequence of vectors."""

    kind: MixKind = option("across", "how layers combine; none = the plain encoder", "mix")
    dropout: float = option(0.1, "dropout on the normalised layers", "mix-dropout")
    layer_dropout: float = option(0.0, "chance that a whole layer is left out of the mix")
    layers: tuple[int, ...] | None = option(None, "mix only these, 0 = embeddings, -1 = last")
    init: Literal["xavier", "zeros"] = option("xavier", "how the mix logits start", "mix-init")


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """Which encoder, how its layers mix, how a text becomes one vector."""

    backbone: str = option("box", "a name, a folder, or box (the encoder in the package)", "model")
    mix: MixSpec = MixSpec()
    pooling: Pooling | None = option(None, "the token a text is read from; default: the family's")
    head_dropout: float = option(0.1, "dropout before the last linear layer (spans have none)")
    freeze_embeddings: bool = option(False, "do not train the embeddings")
    first_layers: int | None = option(None, "use only so many of the encoder's layers, from the first on")
    untrained: bool = option(False, "start from random weights of the same shape, to compare with")


@dataclass(frozen=True, kw_only=True)
class DataSpec:
    """What is learned, and from which files."""

    task: str = option("own", "a named task (bermo list), or own: your texts and labels")
    folder: str | None = option(None, "the folder with the named task's files", "data")
    train: str | None = option(None, "your training file: .tsv .csv .jsonl .parquet")
    valid: str | None = option(None, "your validation file")
    hub: str | None = option(None, "a dataset on the hub (needs the datasets extra)")
    text: tuple[str, ...] | None = option(None, "column(s) of the text, if not found by name")
    label: str | None = option(None, "column of the label, if not found by name")
    max_length: int = option(128, "longest input in tokens; longer ones are cut and counted")
    stride: int = option(128, "overlap in tokens of the pieces of a long passage")
    limit: int | None = option(None, "use only the first so many training rows")
    max_unknown: float = option(0.05, "largest share of unknown tokens that is accepted")
    lowercase: Literal["off"] | None = option(
        None, "off keeps capitals that an uncased vocabulary lacks, as the paper probably did"
    )
    cache: str | None = option(None, "folder of the token cache; default: the user's cache folder")


@dataclass(frozen=True, kw_only=True)
class TrainSpec:
    """How the weights move, how often we look, and when we stop."""

    epochs: float = option(3.0, "passes over the training data")
    batch_size: int = option(32, "rows a step, over all processes and accumulation together")
    accumulation: int = option(1, "split each batch into so many forward passes")
    lr: float = option(3e-5, "learning rate of the encoder and the head")
    mix_lr: float = option(1e-2, "learning rate of the mix")
    weight_decay: float = option(0.0, "decay of all weights but biases, norms and the mix")
    warmup: float = option(0.1, "share of the steps in which the rates rise from zero")
    clip: float = option(1.0, "largest gradient norm over all weights together; 0 = no clipping")
    precision: Precision = option("fp32", "arithmetic of the forward pass")
    device: Literal["auto", "cpu"] = option("auto", "auto takes a GPU where there is one")
    group_lengths: bool = option(True, "put texts of like length into one batch")
    evaluations: int = option(1, "looks at the validation set per epoch")
    patience: int | None = option(None, "stop after so many looks without a better score")
    give_up: int | None = option(None, "stop after so many looks in a row at which every answer is the same")
    checkpoint_minutes: float = option(5.0, "save the state of the run every so many minutes")
    fast: Literal["auto", "exact", "off"] = option(
        "auto",
        "on a GPU whole steps as CUDA graphs, by fused kernels; exact = the plain step's bits; off",
    )
    together: int = option(1, "seeds that are trained at once, stacked in one model (for a GPU)")
    keep: Literal["best", "none"] = option("best", "save the model of the best look, or only scores")
    tracker: Tracker = option("none", "also log to this tracker")


@dataclass(frozen=True, kw_only=True)
class PruneSpec:
    """Which weights go, how many, and when."""

    method: PruneMethod = option("none", "how weights are chosen for pruning", "prune")
    by: UnitScores = option("movement", "how whole heads, neurons and layers are chosen", "prune-by")
    density: float | None = option(None, "share of the weights that is kept in the end")
    penalty: float | None = option(None, "λ of soft-movement and l0; without it, density is aimed at")
    threshold: float = option(0.1, "soft-movement: σ(score) over which a weight is kept in the end")
    scope: Literal["matrix", "global"] = option("matrix", "choose in each matrix, or over all", "scope")
    block: tuple[int, int] = option((1, 1), "rows,columns pruned together; 0 = all of them", "block")
    start: Literal["zeros", "magnitude"] = option("zeros", "what movement scores start from", "scores")
    rank: Literal["score", "size"] = option(
        "score", "movement keeps the highest scores, or the largest |weight| · σ(score)", "rank"
    )
    warmup_steps: int | None = option(
        None, "pruning waits so long; default: 10 % of the steps", "prune-warmup"
    )
    initial_warmup: int = option(1, "pruning starts after so many times prune-warmup")
    final_warmup: int = option(1, "pruning ends so many times prune-warmup before the end")
    lr: float = option(1e-2, "learning rate of the scores", "score-lr")


@dataclass(frozen=True, kw_only=True)
class DistillSpec:
    """What a student learns from a teacher beside the labels."""

    teacher: str | None = option(None, "a run or model folder that teaches")
    hard: float = option(0.1, "weight of the labels", "distill-hard")
    soft: float = option(0.9, "weight of the teacher's answers", "distill-soft")
    temperature: float = option(2.0, "softens both sides' answers")
    hidden: float = option(0.0, "weight of the teacher's hidden states", "distill-hidden")
    relations: float = option(0.0, "weight of its attention relations (MiniLM)", "distill-relations")
    embeddings: float = option(0.0, "weight of its embedding output", "distill-embeddings")
    layer_map: tuple[int, ...] | None = option(None, "teacher layer for each student layer; default: even")
    student_layers: tuple[int, ...] | None = option(None, "build the student from these teacher layers")


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One trained model per seed."""

    model: ModelSpec = ModelSpec()
    data: DataSpec = DataSpec()
    train: TrainSpec = TrainSpec()
    prune: PruneSpec = PruneSpec()
    distill: DistillSpec = DistillSpec()
    seeds: tuple[int, ...] = option((1,), "how many seeds (5), or which (9,25,39)")


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Runs to be read side by side: a name for each arm, and its spec."""

    arms: Mapping[str, RunSpec]


def to_dict(spec: Any) -> Any:
    """Turn a spec into plain JSON values."""
    if is_dataclass(spec) and not isinstance(spec, type):
        return {item.name: to_dict(getattr(spec, item.name)) for item in fields(spec)}
    return list(spec) if isinstance(spec, tuple) else spec


def from_dict(kind: type[T], values: Mapping[str, Any]) -> T:
    """Build a spec of the given class from plain values; an unknown name is an error."""
    hints = typing.get_type_hints(kind)
    for name in values:
        if name not in hints:
            raise BermoError(f'{kind.__name__} has no field "{name}".{nearest(name, hints)}')
    built = {
        name: from_dict(hints[name], value)
        if is_dataclass(hints[name])
        else _coerce(hints[name], value, name)
        for name, value in values.items()
    }
    return kind(**built)


def override(spec: T, dotted: str, text: str, shown: str | None = None) -> T:
    """Return `spec` with the field at a dotted path (`train.lr`) read from `text`; errors call it `shown`."""
    shown = shown or dotted
    head, _, rest = dotted.partition(".")
    hints = typing.get_type_hints(type(spec))
    if head not in hints:
        raise BermoError(f'{type(spec).__name__} has no field "{head}".{nearest(head, hints)}')
    if is_dataclass(hints[head]):
        if not rest:
            names = ", ".join(f"{head}.{item.name}" for item in fields(hints[head]))
            raise BermoError(f'"{head}" is a group of fields. Set one of them: {names}.')
        value = override(getattr(spec, head), rest, text, shown)
    elif dotted == "seeds":
        value = parse_seeds(text, spec.seeds)  # type: ignore[attr-defined]
    else:
        value = parse(hints[head], text, shown)
    return replace(spec, **{head: value})  # type: ignore[type-var]


def parse(hint: Any, text: str, name: str) -> Any:
    """Read the text of a command-line option as the type of the field `name`."""
    options = typing.get_args(hint)
    if typing.get_origin(hint) in (types.UnionType, typing.Union) and type(None) in options:
        if text.lower() == "none":
            return None
        return parse(next(item for item in options if item is not type(None)), text, name)
    if typing.get_origin(hint) is Literal:
        if text not in options:
            raise BermoError(f'{name} cannot be "{text}".{nearest(text, options)}')
        return text
    if typing.get_origin(hint) is tuple:
        return tuple(parse(options[0], item.strip(), name) for item in text.split(",") if item)
    if hint is bool:
        if text.lower() in ("true", "yes", "1", "false", "no", "0"):
            return text.lower() in ("true", "yes", "1")
        raise BermoError(f'{name} must be true or false, but got "{text}".')
    try:
        return hint(text)
    except ValueError:
        kind = "a whole number" if hint is int else "a number"
        raise BermoError(f'{name} must be {kind}, but got "{text}".') from None


def parse_seeds(text: str, known: tuple[int, ...]) -> tuple[int, ...]:
    """Read "9,25" as those seeds, and "5" as five: the known ones first, then the next free numbers."""
    numbers: tuple[int, ...] = parse(tuple[int, ...], text, "seeds")
    if len(numbers) != 1 or "," in text:
        return numbers
    if not 1 <= numbers[0] <= 1000:
        raise BermoError(f'seeds must be 1 to 1000, or a list such as "9,25", but got "{text}".')
    free = (seed for seed in range(1, 2001) if seed not in known)
    return tuple(known[k] if k < len(known) else next(free) for k in range(numbers[0]))


@dataclass(frozen=True, kw_only=True)
class Leaf:
    """One field of a spec as the command line sees it."""

    dotted: str
    flag: str
    help: str
    default: Any
    is_switch: bool


def leaves(spec: Any, prefix: str = "") -> list[Leaf]:
    """List every field of a spec, groups opened, with its flag."""
    hints = typing.get_type_hints(type(spec))
    found: list[Leaf] = []
    for item in fields(spec):
        value = getattr(spec, item.name)
        if is_dataclass(value):
            found += leaves(value, f"{prefix}{item.name}.")
            continue
        flag = item.metadata["flag"] or item.name.replace("_", "-")
        choices = [o for o in _choices(hints[item.name]) if isinstance(o, str)]
        help = item.metadata["help"] + (f" ({', '.join(choices)})" if choices else "")
        is_switch = hints[item.name] is bool
        found.append(
            Leaf(dotted=prefix + item.name, flag=flag, help=help, default=value, is_switch=is_switch)
        )
    return found


def _choices(hint: Any) -> list[Any]:
    """All values of the Literal types inside a type."""
    if typing.get_origin(hint) is Literal:
        return list(typing.get_args(hint))
    return [choice for inner in typing.get_args(hint) for choice in _choices(inner)]


def _coerce(hint: Any, value: Any, name: str) -> Any:
    """Check a plain value by reading its text, so that files and flags obey the same rules."""
    if value is None or isinstance(value, list | tuple):
        inner = next((o for o in typing.get_args(hint) if typing.get_origin(o) is tuple), hint)
        if value is None or typing.get_origin(inner) is not tuple:
            return value
        return tuple(parse(typing.get_args(inner)[0], str(item), name) for item in value)
    return parse(hint, str(value), name)


def check(spec: RunSpec) -> RunSpec:
    """Refuse a spec whose numbers make no sense, before any work starts; return it unchanged."""
    model, train, data, mix = spec.model, spec.train, spec.data, spec.model.mix
    rules = [
        (train.epochs > 0, f"epochs must be over 0, but got {train.epochs}."),
        (train.batch_size > 0, f"batch-size must be at least 1, but got {train.batch_size}."),
        (train.accumulation > 0, f"accumulation must be at least 1, but got {train.accumulation}."),
        (
            train.lr >= 0 and train.mix_lr >= 0,
            f"rates must be 0 or more, but got lr {train.lr}, mix-lr {train.mix_lr}.",
        ),
        (0 <= train.warmup <= 1, f"warmup is a share of the steps, 0 to 1, but got {train.warmup}."),
        (spec.prune.lr >= 0, f"score-lr must be 0 or more, but got {spec.prune.lr}."),
        (train.clip >= 0, f"clip must be 0 (off) or more, but got {train.clip}."),
        (
            model.first_layers is None or model.first_layers >= 1,
            f"first-layers must be at least 1, but got {model.first_layers}.",
        ),
        (train.together >= 1, f"together must be at least 1, but got {train.together}."),
        (train.evaluations >= 1, f"evaluations must be at least 1, but got {train.evaluations}."),
        (
            train.patience is None or train.patience >= 1,
            f"patience must be at least 1, but got {train.patience}.",
        ),
        (
            train.give_up is None or train.give_up >= 1,
            f"give-up must be at least 1, but got {train.give_up}.",
        ),
        (data.max_length >= 8, f"max-length must be at least 8 tokens, but got {data.max_length}."),
        (data.limit is None or data.limit >= 1, f"limit must be at least 1, but got {data.limit}."),
        (0 <= data.max_unknown <= 1, f"max-unknown is a share, 0 to 1, but got {data.max_unknown}."),
        (
            0 <= mix.dropout < 1 and 0 <= mix.layer_dropout < 1,
            f"dropout must lie in [0, 1), but got mix-dropout {mix.dropout}, layer-dropout {mix.layer_dropout}.",
        ),
        (
            len(set(spec.seeds)) == len(spec.seeds) > 0,
            f"seeds must be different numbers, but got {spec.seeds}.",
        ),
    ]
    for holds, sentence in rules:
        if not holds:
            raise BermoError(sentence)
    return spec


def replace_in(spec: RunSpec, **groups: Mapping[str, Any]) -> RunSpec:
    """Return `spec` with fields of its groups replaced: replace_in(spec, train={"epochs": 1})."""
    return replace(
        spec,
        **{name: dataclasses.replace(getattr(spec, name), **values) for name, values in groups.items()},
    )
