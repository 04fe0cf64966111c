"""Tasks of a sentence's words: which one of many it holds, and whether one of them does not fit.

WC and SOMO of Conneau et al. 2018. For SOMO a noun or a verb is replaced by one that its verb, or its object,
does not go with. Verbs v and kinds of object k are drawn from a table P'(v, k) that is zero wherever v takes
k and has the same sums over rows and columns as the table P(v, k) of sound sentences (computed by iterative
proportional fitting, Deming and Stephan 1940). So every word is as frequent in odd sentences as in sound
ones, and no bag of words can separate them.
"""

from bisect import bisect
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import accumulate
from random import Random
from typing import TypeVar, cast

from bermo.data.sentences import grammar, lexicon
from bermo.data.sentences.drawn import Drawn, as_drawn
from bermo.data.sentences.grammar import NUMBERS, TENSES, Demand, Number, Tense, Tree, pick
from bermo.data.sentences.lexicon import Frame

KINDS: Mapping[str, str] = {noun.singular: kind for kind, nouns in lexicon.NOUNS.items() for noun in nouns}
CONTENT = tuple(sorted(KINDS))[::2]
"""The words of which each WC sentence holds exactly one: every second noun, in the singular."""
_CONTENT = frozenset(CONTENT)
_CHOOSY = tuple(f for f in lexicon.TRANSITIVE if len(f.objects) < len(lexicon.NOUNS))
"""Verbs that do not go with every kind of object."""
_KINDS = tuple(lexicon.NOUNS)
_FIT_ROUNDS = 100
"""Enough for the sums to agree to one part in a million."""
T = TypeVar("T")


_Path = tuple[str, ...]
_SUBJECT: _Path = ("S", "NP-SBJ", "NN")
_OBJECT: _Path = ("S", "VP", "NP-OBJ", "NN")
_VERB: _Path = ("S", "VP", "V")


def draw_content(rng: Random, label: str) -> Drawn:
    """Draw a sentence that holds the word, as an object or a subject, and no other of the list."""
    kind = KINDS[label]
    is_subject = kind in grammar.BY_SUBJECT and rng.random() < 0.5
    frames = grammar.BY_SUBJECT[kind] if is_subject else grammar.BY_OBJECT[kind]
    while True:
        verb, subjects, objects = pick(rng, frames)
        tense = pick(rng, TENSES)
        if is_subject:
            demand = Demand(tense=tense, frame=Frame(verb, (kind,), objects), subject="singular")
        else:
            demand = Demand(tense=tense, frame=Frame(verb, subjects, (kind,)), object="singular")
        tree = grammar.sentence(rng, demand)
        drawn = as_drawn(_put(tree, _SUBJECT if is_subject else _OBJECT, label))
        if [word for word in drawn.words if word in _CONTENT] == [label]:
            return drawn


def draw_odd(rng: Random, label: str) -> Drawn:
    """Draw a sentence whose verb goes with its object, or one in which either was replaced."""
    tense, number = pick(rng, TENSES), pick(rng, NUMBERS)
    if label == "original":
        frame = pick(rng, _CHOOSY)
        return as_drawn(_sentence(rng, frame, pick(rng, frame.objects), tense, number))
    odd, kind = _draw(rng, *_odd_pairs())
    if rng.random() < 0.5:
        tree = _sentence(rng, odd, pick(rng, odd.objects), tense, number)
        noun = pick(rng, lexicon.NOUNS[kind])
        return as_drawn(_put(tree, _OBJECT, noun.singular if number == "singular" else noun.plural))
    tree = _sentence(rng, _draw(rng, *_sound_frames(kind)), kind, tense, number)
    forms = {"VBP": odd.verb.base, "VBZ": odd.verb.third, "VBD": odd.verb.past}
    return as_drawn(_put(tree, _VERB, forms[_find(tree, _VERB).label]))


def _sentence(rng: Random, frame: Frame, kind: str, tense: Tense, number: Number) -> Tree:
    fixed = Frame(frame.verb, frame.subjects, (kind,))
    return grammar.sentence(rng, Demand(tense=tense, frame=fixed, object=number))


def _child_index(tree: Tree, label: str) -> int:
    """Return the number of the first child whose label begins so."""
    labels = [item.label if isinstance(item, Tree) else "" for item in tree.children]
    return next(index for index, other in enumerate(labels) if other.startswith(label))


def _find(tree: Tree, path: _Path) -> Tree:
    for label in path:
        tree = cast(Tree, tree.children[_child_index(tree, label)])
    return tree


def _put(tree: Tree, path: _Path, word: str) -> Tree:
    """Return the tree with another word at the end of a path."""
    if not path:
        return Tree(tree.label, (word,))
    at = _child_index(tree, path[0])
    changed = _put(cast(Tree, tree.children[at]), path[1:], word)
    return Tree(tree.label, (*tree.children[:at], changed, *tree.children[at + 1 :]))


def _draw(rng: Random, items: Sequence[T], sums: Sequence[float]) -> T:
    """Draw an item by its weight; `sums` are the weights added up."""
    return items[min(bisect(sums, rng.random() * sums[-1]), len(items) - 1)]


@cache
def _sound_frames(kind: str) -> tuple[list[Frame], list[float]]:
    """The verbs that take a kind of object, as often as sound sentences have them with it."""
    frames = [frame for frame in _CHOOSY if kind in frame.objects]
    return frames, list(accumulate(1 / len(frame.objects) for frame in frames))


@cache
def _odd_pairs() -> tuple[list[tuple[Frame, str]], list[float]]:
    """Verbs with kinds of object that they do not take, weighted so that each stays as frequent as it was."""
    kinds = {kind: sum(1 / len(f.objects) for f in _CHOOSY if kind in f.objects) for kind in _KINDS}
    table = [[0.0 if kind in frame.objects else kinds[kind] for kind in _KINDS] for frame in _CHOOSY]
    for _ in range(_FIT_ROUNDS):
        for row in table:
            total = sum(row)
            row[:] = [value / total for value in row]
        totals = [sum(column) for column in zip(*table, strict=True)]
        for row in table:
            row[:] = [
                value * kinds[kind] / total for value, kind, total in zip(row, _KINDS, totals, strict=True)
            ]
    weights = {
        (frame, kind): table[i][j]
        for i, frame in enumerate(_CHOOSY)
        for j, kind in enumerate(_KINDS)
        if table[i][j] > 0
    }
    return list(weights), list(accumulate(weights.values()))
