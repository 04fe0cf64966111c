"""Rows of generated sentences for every kind of task, so that all of them run without a file.

box/NAME        one sentence a row, for each task of data/sentences
box/arguments   tag the words of the main clause's subject and object: B-SUBJECT, I-SUBJECT, B-OBJECT, …
box/answer      find the subject or the object that a question asks for: a span of the sentence
box/ending      which of two clauses is in the order of the story: a choice
"""

from collections.abc import Iterator

from bermo.data import sentences
from bermo.data.rows import ChoiceRows, Rows, SpanRows, TaggedRows, TextRows, pick
from bermo.data.sentences import grammar
from bermo.data.sentences.grammar import Tree
from bermo.errors import BermoError

ROLES = {"NP-SBJ": "SUBJECT", "NP-OBJ": "OBJECT"}
QUESTIONS = {"SUBJECT": "What is the subject?", "OBJECT": "What is the object?"}


def generate_rows(name: str, sizes: tuple[int, int], seed: int) -> tuple[Rows, Rows]:
    """Return training and validation rows of the task box/`name`, no sentence in both."""
    if name in sentences.TASKS:
        train, valid = (
            TextRows([made.text for made in part], None, [made.label for made in part])
            for part in sentences.split(name, sizes, seed)
        )
        return train, valid
    rows = _build(name, sum(sizes), seed)
    return pick(rows, range(sizes[0])), pick(rows, range(sizes[0], sum(sizes)))


def _build(name: str, count: int, seed: int) -> Rows:
    match name:
        case "arguments":
            return _arguments(count, seed)
        case "answer":
            return _answers(count, seed)
        case "ending":
            return _endings(count, seed)
    raise BermoError(f'There are no generated rows for "{name}".')


def _arguments(count: int, seed: int) -> TaggedRows:
    words, tags = [], []
    for _, tree in sentences.with_trees("object-number", count, seed):
        listed = grammar.words(tree)
        row = ["O"] * len(listed)
        for role, begin, end in _roles(tree):
            row[begin:end] = [f"B-{role}"] + [f"I-{role}"] * (end - begin - 1)
        words.append(listed)
        tags.append(row)
    return TaggedRows(words, tags)


def _answers(count: int, seed: int) -> SpanRows:
    rows = []
    for index, (sentence, tree) in enumerate(sentences.with_trees("object-number", count, seed)):
        listed = grammar.words(tree)
        roles = list(_roles(tree))
        role, begin, end = roles[index % len(roles)]
        start = len(grammar.spell(listed[:begin])) + 1 if begin else 0
        answer = sentence.text[start : len(grammar.spell(listed[:end]))]
        rows.append((str(index), QUESTIONS[role], sentence.text, [(answer, start)]))
    ids, questions, contexts, answers = (list(column) for column in zip(*rows, strict=True))
    return SpanRows(ids, questions, contexts, answers)


def _endings(count: int, seed: int) -> ChoiceRows:
    """Both orders of two joined clauses; the label is the number of the right one."""
    endings, labels = [], []
    drawn = sentences.with_trees("coordination-inversion", count, seed)
    for index, (sentence, _) in enumerate(drawn):
        pair = [sentence.text, _turned(sentence.text)]
        is_swapped = index % 2 == 1
        endings.append(pair[::-1] if is_swapped else pair)
        labels.append(str(int((sentence.label == "original") == is_swapped)))
    return ChoiceRows(["Which is in order?"] * count, endings, labels)


def _turned(text: str) -> str:
    """Put the second clause of "one, and other." before the first; neither has a capital."""
    one, _, other = text.rstrip(".").partition(", ")
    joint, _, rest = other.partition(" ")
    return f"{rest}, {joint} {one}."


def _roles(tree: Tree) -> Iterator[tuple[str, int, int]]:
    """Yield the role, the first word and the word after the last of the main clause's arguments."""
    main = tree.children[0]
    assert isinstance(main, Tree)
    at = 0
    for child in main.children:
        assert isinstance(child, Tree)
        if child.label == "VP":
            inner = at
            for part in child.children:
                assert isinstance(part, Tree)
                if part.label in ROLES:
                    yield ROLES[part.label], inner, inner + _size(part)
                inner += _size(part)
        elif child.label in ROLES:
            yield ROLES[child.label], at, at + _size(child)
        at += _size(child)


def _size(tree: Tree) -> int:
    return len(grammar.tags(tree))
