"""The named tasks: their columns, labels, official metrics, and the names of their files.

GLUE (Wang et al. 2019), the probing tasks in the files of SentEval and X-Probe (`data/probing.py`), SQuAD 1.1
and 2.0 (Rajpurkar et al. 2016, 2018), CoNLL-2003 (Tjong Kim Sang and De Meulder 2003), SWAG (Zellers et al.
2018), and the generated sentences of `data/sentences.py`. The main metric is the one the best checkpoint is
chosen by. Where GLUE names two metrics, it is their mean, as in GLUE's own score; the two are reported beside
it.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal, get_args

from bermo.data import sentences
from bermo.data.own_metric import OwnMetric, check_answers, check_kind
from bermo.data.rows import Rows, digest
from bermo.errors import BermoError, nearest

Kind = Literal[
    "classification", "multi-label", "regression", "tagging", "span", "choice", "embedding", "reranker"
]
Metric = Literal[
    "accuracy",
    "f1",
    "micro_f1",
    "macro_f1",
    "subset_accuracy",
    "matthews",
    "mean",
    "pearson",
    "precision",
    "recall",
    "exact_match",
    "spearman",
    "ndcg_10",
]


@dataclass(frozen=True, kw_only=True)
class TaskFile:
    """One form that the file of a split may have: its name (* for any letters) and its columns."""

    name: str
    text: tuple[str, ...] = ()
    label: str = "label"
    header: tuple[str, ...] | None = None
    skips_ragged: bool = False
    drops_extra: bool = False
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is learned and how it is scored; `whole` are files that hold one split for all."""

    name: str
    kind: Kind
    metric: Metric
    labels: tuple[str, ...] | None = None
    train: tuple[TaskFile, ...] = ()
    valid: tuple[TaskFile, ...] = ()
    whole: tuple[TaskFile, ...] = ()
    folders: tuple[str, ...] = ()
    has_no_answer: bool = False
    own_metric: OwnMetric | None = None
    """A function of the user's own that the best model is chosen by, in place of `metric`."""


@dataclass(frozen=True, kw_only=True)
class TaskData:
    """Checked rows of a task; `text` and `label` are their columns, `doubts` what may be wrong with them."""

    task: Task
    train: Rows
    valid: Rows
    labels: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    label: str | None = None
    label_separator: str | None = None
    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """Return the sha256 of all rows."""
        return hashlib.sha256((digest(self.train) + digest(self.valid)).encode()).hexdigest()


_COLA = ("source", "label", "mark", "sentence")
_STS = ("genre", "file", "year", "id", "score", "sentence1", "sentence2")
_QUESTIONS = ("question1", "question2")
_SENTENCES = ("sentence1", "sentence2")
_STRINGS = ("#1 String", "#2 String")
_MSR_TEST = "valid is MSR's test file (1,725 rows), not GLUE's dev set (408 rows of the train file)"
_ENDINGS = ("sent1", "sent2", "ending0", "ending1", "ending2", "ending3")


def _pair(name: str, *columns: tuple[str, str], label: str = "label") -> tuple[TaskFile, ...]:
    """Return one form for each pair of column names that a file called `name` may have."""
    return tuple(TaskFile(name=name, text=pair, label=label) for pair in columns)


def _mnli(name: str, valid: str) -> Task:
    columns = (_SENTENCES, ("premise", "hypothesis"))
    return Task(
        name=name,
        kind="classification",
        metric="accuracy",
        folders=("MNLI", "mnli"),
        labels=("entailment", "neutral", "contradiction"),
        train=_pair("train.tsv", *columns, label="gold_label"),
        valid=_pair(valid, *columns, label="gold_label"),
    )


def _entailment(name: str, columns: tuple[str, str]) -> Task:
    return Task(
        name=name,
        kind="classification",
        metric="accuracy",
        folders=(name.upper(), name),
        labels=("entailment", "not_entailment"),
        train=_pair("train.tsv", columns),
        valid=_pair("dev.tsv", columns),
    )


def _squad(name: str, version: str, has_no_answer: bool) -> Task:
    return Task(
        name=name,
        kind="span",
        metric="f1",
        folders=("squad", "SQuAD"),
        has_no_answer=has_no_answer,
        train=(TaskFile(name=f"train-v{version}*.json"),),
        valid=(TaskFile(name=f"dev-v{version}*.json"),),
    )


_FROM_FILES = (
    Task(
        name="cola",
        kind="classification",
        metric="matthews",
        labels=("0", "1"),
        folders=("CoLA", "cola"),
        train=(TaskFile(name="train.tsv", text=("sentence",), header=_COLA),),
        valid=(TaskFile(name="dev.tsv", text=("sentence",), header=_COLA),),
    ),
    Task(
        name="sst2",
        kind="classification",
        metric="accuracy",
        labels=("0", "1"),
        folders=("SST-2", "sst2"),
        train=(TaskFile(name="train.tsv", text=("sentence",)),),
        valid=(TaskFile(name="dev.tsv", text=("sentence",)),),
    ),
    Task(
        name="mrpc",
        kind="classification",
        metric="mean",
        labels=("0", "1"),
        folders=("MRPC", "mrpc"),
        train=(
            TaskFile(name="train.tsv", text=_STRINGS, label="Quality"),
            TaskFile(name="msr_paraphrase_train.txt", text=_STRINGS, label="Quality"),
        ),
        valid=(
            TaskFile(name="dev.tsv", text=_STRINGS, label="Quality"),
            TaskFile(name="msr_paraphrase_test.txt", text=_STRINGS, label="Quality", note=_MSR_TEST),
        ),
    ),
    Task(
        # GLUE's own QQP files hold about twenty lines without their last columns.
        name="qqp",
        kind="classification",
        metric="mean",
        labels=("0", "1"),
        folders=("QQP", "qqp"),
        train=(TaskFile(name="train.tsv", text=_QUESTIONS, label="is_duplicate", skips_ragged=True),),
        valid=(TaskFile(name="dev.tsv", text=_QUESTIONS, label="is_duplicate", skips_ragged=True),),
        whole=(TaskFile(name="qqp*.tsv", text=_QUESTIONS, label="is_duplicate", skips_ragged=True),),
    ),
    Task(
        name="stsb",
        kind="regression",
        metric="mean",
        folders=("STS-B", "stsb"),
        train=(
            TaskFile(name="sts-train.tsv", text=_SENTENCES, label="score", header=_STS, drops_extra=True),
            TaskFile(name="train.tsv", text=_SENTENCES, label="score"),
        ),
        valid=(
            TaskFile(name="sts-dev.tsv", text=_SENTENCES, label="score", header=_STS, drops_extra=True),
            TaskFile(name="dev.tsv", text=_SENTENCES, label="score"),
        ),
    ),
    _mnli("mnli", "dev_matched.tsv"),
    _mnli("mnli-mismatched", "dev_mismatched.tsv"),
    _entailment("qnli", ("question", "sentence")),
    _entailment("rte", _SENTENCES),
    Task(
        name="wnli",
        kind="classification",
        metric="accuracy",
        labels=("0", "1"),
        folders=("WNLI", "wnli"),
        train=_pair("train.tsv", _SENTENCES),
        valid=_pair("dev.tsv", _SENTENCES),
    ),
    _squad("squad", "1.1", has_no_answer=False),
    _squad("squad2", "2.0", has_no_answer=True),
    Task(
        name="conll2003",
        kind="tagging",
        metric="f1",
        folders=("conll2003",),
        train=(TaskFile(name="train.txt"), TaskFile(name="eng.train")),
        valid=(TaskFile(name="valid.txt"), TaskFile(name="dev.txt"), TaskFile(name="eng.testa")),
    ),
    Task(
        name="swag",
        kind="choice",
        metric="accuracy",
        labels=("0", "1", "2", "3"),
        folders=("swag", "SWAG"),
        train=(TaskFile(name="train.csv", text=_ENDINGS),),
        valid=(TaskFile(name="val.csv", text=_ENDINGS), TaskFile(name="valid.csv", text=_ENDINGS)),
    ),
)

_GENERATED = tuple(
    Task(name=f"box/{name}", kind="classification", metric="accuracy", labels=made.labels)
    for name, made in sentences.TASKS.items()
)

_PROBES = tuple(
    Task(name=f"probe/{name}", kind="classification", metric="accuracy") for name in sentences.TASKS
)

_GENERATED_OTHERS = (
    Task(name="box/arguments", kind="tagging", metric="f1"),
    Task(name="box/answer", kind="span", metric="f1"),
    Task(name="box/ending", kind="choice", metric="accuracy", labels=("0", "1")),
)

TASKS: Mapping[str, Task] = MappingProxyType(
    {t.name: t for t in (*_FROM_FILES, *_PROBES, *_GENERATED, *_GENERATED_OTHERS)}
)
"""Every named task but "own" (the user's files), whose kind is read from the files."""

OWN = (
    "own",
    "own/classification",
    "own/multi-label",
    "own/regression",
    "own/tagging",
    "own/span",
    "own/embedding",
    "own/reranker",
)
"""Names of the task in the user's own files; all but the first fix its kind."""
OWN_METRICS: Mapping[Kind, Metric] = {
    "multi-label": "micro_f1",
    "regression": "mean",
    "tagging": "f1",
    "span": "f1",
    "embedding": "spearman",
    "reranker": "ndcg_10",
}
"""How own data is scored where it is not by accuracy."""
METRICS: Mapping[Kind, tuple[Metric, ...]] = {
    "classification": ("accuracy", "macro_f1", "matthews", "f1"),
    "multi-label": ("micro_f1", "macro_f1", "subset_accuracy"),
    "regression": ("mean", "pearson", "spearman"),
    "tagging": ("f1", "precision", "recall", "accuracy"),
    "span": ("f1", "exact_match"),
}
"""What the best model of a kind can be chosen by; f1 of classes is that of the second of two."""

PIPELINES: Mapping[Kind, str] = {
    "classification": "text-classification",
    "multi-label": "text-classification",
    "regression": "text-classification",
    "reranker": "text-ranking",
    "tagging": "token-classification",
    "span": "question-answering",
    "choice": "multiple-choice",
    "embedding": "sentence-similarity",
}
"""What the hub calls each kind of task."""


def with_metric(task: Task, name: str | None, num_labels: int) -> Task:
    """Return the task with the metric that the user named; one that the task cannot have is an error."""
    plain = task.metric if name is None else name.lower().replace("-", "_")
    if plain == task.metric:
        return task
    has_f1 = task.kind != "classification" or num_labels == 2
    known = [metric for metric in METRICS.get(task.kind, ()) if metric != "f1" or has_f1]
    if not known:
        raise BermoError(f"The metric of {task.kind} is not chosen. Leave --metric out.")
    for metric in known:
        if metric == plain:
            return replace(task, metric=metric)
    more = "; f1 is of two classes" if plain == "f1" else ""
    raise BermoError(f'The metric "{name}" is none of {task.kind}: {", ".join(known)}{more}.')


def built_in(name: str | None) -> str | None:
    """Return the name of a metric of bermo's own, and None for anything else, such as a function's."""
    plain = None if name is None else name.lower().replace("-", "_")
    return name if plain in get_args(Metric) else None


def with_unit(metric: str) -> str:
    """Return a metric as an axis names it: those of bermo are in percent, a function's number is as it is."""
    return f"{metric} (%)" if built_in(metric) else metric


def with_function(task: Task, metric: OwnMetric) -> Task:
    """Return the task with a function of the user's own that scores it."""
    check_kind(metric, task.kind)
    if built_in(metric.name) or metric.name == "weighted_f1":
        raise BermoError(
            f"The metric {metric.shown} has the name of one of bermo's own. Give the function another name."
        )
    return replace(task, own_metric=metric)


def scored_by(data: TaskData, metric: OwnMetric) -> TaskData:
    """Return data whose models a function of the user's own scores; the validation rows try it first."""
    task = with_function(data.task, metric)
    check_answers(metric, task.kind, data.valid, data.labels)
    return replace(data, task=task)


def find_task(name: str) -> Task:
    """Return the task called `name`; an unknown name is an error with the nearest known one."""
    if name not in TASKS:
        raise BermoError(f'There is no task "{name}".{nearest(name, (*TASKS, *OWN))}')
    return TASKS[name]


def own_task(kind: Kind) -> Task:
    """Return the task of a user's own files, scored by its kind's usual metric."""
    return Task(name="own", kind=kind, metric=OWN_METRICS.get(kind, "accuracy"))
