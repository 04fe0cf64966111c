"""The ten probing tasks: which there are, and their rows from SentEval's files, X-Probe's, or the grammar.

    SentEval   FOLDER/past_present.txt     tr|va|te <TAB> label <TAB> sentence
    X-Probe    FOLDER/past_present/*.txt   sentence <TAB> label, in files that are no splits
    neither    generated, with trees in hand

X-Probe's files repeat sentences, some with two labels, and two of them are the same file: a sentence counts
once, whatever its capitals and spaces, one with two labels not at all, and the rest is cut by a seed into 80,
10 and 10 %. What was left out is in `notes`. Where many sentences have two labels, those with one cannot be
trusted either: `doubt` gives the reason, and no mean over tasks counts the task.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import get_args

from bermo.data import sentences
from bermo.data.packed import check_file
from bermo.data.rows import TextRows
from bermo.data.sentences.tasks import Group
from bermo.data.tasks import TaskData, find_task
from bermo.data.text import read_text
from bermo.errors import BermoError, nearest
from bermo.spec import DataSpec

GROUPS: tuple[Group, ...] = get_args(Group)
FILES: Mapping[str, str] = {
    "sentence-length": "sentence_length",
    "word-content": "word_content",
    "tree-depth": "tree_depth",
    "top-constituents": "top_constituents",
    "bigram-shift": "bigram_shift",
    "tense": "past_present",
    "subject-number": "subj_number",
    "object-number": "obj_number",
    "odd-man-out": "odd_man_out",
    "coordination-inversion": "coordination_inversion",
}
"""What SentEval and X-Probe call the files of each task."""
SPLITS = ("tr", "va", "te")
DOUBTFUL = 0.05
"""Share of the sentences with two labels over which a task's labels are not believed."""
GENERATED = 12_000
"""Training sentences that the grammar makes without a limit; a tenth of them each for valid and test."""


@dataclass(frozen=True, kw_only=True)
class ProbeData:
    """Rows of a probing task in three splits that share no sentence."""

    task: str
    group: Group
    labels: tuple[str, ...]
    train: TextRows
    valid: TextRows
    test: TextRows
    notes: tuple[str, ...] = ()
    doubt: str = ""
    """Why the labels are not to be believed, if they are not."""

    @property
    def largest_class(self) -> float:
        """What always giving the test rows' most frequent label would score, in percent."""
        counts = Counter(self.test.labels or ())
        return 100 * max(counts.values()) / counts.total()


def choose_tasks(text: str) -> list[str]:
    """Read "all", a group, or names with commas between them, as tasks in their fixed order."""
    wanted: set[str] = set()
    for name in (part.strip() for part in text.split(",")):
        group = {task for task, made in sentences.TASKS.items() if name in ("all", made.group)}
        if not group and name not in sentences.TASKS:
            known = ("all", *GROUPS, *sentences.TASKS)
            raise BermoError(f'There is no probing task "{name}".{nearest(name, known)}')
        wanted |= group or {name}
    return [task for task in sentences.TASKS if task in wanted]


def has_files(task: str, folder: Path) -> bool:
    """Tell whether a folder holds the task in one of the two forms."""
    return (folder / f"{FILES[task]}.txt").is_file() or (folder / FILES[task]).is_dir()


def read_probe(task: str, folder: Path | None = None, limit: int | None = None, seed: int = 0) -> ProbeData:
    """Return the rows of a task, from its files or from the grammar, at most `limit` of them for training."""
    if folder is None:
        return _generated(task, limit or GENERATED, seed)
    if not folder.is_dir():
        raise BermoError(f"There is no folder {folder}. Give the one with SentEval's or X-Probe's files.")
    notes: tuple[str, ...] = ()
    doubt = ""
    if (folder / FILES[task]).is_dir():
        rows, notes, doubt = _xprobe(folder / FILES[task])
        parts = _cut(rows, seed)
    else:
        parts = _senteval(check_file(folder / f"{FILES[task]}.txt"))
    if limit is not None:
        parts = [part[: limit if k == 0 else max(1, limit // 4)] for k, part in enumerate(parts)]
    return _probe_data(task, parts, notes, doubt)


def read_probing_task(spec: DataSpec) -> TaskData:
    """Return a task's rows for fine-tuning: training on train, scored on test; valid is not used."""
    task = find_task(spec.task)
    assert spec.folder is not None
    data = read_probe(spec.task.removeprefix("probe/"), Path(spec.folder).expanduser())
    known = set(data.train.labels or ())
    kept = [k for k, label in enumerate(data.test.labels or ()) if label in known]
    labels = data.test.labels or ()
    test = TextRows([data.test.first[k] for k in kept], None, [str(labels[k]) for k in kept])
    notes = (*data.notes, "scored on the test rows; the valid rows are not used")
    return TaskData(task=task, train=data.train, valid=test, text=("sentence",), notes=notes)


Row = tuple[str, str]


def _probe_data(
    task: str, parts: Sequence[Sequence[Row]], notes: tuple[str, ...], doubt: str = ""
) -> ProbeData:
    if not all(parts):
        raise BermoError(f"{task}: there are too few rows for a training, a valid and a test part.")
    train, valid, test = (
        TextRows([text for text, _ in part], None, [label for _, label in part]) for part in parts
    )
    labels = tuple(sorted({label for part in parts for _, label in part}))
    group = sentences.TASKS[task].group
    return ProbeData(
        task=task,
        group=group,
        labels=labels,
        train=train,
        valid=valid,
        test=test,
        notes=notes,
        doubt=doubt,
    )


def _generated(task: str, count: int, seed: int) -> ProbeData:
    held = max(50, count // 10)
    drawn = sentences.split(task, (count, held, held), seed)
    parts = [[(item.text, item.label) for item in part] for part in drawn]
    return _probe_data(task, parts, (f"{count:,} training sentences from the grammar",))


def _senteval(path: Path) -> list[list[Row]]:
    parts: dict[str, list[Row]] = {name: [] for name in SPLITS}
    for number, line in enumerate(read_text(path).rstrip("\n").split("\n"), start=1):
        cells = line.rstrip("\r").split("\t")
        if len(cells) != 3 or cells[0] not in parts:
            raise BermoError(
                f"{path}, line {number}: expected tr, va or te, a label and a sentence with tabs"
                f' between them, but got "{line[:60]}".'
            )
        parts[cells[0]].append((cells[2], cells[1]))
    return list(parts.values())


def _xprobe(folder: Path) -> tuple[list[Row], tuple[str, ...], str]:
    """Read all files of a task; a sentence counts once, and not at all if its labels differ."""
    labels: dict[str, set[str]] = {}
    texts: dict[str, str] = {}
    total = 0
    paths = sorted(folder.glob("*.txt"))
    if not paths:
        raise BermoError(f"There is no .txt file in {folder}.")
    for path in paths:
        for number, line in enumerate(read_text(path).rstrip("\n").split("\n"), start=1):
            text, tab, label = line.rstrip("\r").rpartition("\t")
            if not tab or not text.strip():
                raise BermoError(
                    f'{path}, line {number}: expected a sentence, a tab and a label, but got "{line[:60]}".'
                )
            # An uncased vocabulary reads these alike, so they must not fall into two splits.
            key = " ".join(text.lower().split())
            texts.setdefault(key, text)
            labels.setdefault(key, set()).add(label)
            total += 1
    rows = [(texts[key], next(iter(given))) for key, given in labels.items() if len(given) == 1]
    doubtful = len(labels) - len(rows)
    note = f"{total:,} rows, {total - len(labels):,} repeated, {doubtful:,} with two labels left out"
    share = doubtful / len(labels)
    doubt = f"{share:.0%} of its sentences have two labels" if share > DOUBTFUL else ""
    return rows, (note,), doubt


def _cut(rows: list[Row], seed: int) -> list[list[Row]]:
    rng = Random(seed)
    order = sorted(rows, key=lambda _: rng.random())
    held = len(order) // 10
    return [order[2 * held :], order[:held], order[held : 2 * held]]
