"""The teacher: loaded, checked against the student's task, and its answers kept on disk.

A teacher's answers to the training set do not change, so they are computed once for all epochs, seeds and
runs. The cache is named by the teacher's weights, the tokens it reads and the precision it runs in.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from accelerate import Accelerator
from transformers import PreTrainedTokenizerBase

from bermo.data.cache import Writer, open_cache, read_cache
from bermo.data.features import Features, fingerprint
from bermo.data.tasks import Task
from bermo.encoders.backbone import load_tokenizer
from bermo.encoders.families import has_segments
from bermo.encoders.sites import encoder_of
from bermo.errors import BermoError
from bermo.files import cache_root
from bermo.methods.evaluate import predict
from bermo.models.tasks import BermoPreTrainedModel
from bermo.progress import Display
from bermo.runs.task_file import TrainedTask
from bermo.runs.trained import open_trained
from bermo.training.job import Batch, Batches

FORMAT = 1
LOGITS = "teacher_logits"
"""The key of a batch under which the teacher's cached answers travel."""

Logits = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Teacher:
    """A trained model that is only asked, and what its folder says of its training."""

    folder: Path
    model: BermoPreTrainedModel
    trained: TrainedTask

    @property
    def has_segments(self) -> bool:
        """Tell whether it reads segment ids; then the student's features must hold them."""
        return has_segments(encoder_of(self.model).config)


def load_teacher(folder: str | Path) -> Teacher:
    """Load the model of a run or model folder; it is in eval mode and takes no gradients."""
    opened = open_trained(folder)
    return Teacher(opened.folder, opened.load_bermo_model().requires_grad_(False), opened.trained)


def check_teacher(
    teacher: Teacher, task: Task, labels: tuple[str, ...], tokenizer: PreTrainedTokenizerBase
) -> None:
    """Refuse a teacher whose answers would mean something else than the student's."""
    known = teacher.trained
    if known.task.kind != task.kind:
        raise BermoError(
            f"The teacher {teacher.folder} was trained for {known.task.kind}, but {task.name} is"
            f" {task.kind}. Give a teacher of the same kind of task."
        )
    if task.kind in ("classification", "multi-label", "tagging") and known.labels != labels:
        raise BermoError(
            f"The teacher {teacher.folder} answers {_some(known.labels)}, but {task.name} has the labels"
            f" {_some(labels)}. They must be the same in the same order: train the teacher on this task."
        )
    if fingerprint(load_tokenizer(teacher.folder)) != fingerprint(tokenizer):
        raise BermoError(
            f"The teacher {teacher.folder} has another tokenizer than the student, so they would not read"
            " the same tokens. Choose a teacher and a student that share one."
        )


def check_segments(teacher: Teacher, features: Features) -> None:
    """Refuse features without the segment ids that the teacher tells the texts of a pair apart by."""
    if teacher.has_segments and features.segments is None:
        raise BermoError(
            f"The teacher {teacher.folder} reads segment ids, but the training set was tokenised without."
            " Tokenise it with them: a student without segments leaves them out by itself."
        )


def teacher_logits(
    teacher: Teacher,
    features: Features,
    batch_size: int,
    accelerator: Accelerator,
    display: Display,
    cache: str | None = None,
) -> Logits:
    """Return the teacher's answers, memory-mapped, computing them first where the cache has none.

    (N, C) for texts and choices; for tags (tokens, C) and for spans (tokens, 2), end to end like the tokens.
    With several processes all must call this together, for they share the work.
    """
    check_segments(teacher, features)
    folder = cache_root(cache) / "teachers" / _key(teacher, features, accelerator)
    if not _all_have(folder, accelerator):
        predictions = _ask(teacher, features, batch_size, accelerator, display)
        flat = [p.T if features.task.kind == "span" else np.atleast_1d(p) for p in predictions]
        is_long = features.task.kind in ("tagging", "span")
        answers = np.concatenate(flat) if is_long else np.stack(flat)

        def build(writer: Writer) -> dict[str, str]:
            writer.append({"logits": answers.astype(np.float32)})
            return {"teacher": teacher.folder.name}

        return cast(Logits, open_cache(folder, build).arrays["logits"])
    cached = read_cache(folder)
    assert cached is not None
    return cast(Logits, cached.arrays["logits"])


@dataclass(frozen=True)
class TaughtBatches:
    """Batches that bring the teacher's answers along, padded where the tokens are."""

    batches: Batches
    features: Features
    logits: Logits

    def epoch(self, epoch: int) -> list[np.ndarray]:
        return list(self.batches.epoch(epoch))

    def collate(self, rows: np.ndarray) -> Batch:
        batch = self.batches.collate(rows)
        if self.features.task.kind not in ("tagging", "span"):
            return batch | {LOGITS: torch.from_numpy(self.logits[rows])}
        starts = self.features.starts
        flat = np.concatenate([self.logits[starts[row] : starts[row + 1]] for row in rows])
        is_token = batch["attention_mask"].bool()
        padded = torch.zeros(*is_token.shape, flat.shape[-1])
        # The mask lists the tokens row by row, on whichever side the padding is.
        padded[is_token] = torch.from_numpy(flat)
        return batch | {LOGITS: padded}


def _ask(
    teacher: Teacher,
    features: Features,
    batch_size: int,
    accelerator: Accelerator,
    display: Display,
) -> list[np.ndarray]:
    done = 0

    def advance(num_rows: int) -> None:
        nonlocal done
        done += num_rows * accelerator.num_processes
        display.step(min(done, len(features)), None)

    display.start("asking the teacher", len(features), 0)
    try:
        model = teacher.model.to(accelerator.device)
        return predict(model, features, batch_size, accelerator, advance)
    finally:
        teacher.model.to("cpu")  # type: ignore[arg-type]
        display.close()


def _all_have(folder: Path, accelerator: Accelerator) -> bool:
    """Tell whether every process sees the cache: one that works alone would wait for the others for ever."""
    have = read_cache(folder) is not None
    if accelerator.num_processes == 1:
        return have
    number = torch.tensor([int(have)], device=accelerator.device)
    return int(accelerator.reduce(number, "sum").item()) == accelerator.num_processes


def _key(teacher: Teacher, features: Features, accelerator: Accelerator) -> str:
    parts = [
        FORMAT,
        features.task.kind,
        features.num_choices,
        features.pads_left,
        features.pad_id,
        str(accelerator.mixed_precision),
    ]
    total = hashlib.sha256(json.dumps(parts).encode())
    for file in sorted([*teacher.folder.glob("*.safetensors"), teacher.folder / "config.json"]):
        with file.open("rb") as handle:
            total.update(hashlib.file_digest(handle, "sha256").digest())
    for array in (features.ids, features.starts, features.segments):
        content = b"" if array is None else np.ascontiguousarray(array).data
        total.update(hashlib.sha256(content).digest())
    return total.hexdigest()[:32]


def _some(labels: tuple[str, ...]) -> str:
    return ", ".join(labels[:6]) + (" …" if len(labels) > 6 else "")
