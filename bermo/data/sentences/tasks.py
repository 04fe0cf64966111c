"""The tasks of generated sentences: exact labels, balanced classes, no sentence twice, seeded.

They are the ten probing tasks of Conneau et al. 2018, "What you can cram into a single vector". A task names
its labels and draws, for one of them, a tree and its words. Below the surface the words alone do not give the
label: other clauses have other tenses, other nouns other numbers; shifts and inversions change only the order
of words; an odd word is as frequent elsewhere.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random
from typing import Literal, TypeAlias, cast

from bermo.data.sentences import contents, grammar, lexicon, shapes
from bermo.data.sentences.drawn import Drawn, as_drawn
from bermo.data.sentences.grammar import NUMBERS, TENSES, Demand, Number, Tense, Tree, leaf, pick
from bermo.data.sentences.lexicon import Frame
from bermo.errors import BermoError, nearest

Group: TypeAlias = Literal["surface", "syntactic", "semantic"]


@dataclass(frozen=True, slots=True)
class Sentence:
    """A text and its label."""

    text: str
    label: str


@dataclass(frozen=True)
class SentenceTask:
    """What is asked of a sentence, the possible answers, and how to draw one for an answer."""

    description: str
    labels: tuple[str, ...]
    draw: Callable[[Random, str], Drawn]
    group: Group = "semantic"
    has_capital: bool = True
    """Whether a sentence begins with one; where words are swapped it would show which word came first."""


def generate(task: str, count: int, seed: int) -> list[Sentence]:
    """Draw `count` sentences of a task, all different; each label as often as any other, or once more."""
    return split(task, (count,), seed)[0]


def split(task: str, sizes: Sequence[int], seed: int) -> list[list[Sentence]]:
    """Draw several sets of sentences, each balanced, with no sentence in two of them."""
    rng, seen = _start(task, sizes, seed), set[str]()
    return [[item for item, _ in _draw(TASKS[task], size, rng, seen)] for size in sizes]


def with_trees(task: str, count: int, seed: int) -> Iterator[tuple[Sentence, Tree]]:
    """Yield the sentences of `generate` one by one, each with the tree it was read from."""
    yield from _draw(TASKS[task], count, _start(task, (count,), seed), set())


def _start(task: str, sizes: Sequence[int], seed: int) -> Random:
    if task not in TASKS:
        raise BermoError(f'There are no generated sentences for "{task}".{nearest(task, TASKS)}')
    if any(size < 0 for size in sizes):
        raise BermoError(f"Counts of sentences must be 0 or more, but got {tuple(sizes)}.")
    return Random(f"{task}-{seed}")


def _draw(task: SentenceTask, count: int, rng: Random, seen: set[str]) -> Iterator[tuple[Sentence, Tree]]:
    labels = [task.labels[index % len(task.labels)] for index in range(count)]
    labels.sort(key=lambda _: rng.random())
    for label in labels:
        while True:
            drawn = task.draw(rng, label)
            text = grammar.spell(drawn.words)
            if not task.has_capital:
                text = text[0].lower() + text[1:]
            if text not in seen:
                break
        seen.add(text)
        yield Sentence(text, label), drawn.tree


def _tense(rng: Random, label: str) -> Drawn:
    demand = Demand(tense=cast(Tense, label), opposite=0.65, clausal=0.15, relative=0.25, reason=0.25)
    return as_drawn(grammar.sentence(rng, demand))


def _subject_number(rng: Random, label: str) -> Drawn:
    # Subjects are mostly persons: other clauses bring persons that are not the subject.
    number = cast(Number, label)
    demand = Demand(subject=number, transitive=0.9, relative=0.3, fronted=0.5, reason=0.3)
    return as_drawn(grammar.sentence(rng, demand))


def _object_number(rng: Random, label: str) -> Drawn:
    return as_drawn(grammar.sentence(rng, Demand(object=cast(Number, label))))


# Neighbours that never occur in the other order: "the old" but not "old the".
_FIXED_ORDER = {
    ("DT", "NN"),
    ("DT", "NNS"),
    ("DT", "JJ"),
    ("JJ", "NN"),
    ("JJ", "NNS"),
    ("IN", "DT"),
    ("VBD", "DT"),
    ("VBZ", "DT"),
    ("VBP", "DT"),
    ("VBD", "IN"),
    ("VBZ", "IN"),
    ("VBP", "IN"),
    ("WP", "VBD"),
    ("WP", "VBZ"),
    ("WP", "VBP"),
}


def _bigram_shift(rng: Random, label: str) -> Drawn:
    while True:
        tree = grammar.sentence(rng, Demand(tense=pick(rng, TENSES), opposite=0.3))
        words, kinds = grammar.words(tree), grammar.tags(tree)
        fixed = [index for index, pair in enumerate(pairwise(kinds)) if pair in _FIXED_ORDER]
        if fixed:
            break
    if label == "shifted":
        first = pick(rng, fixed)
        words[first], words[first + 1] = words[first + 1], words[first]
    return Drawn(tree, words)


_PLAIN = Demand(adverb=0.0, fronted=0.0, reason=0.0, relative=0.0, location=0.1)


def _coordination_inversion(rng: Random, label: str) -> Drawn:
    """Join two clauses, the second with pronouns for nouns of the first; or turn them round."""
    frame = pick(rng, lexicon.TRANSITIVE)
    frame = Frame(frame.verb, (pick(rng, frame.subjects),), (pick(rng, frame.objects),))
    first = grammar.clause(rng, replace(_PLAIN, frame=frame))
    parts = [first, _sequel(rng, first, frame)]
    if label == "inverted":
        parts.reverse()
    joint = leaf("CC", pick(rng, ("and", "but", "so")))
    whole = Tree("S", (parts[0], leaf(",", ","), joint, parts[1]))
    return as_drawn(Tree("ROOT", (whole, leaf(".", "."))))


def _sequel(rng: Random, first: Tree, frame: Frame) -> Tree:
    """Draw a clause that takes up the subject, the object, or both of the first one by pronouns."""
    (subject_kind,), (object_kind,) = frame.subjects, frame.objects
    takes_subject, takes_object = pick(rng, ((True, False), (False, True), (True, True)))
    choices = grammar.BY_OBJECT[object_kind] if takes_object else grammar.BY_SUBJECT[subject_kind]
    if takes_subject and takes_object:
        choices = tuple(item for item in choices if subject_kind in item.subjects)
    new = pick(rng, choices)
    if takes_subject:
        subject = _pronoun(rng, grammar.child(first, "NP-SBJ"), subject_kind, "NP-SBJ")
    else:
        subject = grammar.noun_phrase(rng, _PLAIN, pick(rng, new.subjects), pick(rng, NUMBERS), "NP-SBJ")
    parts = [grammar.verb(new.verb, "past", "singular")]
    if takes_object:
        parts.append(
            _pronoun(rng, grammar.child(grammar.child(first, "VP"), "NP-OBJ"), object_kind, "NP-OBJ")
        )
    elif new.objects:
        kind = pick(rng, new.objects)
        parts.append(grammar.noun_phrase(rng, _PLAIN, kind, pick(rng, NUMBERS), "NP-OBJ"))
    return Tree("S", (subject, Tree("VP", tuple(parts))))


_PRONOUNS = {
    "NP-SBJ": {"female": "she", "male": "he", "thing": "it", "plural": "they"},
    "NP-OBJ": {"female": "her", "male": "him", "thing": "it", "plural": "them"},
}


def _pronoun(rng: Random, phrase: Tree, kind: str, label: str) -> Tree:
    head = next(item for item in phrase.children if isinstance(item, Tree) and item.label[0] == "N")
    if head.label == "NNS":
        sort = "plural"
    elif head.label == "NNP":
        sort = "female" if head.children[0] in lexicon.OTHERS["female"] else "male"
    else:
        sort = pick(rng, ("female", "male")) if kind == "person" else "thing"
    return Tree(label, (leaf("PRP", _PRONOUNS[label][sort]),))


TASKS: Mapping[str, SentenceTask] = {
    "sentence-length": SentenceTask(
        "How many words are there, marks counted?", tuple(shapes.LENGTHS), shapes.draw_length, "surface"
    ),
    "word-content": SentenceTask(
        f"Which one of {len(contents.CONTENT)} nouns is in the sentence?",
        contents.CONTENT,
        contents.draw_content,
        "surface",
    ),
    "tree-depth": SentenceTask(
        "How deep is the tree of the sentence?", tuple(shapes.DEPTHS), shapes.draw_depth, "syntactic"
    ),
    "top-constituents": SentenceTask(
        "Which constituents is the sentence made of?", shapes.TOPS, shapes.draw_top, "syntactic"
    ),
    "bigram-shift": SentenceTask(
        "Are all words in their order, or were two neighbours swapped?",
        ("original", "shifted"),
        _bigram_shift,
        "syntactic",
        has_capital=False,
    ),
    "tense": SentenceTask(
        "Is the verb of the main clause in the past or in the present?", ("past", "present"), _tense
    ),
    "subject-number": SentenceTask(
        "Is the subject of the main clause singular or plural?", NUMBERS, _subject_number
    ),
    "object-number": SentenceTask(
        "Is the object of the main clause singular or plural?", NUMBERS, _object_number
    ),
    "odd-man-out": SentenceTask(
        "Do verb and object go together, or was one of them replaced?",
        ("original", "odd"),
        contents.draw_odd,
    ),
    "coordination-inversion": SentenceTask(
        "Are two joined clauses in their order, or were they turned round?",
        ("original", "inverted"),
        _coordination_inversion,
        has_capital=False,
    ),
}
"""SentEval's ten probing tasks in its own order: surface, syntactic, semantic."""
