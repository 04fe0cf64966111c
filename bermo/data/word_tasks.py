"""Probing tasks of words: which spans of which sentences have which label, from files that a user names.

    CoNLL-U    upos, xpos, any feature (Number, Tense, …), deprel: a word and its head; tree: the whole tree
    columns    pos, chunk, entity, or column-2, … (word_columns.py)

A folder holds the parts: files with train, dev or valid, and test in their names. One file alone is cut into
80, 10 and 10 % of its different sentences, in the order of a hash of their words. Of a relation such as
nmod:poss the universal part counts, nmod; the root has no head and is no relation.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar

from bermo.data.conllu import NOTHING, ROOT, ParsedSentence, features_of, read_conllu, tree_of
from bermo.data.packed import check_file, kind_of
from bermo.data.word_columns import ColumnSentence, marks_spans, read_columns, spans_of
from bermo.errors import BermoError, nearest

TREE = "tree"
PARTS: Mapping[str, tuple[str, ...]] = {
    "train": ("train",),
    "dev": ("dev", "valid", "testa"),
    "test": ("test", "testb"),
}
"""What the names of a folder's files hold; a name is of the first part that it fits."""
ENDINGS = (".conllu", ".conll", ".txt", ".tsv", ".iob", ".iob2", ".bio")
FEWEST = 10
"""Different sentences that a file needs to be cut into three parts."""
TRAIN, OTHERS = 2500, 2500
"""Sentences that are read of the training and of the test part without a limit; of dev a quarter."""
GROUPS = {"upos": "tags", "xpos": "tags", "pos": "tags", "chunk": "chunks", "entity": "entities"}
GROUPS |= {"deprel": "relations"}

Sentences: TypeAlias = Sequence[ParsedSentence | ColumnSentence]
Span: TypeAlias = tuple[int, int]
Item = TypeVar("Item")


@dataclass(frozen=True, kw_only=True)
class WordSource:
    """The sentences of one file or folder in three parts."""

    path: Path
    parts: tuple[Sentences, Sentences, Sentences]
    notes: tuple[str, ...] = ()

    @property
    def is_parsed(self) -> bool:
        """Whether it is CoNLL-U."""
        return isinstance(self.parts[0][0], ParsedSentence)

    @property
    def words(self) -> list[list[tuple[str, ...]]]:
        """The words of the sentences of each part."""
        return [[sentence.words for sentence in part] for part in self.parts]


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """Spans of words with a label each: the sentence, the span, its head's span if there is one."""

    sentences: tuple[int, ...]
    spans: tuple[Span, ...]
    heads: tuple[Span, ...] | None
    labels: tuple[str, ...]
    keys: tuple[str, ...]
    """The word that a memoriser would remember: the word itself, the dependent, the last of a span."""

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, kw_only=True)
class WordData:
    """The labelled spans of a task in three parts, and all its labels."""

    task: str
    group: str
    labels: tuple[str, ...]
    parts: tuple[Labelled, Labelled, Labelled]


def open_source(path: Path, limit: int | None = None) -> WordSource:
    """Read a file or a folder, at most `limit` training sentences of it, evenly chosen."""
    if path.is_dir():
        files = {part: _file_of(path, part) for part in PARTS}
        whole = [_read(file) for file in files.values()]
        notes = [", ".join(file.name for file in files.values())]
    else:
        whole = _cut(check_file(path), _read(path))
        notes = [f"{path.name}, cut into 80, 10 and 10 % of its sentences"]
    if len({type(part[0]) for part in whole}) > 1:
        raise BermoError(f"{path} holds CoNLL-U and column files. Keep the files of one form in a folder.")
    most = (limit or TRAIN, max(1, (limit or TRAIN) // 4), limit or OTHERS)
    parts = [evenly(part, count) for part, count in zip(whole, most, strict=True)]
    for name, part, chosen in zip(PARTS, whole, parts, strict=True):
        if len(chosen) < len(part):
            notes.append(f"{len(chosen):,} of {len(part):,} {name} sentences, evenly chosen")
    return WordSource(path=path, parts=(parts[0], parts[1], parts[2]), notes=tuple(notes))


def evenly(items: Sequence[Item], count: int) -> list[Item]:
    """Return at most `count` items, evenly chosen, in their order."""
    if len(items) <= count:
        return list(items)
    return [items[k * len(items) // count] for k in range(count)]


def _file_of(folder: Path, part: str) -> Path:
    files = sorted(item for item in folder.iterdir() if item.is_file() and kind_of(item) in ENDINGS)
    of_part = [file for file in files if _part_of(file.name) == part]
    if len(of_part) == 1:
        return of_part[0]
    found = f"several: {', '.join(file.name for file in of_part)}" if of_part else "none"
    raise BermoError(
        f"{folder}: one file of the {part} part was expected (.conllu, .conll or .txt with"
        f" {' or '.join(PARTS[part])} in its name), but there is {found}. Give a folder with one of each, or"
        " one file, which is cut into parts."
    )


def _part_of(name: str) -> str | None:
    fits = [part for part, words in PARTS.items() if any(word in name.lower() for word in words)]
    return fits[0] if fits else None


def _read(path: Path) -> Sentences:
    return read_conllu(path) if kind_of(path) == ".conllu" else read_columns(path)


def _cut(path: Path, sentences: Sentences) -> list[Sentences]:
    """Cut the different sentences into parts in the order of their hash; each keeps the file's order."""
    different = list({sentence.words: sentence for sentence in sentences}.values())
    if len(different) < FEWEST:
        raise BermoError(
            f"{path} holds {len(different)} different sentence(s), but {FEWEST} or more are needed to train,"
            " choose and test a probe."
        )
    order = sorted(range(len(different)), key=lambda at: _hash(different[at].words))
    held = max(1, len(order) // 10)
    cuts = (order[: -2 * held], order[-2 * held : -held], order[-held:])
    return [[different[at] for at in sorted(cut)] for cut in cuts]


def _hash(words: Sequence[str]) -> str:
    return hashlib.sha256("\t".join(words).encode()).hexdigest()


def tasks_of(source: WordSource) -> list[str]:
    """Return the tasks that a source has labels for, those of the training sentences."""
    parsed = [sentence for sentence in source.parts[0] if isinstance(sentence, ParsedSentence)]
    columns = [sentence for sentence in source.parts[0] if isinstance(sentence, ColumnSentence)]
    if columns:
        return list(columns[0].labels)
    names = [name for name in ("upos", "xpos") if any(set(getattr(s, name)) - {NOTHING} for s in parsed)]
    if any(set(sentence.heads) - {NOTHING} for sentence in parsed):
        names += ["deprel", TREE]
    features = {name for s in parsed for cell in s.features for name in features_of(cell)}
    return [*names, *sorted(features)]


def choose_word_tasks(text: str, sources: Sequence[WordSource]) -> list[tuple[str, WordSource]]:
    """Read names with commas between them, each from the first source that has it.

    "all": parts of speech, relations, Number, Tense, chunks and entities, those that there are.
    """
    known = {name: source for source in reversed(sources) for name in tasks_of(source)}
    usual = ("upos", "pos", "Number", "Tense", "chunk", "deprel", "entity")
    wanted: dict[str, None] = {}
    for name in (part.strip() for part in text.split(",")):
        if name == "all":
            wanted |= dict.fromkeys(task for task in usual if task in known)
        elif name in known:
            wanted[name] = None
        else:
            files = ", ".join(str(source.path) for source in sources)
            raise BermoError(f'{files}: there is no task "{name}".{nearest(name, ("all", *known))}')
    if not wanted:
        raise BermoError(f"None of the usual tasks is in these files. Name one: {', '.join(known)}.")
    return [(name, known[name]) for name in wanted]


def read_word_task(task: str, source: WordSource) -> WordData:
    """Return the labelled spans of a task; one that has a single label is an error."""
    parts = [_labelled(task, part, source.path) for part in source.parts]
    for name, part in zip(PARTS, parts, strict=True):
        if not part.labels:
            raise BermoError(f"{source.path}: no word of the {name} part has a label of {task}.")
    labels = sorted({label for part in parts for label in part.labels})
    if len(set(parts[0].labels)) < 2:
        raise BermoError(
            f'{source.path}: every word of {task} has the label "{labels[0][:40]}" in training, so there is'
            " nothing to learn. Name another task."
        )
    return WordData(
        task=task,
        group=GROUPS.get(task, "features" if source.is_parsed else "tags"),
        labels=tuple(labels),
        parts=(parts[0], parts[1], parts[2]),
    )


Row: TypeAlias = tuple[int, Span, Span | None, str, str]


def _labelled(task: str, part: Sentences, path: Path) -> Labelled:
    rows = list(_rows(task, part, path))
    heads = [head for _, _, head, _, _ in rows if head is not None]
    return Labelled(
        sentences=tuple(row[0] for row in rows),
        spans=tuple(row[1] for row in rows),
        heads=tuple(heads) if heads else None,
        labels=tuple(row[3] for row in rows),
        keys=tuple(row[4].lower() for row in rows),
    )


def _rows(task: str, part: Sentences, path: Path) -> Iterable[Row]:
    columns = [sentence.labels[task] for sentence in part if isinstance(sentence, ColumnSentence)]
    has_spans = marks_spans(columns)
    for number, sentence in enumerate(part):
        words = sentence.words
        if isinstance(sentence, ColumnSentence):
            labels = sentence.labels[task]
            spans = spans_of(labels) if has_spans else [(k, k + 1, label) for k, label in enumerate(labels)]
            yield from ((number, (a, b), None, label, words[b - 1]) for a, b, label in spans)
        elif task == "deprel":
            for at, head in enumerate(tree_of(path, sentence)):
                if head != ROOT:
                    label = sentence.relations[at].partition(":")[0]
                    yield number, (at, at + 1), (head, head + 1), label, words[at]
        else:
            for at, label in enumerate(_word_labels(task, sentence)):
                if label not in (NOTHING, ""):
                    yield number, (at, at + 1), None, label, words[at]


def _word_labels(task: str, sentence: ParsedSentence) -> Sequence[str]:
    if task in ("upos", "xpos"):
        labels: Sequence[str] = getattr(sentence, task)
        return labels
    return [features_of(cell).get(task, NOTHING) for cell in sentence.features]


def memorise(part: Labelled) -> tuple[Mapping[str, str], str]:
    """Return the most frequent label of each key, and of all words."""
    counts: dict[str, Counter[str]] = {}
    for key, label in zip(part.keys, part.labels, strict=True):
        counts.setdefault(key, Counter())[label] += 1
    known = {key: min(of_key, key=lambda label: (-of_key[label], label)) for key, of_key in counts.items()}
    return known, Counter(part.labels).most_common(1)[0][0]
