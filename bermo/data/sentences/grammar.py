"""A small grammar of English that draws sentences as trees, in the labels of the Penn Treebank.

    ROOT -> S "."           S -> [PP "," | ADVP "," | SBAR ","] NP-SBJ [ADVP] VP [SBAR]
    VP   -> V [NP-OBJ] [PP] | V SBAR            NP -> NNP | DT [JJ] N [PP | SBAR]

The label of a sentence is read from its tree, or chosen first and the tree drawn to fit. Draws use
`rng.random()` alone, the one method of `random` that is promised to give the same numbers in every
version of Python.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Any, Literal, NamedTuple, TypeVar

from bermo.data.sentences import lexicon
from bermo.data.sentences.lexicon import Frame, Verb

Tense = Literal["past", "present"]
Number = Literal["singular", "plural"]
Front = Literal["SBAR", "PP", "ADVP"]
TENSES: tuple[Tense, ...] = ("past", "present")
NUMBERS: tuple[Number, ...] = ("singular", "plural")
T = TypeVar("T")


class Tree(NamedTuple):
    """A node: its label, and its children; the child of a part of speech is the word itself."""

    label: str
    children: "tuple[Tree | str, ...]"


@dataclass(frozen=True, kw_only=True)
class Demand:
    """What the grammar has to make of a clause, and how rich it is; None leaves a choice to chance.

    Numbers are chances: of a verb with an object (certain where `object` is set), of "says that …" (only
    where `object` is not set), of the other tense in a subordinate clause, of an adjective, of a name, of a
    prepositional phrase or a relative clause after a noun, of a phrase or clause before the subject
    (`front`: which of them), of an adverb, of a prepositional phrase after the verb, of a clause of reason
    at the end.
    """

    tense: Tense = "past"
    subject: Number | None = None
    object: Number | None = None
    frame: Frame | None = None
    transitive: float = 0.75
    clausal: float = 0.0
    opposite: float = 0.0
    adjective: float = 0.3
    name: float = 0.15
    phrase: float = 0.2
    relative: float = 0.15
    fronted: float = 0.3
    front: Front | None = None
    adverb: float = 0.15
    location: float = 0.25
    reason: float = 0.15


_BARE: dict[str, Any] = dict.fromkeys(("phrase", "relative", "fronted", "reason", "clausal"), 0.0)
_FREE: dict[str, Any] = dict.fromkeys(("subject", "object", "frame", "front"))


def _prepositions(text: str) -> tuple[tuple[str, str], ...]:
    """Read "in place, near plant" as pairs of a preposition and a kind of noun."""
    preposition_and_kind = [pair.split() for pair in text.split(",")]
    return tuple((preposition, kind) for preposition, kind in preposition_and_kind)


_WHERE = _prepositions(
    "in place, near place, outside place, near landmark, beside landmark, behind landmark, near plant,"
    "behind plant"
)
_THING_PHRASES = _prepositions(
    "from place, near furniture, beside furniture, behind furniture, near plant, behind landmark"
)
_PHRASES = {
    "person": _prepositions(
        "with garment, with animal, with thing, from place, near landmark, beside vehicle,"
        "with person, beside person, behind person"
    ),
    "animal": _prepositions("near plant, behind landmark, beside furniture, from place, near vehicle"),
    "text": _prepositions(
        "about animal, about person, about place, about vehicle, from person, on furniture"
    ),
    "place": _prepositions("near landmark, behind landmark, beside place"),
    "landmark": _prepositions("near place, behind place, beside landmark"),
}
_CLAUSAL = frozenset(lexicon.CLAUSAL)
BY_SUBJECT = {
    kind: tuple(f for f in lexicon.TRANSITIVE + lexicon.INTRANSITIVE if kind in f.subjects)
    for kind in ("person", "animal")
}
BY_OBJECT = {kind: tuple(f for f in lexicon.TRANSITIVE if kind in f.objects) for kind in lexicon.NOUNS}


def pick(rng: Random, items: Sequence[T]) -> T:
    """Draw one of the items, all equally likely."""
    return items[int(rng.random() * len(items))]


def words(tree: Tree) -> list[str]:
    """List the words of a tree from left to right, with `a` turned into `an` before a vowel."""
    listed = list(_leaves(tree))
    for index, word in enumerate(listed[:-1]):
        if word == "a" and listed[index + 1][0] in "aeiou":
            listed[index] = "an"
    return listed


def tags(tree: Tree) -> list[str]:
    """List the parts of speech of a tree, one for each of its words."""
    if isinstance(tree.children[0], str):
        return [tree.label]
    return [tag for child in tree.children if isinstance(child, Tree) for tag in tags(child)]


def child(tree: Tree, label: str) -> Tree:
    """Return the first child with a label."""
    return next(item for item in tree.children if isinstance(item, Tree) and item.label == label)


def spell(listed: Sequence[str]) -> str:
    """Write words as a sentence: a capital first, no space before a comma or a full stop."""
    text = " ".join(listed).replace(" ,", ",").replace(" .", ".")
    return text[0].upper() + text[1:]


def sentence(rng: Random, demand: Demand) -> Tree:
    """Draw a whole sentence whose main clause is as demanded."""
    return Tree("ROOT", (clause(rng, demand), Tree(".", (".",))))


def clause(rng: Random, demand: Demand) -> Tree:
    """Draw a clause: what comes before the subject, the subject, the verb phrase, a reason."""
    frame = demand.frame or _frame(rng, demand)
    subject_kind = pick(rng, frame.subjects)
    number = pick(rng, NUMBERS) if demand.subject is None else demand.subject
    parts = list(_front(rng, demand)) if rng.random() < demand.fronted else []
    subject = noun_phrase(rng, demand, subject_kind, number, "NP-SBJ", is_free=not demand.subject)
    parts.append(subject)
    if rng.random() < demand.adverb:
        parts.append(Tree("ADVP", (leaf("RB", pick(rng, lexicon.OTHERS["manner"])),)))
    parts.append(_verb_phrase(rng, demand, frame, _number(subject, number)))
    if rng.random() < demand.reason:
        parts.append(_subordinate(rng, demand, "because"))
    return Tree("S", tuple(parts))


def noun_phrase(
    rng: Random, demand: Demand, kind: str, number: Number, label: str = "NP", is_free: bool = True
) -> Tree:
    """Draw a noun phrase of a kind and number; a free one may be a person's name instead."""
    if is_free and kind == "person" and rng.random() < demand.name:
        return Tree(label, (leaf("NNP", pick(rng, lexicon.OTHERS["female"] + lexicon.OTHERS["male"])),))
    noun = pick(rng, lexicon.NOUNS[kind])
    is_plural = number == "plural"
    parts = [leaf("DT", pick(rng, lexicon.OTHERS[number]))]
    if rng.random() < demand.adjective:
        parts.append(leaf("JJ", pick(rng, lexicon.ADJECTIVES[kind])))
    parts.append(leaf("NNS", noun.plural) if is_plural else leaf("NN", noun.singular))
    chance = rng.random()
    if chance < demand.phrase:
        parts.append(_phrase(rng, demand, _PHRASES.get(kind, _THING_PHRASES)))
    elif chance < demand.phrase + demand.relative:
        parts.append(_relative(rng, demand, kind, number))
    return Tree(label, tuple(parts))


def verb(chosen: Verb, tense: Tense, number: Number) -> Tree:
    """Put a verb into its form for a tense and the number of its subject."""
    if tense == "past":
        return leaf("VBD", chosen.past)
    return leaf("VBP", chosen.base) if number == "plural" else leaf("VBZ", chosen.third)


def leaf(label: str, word: str) -> Tree:
    """Make the node of one word from its part of speech."""
    return Tree(label, (word,))


def _number(phrase: Tree, drawn: Number) -> Number:
    """Return the number of a noun phrase: a name is singular, whatever was drawn for it."""
    return "singular" if tags(phrase)[0] == "NNP" else drawn


def _leaves(tree: Tree) -> Iterator[str]:
    for child in tree.children:
        if isinstance(child, str):
            yield child
        else:
            yield from _leaves(child)


def _frame(rng: Random, demand: Demand) -> Frame:
    if demand.object is None and rng.random() < demand.clausal:
        return pick(rng, lexicon.CLAUSAL)
    has_object = demand.object is not None or rng.random() < demand.transitive
    return pick(rng, lexicon.TRANSITIVE if has_object else lexicon.INTRANSITIVE)


_FRONTS: dict[Front, float] = {"SBAR": 0.0, "PP": 0.4, "ADVP": 0.8}


def _front(rng: Random, demand: Demand) -> Iterator[Tree]:
    chance = _FRONTS[demand.front] if demand.front else rng.random()
    if chance < 0.4:
        yield _subordinate(rng, demand, pick(rng, lexicon.SUBORDINATORS))
    elif chance < 0.8:
        yield _phrase(rng, demand, _WHERE)
    else:
        yield Tree("ADVP", (leaf("RB", pick(rng, lexicon.OTHERS["comment"])),))
    yield leaf(",", ",")


def _verb_phrase(rng: Random, demand: Demand, frame: Frame, subject: Number) -> Tree:
    parts = [verb(frame.verb, demand.tense, subject)]
    if frame in _CLAUSAL:
        parts.append(_subordinate(rng, demand, "that"))
        return Tree("VP", tuple(parts))
    object_kind = pick(rng, frame.objects) if frame.objects else None
    if object_kind:
        number = pick(rng, NUMBERS) if demand.object is None else demand.object
        is_free = demand.object is None
        parts.append(noun_phrase(rng, demand, object_kind, number, "NP-OBJ", is_free=is_free))
    if object_kind not in ("place", "landmark") and rng.random() < demand.location:
        parts.append(_phrase(rng, demand, _WHERE))
    return Tree("VP", tuple(parts))


def _phrase(rng: Random, demand: Demand, choices: Sequence[tuple[str, str]]) -> Tree:
    preposition, kind = pick(rng, choices)
    number = pick(rng, NUMBERS)
    noun = noun_phrase(rng, _bare(demand), kind, number)
    return Tree("PP", (leaf("IN", preposition), noun))


@cache
def _bare(demand: Demand) -> Demand:
    return replace(demand, **_BARE)


@cache
def _free(demand: Demand, tense: Tense) -> Demand:
    return replace(demand, tense=tense, **_BARE, **_FREE)


def _lower(rng: Random, demand: Demand) -> Demand:
    """Return the demand for a clause below: without phrases, free, and perhaps in the other tense."""
    is_opposite = rng.random() < demand.opposite
    return _free(demand, TENSES[TENSES.index(demand.tense) - 1] if is_opposite else demand.tense)


def _subordinate(rng: Random, demand: Demand, word: str) -> Tree:
    return Tree("SBAR", (leaf("IN", word), clause(rng, _lower(rng, demand))))


def _relative(rng: Random, demand: Demand, kind: str, number: Number) -> Tree:
    below = _lower(rng, demand)
    pronoun = leaf("WP", "who") if kind == "person" else leaf("WDT", "that")
    if kind in BY_SUBJECT and rng.random() < 0.5:
        body = (_verb_phrase(rng, below, pick(rng, BY_SUBJECT[kind]), number),)
        return Tree("SBAR", (pronoun, Tree("S", body)))
    frame = pick(rng, BY_OBJECT[kind])
    other = pick(rng, NUMBERS)
    subject = noun_phrase(rng, below, pick(rng, frame.subjects), other, "NP-SBJ")
    predicate = Tree("VP", (verb(frame.verb, below.tense, _number(subject, other)),))
    return Tree("SBAR", (leaf("WDT", "that"), Tree("S", (subject, predicate))))
