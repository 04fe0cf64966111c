"""What a run is: frozen, keyword-only dataclasses that carry every choice, and nothing else.

    RunSpec = ModelSpec (encoder, mix, pooling) + DataSpec (task, files) + TrainSpec (rates, steps) + seeds

A spec imports no torch and never enters `nn/`: builders unpack it into plain arguments. Each field says its
help text, its bounds and the flag under which the command line offers it (`fields.py`). The choices of a
field are its Literal type, written once and used wherever they are needed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar, get_args

from bermo.choices import (
    DEVICE_HELP,
    SEPARATOR_HELP,
    Device,
    Tracker,
    device_rules,
    separator_character,
    separator_rule,
    tracker_rule,
)
from bermo.distill_spec import DistillSpec
from bermo.fields import Rules, group, option
from bermo.method_spec import MethodSpec

T = TypeVar("T")
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
USUAL_MIX: MixKind = "across"
FIXED: tuple[MixKind, ...] = ("none", "second-to-last", "concat-last-four", "gate")
MixStart = Literal["xavier", "zeros", "last"]
TokenPooling = Literal["first", "last"]
Pooling = Literal[TokenPooling, "mean"]
POOLINGS: tuple[Pooling, ...] = get_args(Pooling)
Pieces = Literal["mean", "first"]
"""What a word's vector is: the mean of its pieces, or the first."""
KeepBy = Literal["first", "last", "alternate", "symmetric", "contribution"]
Pairs = Literal["joined", "apart"]
PAIRS: tuple[Pairs, ...] = get_args(Pairs)
HeadStart = Literal["probe", "random"]
Switch = Literal["on", "off"]
Precision = Literal["fp32", "bf16", "fp16"]
PruneMethod = Literal[
    "none",
    "magnitude",
    "movement",
    "soft-movement",
    "l0",
    "proximal",
    "heads-and-neurons",
    "layers",
]
UnitScores = Literal["movement", "soft-movement", "l0"]
LARGEST_SEED = 2**32 - 1
MOST_EVALUATIONS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class MixSpec:
    """How the layers h_0 … h_L become one sequence of vectors."""

    kind: MixKind | None = option(
        None,
        "how layers combine; none = the plain encoder",
        "mix",
        shown="across; none for pairs apart, vectors, and few rows of a narrow sentence encoder",
    )
    dropout: float = option(0.1, "dropout on the normalised layers", "mix-dropout", least=0, under=1)
    layer_dropout: float = option(0.0, "chance that a whole layer is left out of the mix", least=0, under=1)
    layers: tuple[int, ...] | None = option(None, "mix only these, 0 = embeddings, -1 = last")
    init: MixStart | None = option(
        None,
        "how the shares start: at random, equal, or nine tenths on the last layer",
        "mix-init",
        shown="last under 1,000 rows of classes, else xavier",
    )

    def rules(self) -> Rules:
        learned = self.layers or self.layer_dropout or self.init not in (None, "xavier")
        what = "Leave out --mix-init, --layers and --layer-dropout, or choose another --mix, such as across."
        return [(self.kind not in FIXED or not learned, f"The mix {self.kind} has no shares. {what}")]


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """Which encoder, how its layers mix, how a text becomes one vector."""

    backbone: str = option("box", "a name, a folder, or box (the encoder in the package)", "model")
    mix: MixSpec = MixSpec()
    pooling: Pooling | None = option(
        None, "how a text becomes one vector; default: as the encoder was trained, or what probes better"
    )
    pairs: Pairs | None = option(
        None,
        "the two texts of a pair are read as one text, or each by itself",
        shown="what probes better under 1,000 rows (classes: width under 768), else joined",
    )
    head: HeadStart | None = option(
        None, "the head starts as a linear probe of the frozen encoder, or at random", shown="probe"
    )
    head_dropout: float = option(
        0.1, "dropout before the last linear layer (spans have none)", least=0, under=1
    )
    freeze_embeddings: bool = option(False, "do not train the embeddings")
    first_layers: int | None = option(
        None, "use only so many of the encoder's layers, from the first on", least=1
    )
    keep_layers: int | None = option(
        None, "use only so many of the encoder's layers, chosen by --keep-by", least=1
    )
    keep_by: KeepBy | None = option(None, "which of the encoder's layers are kept", shown="first")
    untrained: bool = option(False, "start from random weights of the same shape, to compare with")


@dataclass(frozen=True, kw_only=True)
class DataSpec:
    """What is learned, and from which files."""

    task: str = option(
        "own",
        "a named task (bermo list), or own: your texts and labels; own/regression: labels are numbers on a"
        " scale; own/multi-label: a row has any number of labels; own/tagging: words with tags; own/span:"
        " questions on passages; own/embedding, own/reranker: pairs of texts",
    )
    folder: str | None = option(None, "the folder with the named task's files", "data")
    train: str | None = option(None, "your training file: .csv .tsv .txt .jsonl .json .parquet .xlsx, or .gz")
    valid: str | None = option(None, "your validation file; without it --train is divided")
    split: float | None = option(
        None,
        "share of --train that validates where there is no --valid",
        over=0,
        under=1,
        shown="0.1, at least 10 rows",
    )
    separator: str | None = option(None, SEPARATOR_HELP)
    hub: str | None = option(None, "a dataset on the hub (needs the datasets extra)")
    text: tuple[str, ...] | None = option(None, "column(s) of the text, if not known by their name")
    label: str | None = option(None, "column of the label, if not known by its name")
    label_separator: str | None = option(
        None, 'what stands between several labels of a row; default: lists and "|" are recognised'
    )
    metric: str | None = option(
        None,
        "the score by which the best model is chosen: of classes accuracy, macro-f1, matthews or f1; of"
        " several labels micro-f1, macro-f1 or subset-accuracy; of numbers mean, pearson or spearman; of tags"
        " f1, precision, recall or accuracy; of answers f1 or exact-match; or a function of your own,"
        " FILE.py:FUNCTION",
        shown="the task's own",
    )
    max_length: int = option(128, "longest input in tokens; longer ones are cut and counted", least=8)
    stride: int = option(128, "overlap in tokens of the pieces of a long passage", least=0)
    limit: int | None = option(None, "use only the first so many training rows", least=1)
    max_unknown: float = option(0.05, "largest share of unknown tokens that is accepted", least=0, most=1)
    lowercase: Literal["off"] | None = option(
        None, "off keeps capitals that an uncased vocabulary lacks, as the paper probably did"
    )
    cache: str | None = option(None, "folder of the token cache; default: the user's cache folder")

    @property
    def separator_character(self) -> str | None:
        """The separator as a character; None where it is to be recognised."""
        return separator_character(self.separator)

    def rules(self) -> Rules:
        return [
            separator_rule(self.separator),
            (
                self.label_separator is None or self.task in ("own", "own/multi-label"),
                f"--label-separator is for several labels a row, but the task is {self.task}. Leave one out.",
            ),
            (
                self.folder is None or not self.task.startswith("own"),
                "--data is the folder of a named task. Name it with --task (bermo list), or leave it out.",
            ),
            (self.label_separator != "", "label-separator is empty. Give a character, such as |."),
            (
                self.split is None or self.valid is None,
                "--split divides the training file, but --valid names a validation file. Leave one out.",
            ),
        ]


@dataclass(frozen=True, kw_only=True)
class TrainSpec:
    """How the weights move, how often they are evaluated, and when training stops.

    What is None is chosen from the encoder and the data before training (methods/defaults.py).
    """

    epochs: float | None = option(
        None, "passes over the training data", shown="3, or more for few rows", over=0
    )
    batch_size: int | None = option(
        None,
        "rows a step, over all processes and accumulation together",
        shown="32, or 16 for few rows",
        least=1,
    )
    accumulation: int = option(1, "split each batch into so many forward passes", least=1, most=10_000)
    lr: float | None = option(
        None, "learning rate of the encoder and the head", shown="by the encoder's width", least=0
    )
    contrast: float | None = option(
        None,
        "weight of the loss by which texts of one class learn to be alike",
        shown="1 under 1,000 rows of classes, else 0; 0 for pairs apart",
        least=0,
    )
    average: Switch | None = option(
        None,
        "score and keep a mean of the weights over the steps, later ones counting more",
        shown="on under 1,000 rows of classes where the width is under 768, else off",
    )
    class_weights: str | None = option(
        None,
        "how much each class counts in the loss: balanced (rare ones more), or bad=1,good=3",
        shown="all alike",
    )
    tune_thresholds: bool = option(
        False,
        "give each label, or the second of two classes, from where the score on the validation rows is best",
    )
    mix_lr: float = option(1e-2, "learning rate of the mix", least=0)
    weight_decay: float = option(0.0, "decay of all weights but biases, norms and the mix", least=0)
    warmup: float = option(0.1, "share of the steps in which the rates rise from zero", least=0, most=1)
    clip: float = option(1.0, "largest gradient norm over all weights together; 0 = no clipping", least=0)
    precision: Precision = option("fp32", "arithmetic of the forward pass")
    device: Device = option("auto", DEVICE_HELP)
    group_lengths: bool = option(True, "put texts of like length into one batch")
    evaluations: int | None = option(
        None, "evaluations on the validation set per epoch", shown="1, at most 12 in all", least=1
    )
    patience: int | None = option(None, "stop after so many evaluations without a better score", least=1)
    give_up: int | None = option(
        None, "stop after so many evaluations in a row in which every answer is the same", least=1
    )
    checkpoint_minutes: float = option(5.0, "save the state of the run every so many minutes", least=0)
    fast: Literal["auto", "exact", "off"] = option(
        "auto",
        "on a GPU whole steps as CUDA graphs, by fused kernels; exact = the plain step's bits; off",
    )
    together: int = option(1, "seeds that are trained at once, stacked in one model (for a GPU)", least=1)
    keep: Literal["best", "none"] = option("best", "save the model of the best evaluation, or only scores")
    tracker: Tracker = option("none", "also log to this tracker")

    def rules(self) -> Rules:
        return [*device_rules(self.device), tracker_rule(self.tracker)]


@dataclass(frozen=True, kw_only=True)
class PruneSpec:
    """Which weights go, how many, and when."""

    method: PruneMethod = option("none", "how weights are chosen for pruning", "prune")
    by: UnitScores = option("movement", "how whole heads, neurons and layers are chosen", "prune-by")
    density: float | None = option(None, "share of the weights that is kept in the end")
    penalty: float | None = option(
        None, "λ of soft-movement and l0, γ of proximal; without it, density is aimed at"
    )
    threshold: float = option(0.1, "soft-movement: σ(score) over which a weight is kept in the end")
    scope: Literal["matrix", "global"] | None = option(
        None, "choose in each matrix, or over all", "scope", shown="global by sensitivity, else matrix"
    )
    block: tuple[int, int] = option((1, 1), "rows,columns pruned together; 0 = all of them", "block")
    start: Literal["zeros", "magnitude"] = option("zeros", "what movement scores start from", "scores")
    rank: Literal["sensitivity", "size", "score"] | None = option(
        None,
        "movement keeps the weights that the loss feels most, the largest |weight| · σ(score), or the highest"
        " scores (paper)",
        "rank",
        shown="sensitivity, of units size",
    )
    warmup_steps: int | None = option(
        None, "pruning waits so long; default: 10 % of the steps", "prune-warmup", least=0
    )
    initial_warmup: int = option(1, "pruning starts after so many times prune-warmup", least=0)
    final_warmup: int = option(1, "pruning ends so many times prune-warmup before the end", least=0)
    rewind: int | None = option(None, "magnitude: so many rounds, weights set back after each (IMP)", least=1)
    lr: float = option(1e-2, "learning rate of the scores", "score-lr", least=0)


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One trained model per seed.

    >>> spec = bermo.RunSpec(
    ...     model=bermo.ModelSpec(backbone="box", mix=bermo.MixSpec(kind="none")),
    ...     data=bermo.DataSpec(train="my.csv"), train=bermo.TrainSpec(epochs=3),
    ...     prune=bermo.PruneSpec(method="movement", density=0.1),
    ...     distill=bermo.DistillSpec(teacher="runs/dense"),
    ...     method=bermo.MethodSpec(quantize="int8"),
    ... )
    """

    model: ModelSpec = group(ModelSpec(), "the model")
    data: DataSpec = group(DataSpec(), "the data")
    train: TrainSpec = group(TrainSpec(), "training")
    prune: PruneSpec = group(PruneSpec(), "pruning")
    distill: DistillSpec = group(DistillSpec(), "a teacher")
    method: MethodSpec = group(MethodSpec(), "other methods")
    seeds: tuple[int, ...] = option(
        (1,), "how many seeds (5), or which (9,25,39)", title="seeds", least=0, most=LARGEST_SEED
    )

    @property
    def has_teachers_layers(self) -> bool:
        """Whether the model is made of its teacher's layers, with the teacher's tokenizer and head."""
        return self.distill.student_layers is not None or self.method.theseus is not None

    def rules(self) -> Rules:
        is_distinct = len(set(self.seeds)) == len(self.seeds) > 0
        evaluations = (self.train.epochs or 1) * (self.train.evaluations or 1)
        return [
            (is_distinct, f"seeds must be different numbers, but got {self.seeds}."),
            (
                evaluations <= MOST_EVALUATIONS,
                f"epochs times evaluations must be at most {MOST_EVALUATIONS:,}, but got {evaluations:g}.",
            ),
        ]


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Runs to be read side by side: a name for each arm, and its spec."""

    arms: Mapping[str, RunSpec]


def replace_in(spec: RunSpec, **groups: Mapping[str, Any]) -> RunSpec:
    """Return `spec` with fields of its groups replaced: replace_in(spec, train={"epochs": 1})."""
    changed = {name: replace(getattr(spec, name), **values) for name, values in groups.items()}
    return replace(spec, **changed)


def chosen(value: T | None) -> T:
    """Return a value that was None in the user's spec and has been chosen since (methods/defaults.py)."""
    assert value is not None, "a default of the spec was not chosen before it was used"
    return value
