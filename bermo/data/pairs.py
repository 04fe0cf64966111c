"""Minimal pairs: two sentences that differ in one point, one right and one wrong; generated, or from files.

    agreement          The cat near the dogs sleeps.        The cat near the dogs sleep.
    negative polarity  No doctor ever laughed.              The doctor ever laughed.
    negation           The doctor did not laugh.            The doctor did not laughed.
    word order         The old doctor laughed.              The doctor old laughed.

A control is the same change where it is no mistake, or another one ("No doctor laughed." and "The doctor
laughed."): what is likelier there is only the more frequent word. Files are in the form of BLiMP (Warstadt et
al. 2020): JSON lines with sentence_good, sentence_bad and UID.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random

from bermo.data.objects import parse_json
from bermo.data.sentences import grammar, lexicon
from bermo.data.sentences.grammar import NUMBERS, Demand, pick
from bermo.data.text import read_text
from bermo.errors import BermoError

_PLAIN = Demand(phrase=0.0, relative=0.0, fronted=0.0, adverb=0.0, reason=0.0, name=0.0, location=0.0)


@dataclass(frozen=True)
class Pair:
    """A right sentence, its wrong twin, what they differ in, and the same change without the grammar."""

    kind: str
    good: str
    bad: str
    control: tuple[str, str] | None = None


def _twins(
    kind: str, good: list[str], bad: list[str], control: tuple[list[str], list[str]] | None = None
) -> Pair:
    texts = [grammar.spell([*words, "."]) for words in (good, bad, *(control or ()))]
    return Pair(kind, texts[0], texts[1], (texts[2], texts[3]) if control else None)


def _subject(rng: Random, kinds: tuple[str, ...], number: grammar.Number, demand: Demand) -> list[str]:
    return grammar.words(grammar.noun_phrase(rng, demand, pick(rng, kinds), number, is_free=False))


def _agreement(rng: Random) -> Pair:
    """A noun of the other number comes between the subject and its verb; alone, that noun is the control."""
    frame, number = pick(rng, lexicon.INTRANSITIVE), pick(rng, NUMBERS)
    other = NUMBERS[1 - NUMBERS.index(number)]
    near = pick(rng, ("near", "beside", "behind"))
    between = _subject(rng, ("person", "animal"), other, _PLAIN)
    words = [*_subject(rng, frame.subjects, number, _PLAIN), near, *between]
    right, wrong = (grammar.words(grammar.verb(frame.verb, "present", n)) for n in (number, other))
    return _twins("agreement", words + right, words + wrong, (between + right, between + wrong))


def _polarity(rng: Random) -> Pair:
    """The word "ever" needs a negation; without it both are right."""
    frame = pick(rng, lexicon.INTRANSITIVE)
    noun = pick(rng, lexicon.NOUNS[pick(rng, frame.subjects)]).singular
    past = frame.verb.past
    good, bad = (["no", noun, "ever", past], ["the", noun, "ever", past])
    return _twins("negative polarity", good, bad, (["no", noun, past], ["the", noun, past]))


def _negation(rng: Random) -> Pair:
    """After "did not" the verb has no ending; without it, it may have one."""
    frame, number = pick(rng, lexicon.INTRANSITIVE), pick(rng, NUMBERS)
    subject = _subject(rng, frame.subjects, number, _PLAIN)
    words, base, past = [*subject, "did", "not"], frame.verb.base, frame.verb.past
    return _twins("negation", [*words, base], [*words, past], ([*subject, base], [*subject, past]))


_FIXED = {("DT", "JJ"), ("JJ", "NN"), ("JJ", "NNS"), ("DT", "NN"), ("DT", "NNS"), ("IN", "DT")}


def _order(rng: Random) -> Pair:
    """Two neighbours that never occur the other way round are swapped."""
    tree = grammar.sentence(rng, Demand(adjective=0.6, fronted=0.0, reason=0.0))
    words, tags = grammar.words(tree)[:-1], grammar.tags(tree)[:-1]
    fixed = [index for index, pair in enumerate(pairwise(tags)) if pair in _FIXED]
    if not fixed:
        return _order(rng)
    swapped, first = list(words), pick(rng, fixed)
    swapped[first : first + 2] = [words[first + 1], words[first]]
    return _twins("word order", words, swapped)


KINDS: Mapping[str, Callable[[Random], Pair]] = {
    "agreement": _agreement,
    "negative polarity": _polarity,
    "negation": _negation,
    "word order": _order,
}


def draw_pairs(count: int, seed: int = 0) -> list[Pair]:
    """Draw `count` pairs of each kind, all different."""
    pairs: dict[Pair, None] = {}
    for kind, draw in KINDS.items():
        rng, goal = Random(f"{kind}-{seed}"), len(pairs) + count
        while len(pairs) < goal:
            pairs[draw(rng)] = None
    return list(pairs)


def read_pairs(path: Path) -> list[Pair]:
    """Read pairs in BLiMP's form, from one file or all .jsonl files of a folder."""
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    if not files:
        raise BermoError(f"{path} has no .jsonl file of minimal pairs.")
    return [pair for file in files for pair in _read_file(file)]


def _read_file(path: Path) -> list[Pair]:
    pairs = []
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if not line.strip():
            continue
        values = parse_json(path, line, number)
        if not isinstance(values, dict) or not {"sentence_good", "sentence_bad"} <= values.keys():
            raise BermoError(
                f"{path}, line {number}: a pair in BLiMP's form has sentence_good and sentence_bad, but got"
                f" {json.dumps(values)[:80]}."
            )
        kind = str(values.get("UID", path.stem))
        pairs.append(Pair(kind, str(values["sentence_good"]), str(values["sentence_bad"])))
    return pairs
