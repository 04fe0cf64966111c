"""A trained model and labelled rows: its score and its loss, also while heads or layers are changed."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from accelerate import Accelerator
from torch import Tensor

from bermo.analyse.certainty import Judged
from bermo.data.batches import in_order
from bermo.data.features import Features, make_features
from bermo.data.load import load_task
from bermo.data.rows import ApartRows, ChoiceRows, Rows, SpanRows, TaggedRows, TextRows, pick
from bermo.data.scoring import score
from bermo.data.tasks import TASKS
from bermo.data.tensors import collate
from bermo.errors import BermoError
from bermo.methods.evaluate import predict
from bermo.models.tasks import BermoPreTrainedModel
from bermo.runs.task_file import TrainedTask
from bermo.runs.trained import open_trained
from bermo.spec import DataSpec

BATCH_SIZE = 32


@dataclass(frozen=True, eq=False)
class Labelled:
    """A trained model, the tokens of rows with answers, and where it runs."""

    model: BermoPreTrainedModel
    features: Features
    accelerator: Accelerator

    @property
    def metric(self) -> str:
        """The name of the score."""
        return self.features.task.metric

    def score(self, model: BermoPreTrainedModel | None = None) -> float:
        """Return the task's own score in percent, of this model or of another that stands in for it."""
        return self.judge(model).score

    def judge(self, model: BermoPreTrainedModel | None = None) -> Judged:
        """Return the score, and which rows were right where a row is right or wrong."""
        chosen = self.model if model is None else model
        predictions = predict(chosen, self.features, BATCH_SIZE, self.accelerator)
        scores = score(self.features, predictions)
        if self.features.task.kind not in ("classification", "choice"):
            return Judged(score=scores.score, right=None)
        right = np.argmax(np.stack(predictions), axis=1) == np.asarray(self.features.targets)
        return Judged(
            score=scores.score, right=tuple(right.tolist()), is_one_answer=len(scores.predicted) == 1
        )

    def batches(self, batch_size: int = BATCH_SIZE) -> Iterator[dict[str, Tensor]]:
        """Yield the rows with their answers, on the model's device."""
        for rows in in_order(self.features, batch_size):
            batch = collate(self.features, rows)
            yield {name: value.to(self.accelerator.device) for name, value in batch.items()}


def read_labelled(data: str, trained: TrainedTask) -> Rows:
    """Read the rows of a file, of a named task's folder, or of a generated task, for the task of a model."""
    name = trained.task.name if trained.task.name in TASKS else f"own/{trained.task.kind}"
    if data.startswith("box/"):
        return load_task(DataSpec(task=data)).valid
    path = Path(data).expanduser()
    if path.is_dir():
        return load_task(DataSpec(task=name, folder=str(path))).valid
    columns = trained.text if name.startswith("own/") and trained.text else None
    separator = trained.label_separator if name == "own/multi-label" else None
    spec = DataSpec(task=name, train=str(path), valid=str(path), text=columns, label_separator=separator)
    return load_task(spec).valid


def texts_of(rows: Rows) -> list[str]:
    """Return the texts of any rows; a pair is joined."""
    match rows:
        case TextRows():
            pairs = zip(rows.first, rows.second or [""] * len(rows.first), strict=True)
            return [f"{a} {b}".strip() for a, b in pairs]
        case TaggedRows():
            return [" ".join(words) for words in rows.words]
        case SpanRows():
            return [f"{q} {c}" for q, c in zip(rows.questions, rows.contexts, strict=True)]
        case ChoiceRows():
            return [f"{a} {b[0]}" for a, b in zip(rows.first, rows.endings, strict=True)]
        case ApartRows():
            return [" ".join(texts) for texts in rows.texts]


def load_labelled(run: str | Path, data: str, limit: int, cpu: bool) -> Labelled:
    """Load the model of a run and at most `limit` rows of `data`, evenly chosen."""
    opened = open_trained(run)
    trained = opened.trained
    rows = read_labelled(data, trained)
    step = max(1, len(rows) // limit)
    rows = pick(rows, range(0, len(rows), step)[:limit])
    unknown = set(map(str, getattr(rows, "labels", None) or ())) - set(trained.labels)
    if trained.task.kind == "classification" and unknown:
        raise BermoError(
            f'{data} has the label "{sorted(unknown)[0]}", but {run} answers'
            f" {', '.join(trained.labels)}. Give rows of the task it was trained for."
        )
    spec = DataSpec(max_length=trained.max_length, stride=trained.stride)
    features = make_features(
        rows,
        trained.task,
        trained.labels,
        opened.load_tokenizer(),
        replace(spec, max_unknown=1.0),
        opened.has_segments,
        is_apart=opened.is_apart,
    )
    accelerator = Accelerator(cpu=cpu)
    model = opened.load_bermo_model().requires_grad_(False)
    return Labelled(model.to(accelerator.device), features, accelerator)
