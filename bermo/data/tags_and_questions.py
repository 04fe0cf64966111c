"""The user's own files of tagged words and of questions: training and validation rows, one file divided."""

from dataclasses import replace
from pathlib import Path

from bermo.data.divide import divide
from bermo.data.questions import read_questions
from bermo.data.rows import SpanRows, TaggedRows, TextRows, label_names, pick
from bermo.data.tagged import has_entities, read_tagged
from bermo.data.tasks import Task, TaskData
from bermo.errors import BermoError
from bermo.spec import DataSpec

WORD_TASKS = ("own/tagging", "own/span")


def read_tags_or_questions(spec: DataSpec, task: Task) -> TaskData:
    """Read the files of a tagger, or of questions."""
    if spec.train is None:
        raise BermoError(f"No train file was given. Pass --train with the rows of {task.kind}.")
    path = Path(spec.train).expanduser()
    train, notes = _read(path, spec, task, is_train=True), list[str]()
    if spec.valid is not None:
        valid = _read(Path(spec.valid).expanduser(), spec, task, is_train=False)
    else:
        parts = divide(TextRows(_texts(train)), spec.split, path)
        train, valid = pick(train, parts.train), pick(train, parts.valid)  # type: ignore[assignment]
        notes.append(parts.told(path.name))
    return TaskData(task=_with_facts(task, train, valid), train=train, valid=valid, notes=tuple(notes))


def _read(path: Path, spec: DataSpec, task: Task, is_train: bool) -> TaggedRows | SpanRows:
    if task.kind == "tagging":
        return read_tagged(path)
    return read_questions(path, is_train, spec.separator_character)


def _texts(rows: TaggedRows | SpanRows) -> list[str]:
    """Return what tells rows apart: a passage stays on one side with all its questions."""
    return [" ".join(words) for words in rows.words] if isinstance(rows, TaggedRows) else list(rows.contexts)


def _with_facts(task: Task, *parts: TaggedRows | SpanRows) -> Task:
    """Return the task with what its rows say: tags of words are scored word by word; some questions have no
    answer.
    """
    if task.kind == "span":
        lacking = any(
            not answers for rows in parts if isinstance(rows, SpanRows) for answers in rows.answers or ()
        )
        return replace(task, has_no_answer=lacking)
    tags = {tag for rows in parts for tag in label_names(rows)}
    return task if has_entities(tags) else replace(task, metric="accuracy")
