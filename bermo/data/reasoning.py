"""Minimal pairs about facts, numbers and who did what to whom, drawn in balanced couples.

    agreement          The cat near the dogs behind the hens sleeps.     … sleep.
    role reversal      The baker sliced the cake.                        The cake sliced the baker.
    largest, smallest  Of 3, 17 and 8, the largest is 17.                … is 3.
    addition           4 plus 5 is 9.                                    4 plus 5 is 11.
    capitals, is-a     The capital of France is Paris.                   … is Rome.
    opposites          The opposite of hot is cold.                      … is dark.

A couple gives each answer once as the right one and once as the wrong one, so that a model that prefers the
more frequent word is right in half of them. The control of a pair is its two answers alone. Numbers beyond
those that stand in most texts (100, sums of 20) are a kind of their own: how far what is known reaches.
"""

from collections.abc import Callable, Mapping
from functools import partial
from random import Random

from bermo.data.pairs import Pair
from bermo.data.sentences import facts, grammar, lexicon
from bermo.data.sentences.grammar import NUMBERS, pick

FAR = 100
SMALL_SUM = 20


def _couple(kind: str, start: str, other: str, first: str, second: str) -> list[Pair]:
    """Return two pairs: `start` ends with the first answer, `other` with the second."""
    alone = [f"{word[:1].upper()}{word[1:]}." for word in (first, second)]
    return [
        Pair(kind, f"{start} {first}.", f"{start} {second}.", (alone[0], alone[1])),
        Pair(kind, f"{other} {second}.", f"{other} {first}.", (alone[1], alone[0])),
    ]


def _agreement(rng: Random, kind: str, distractors: int) -> list[Pair]:
    """Nouns of the other number come between the subject and its verb; both numbers with the same nouns."""
    frame = pick(rng, lexicon.INTRANSITIVE)
    nouns = [pick(rng, lexicon.NOUNS[pick(rng, frame.subjects)])]
    nouns += [pick(rng, lexicon.NOUNS[pick(rng, ("person", "animal"))]) for _ in range(distractors)]
    near = [pick(rng, ("near", "beside", "behind")) for _ in range(distractors)]
    starts, verbs = [], []
    for number in NUMBERS:
        forms = [
            noun.singular if (number == "singular") == (k == 0) else noun.plural
            for k, noun in enumerate(nouns)
        ]
        words = ["The", forms[0]]
        for place, noun in zip(near, forms[1:], strict=True):
            words += [place, "the", noun]
        starts.append(" ".join(words))
        verbs.append(grammar.words(grammar.verb(frame.verb, "present", number))[0])
    return _couple(kind, starts[0], starts[1], verbs[0], verbs[1])


def _roles(rng: Random, kind: str) -> list[Pair]:
    """Subject and object change places: the words are the same, and so is their frequency."""
    frame = pick(rng, [frame for frame in lexicon.TRANSITIVE if not set(frame.subjects) & set(frame.objects)])
    subject = pick(rng, lexicon.NOUNS[pick(rng, frame.subjects)]).singular
    what = pick(rng, lexicon.NOUNS[pick(rng, frame.objects)]).singular
    past = frame.verb.past
    return [Pair(kind, f"The {subject} {past} the {what}.", f"The {what} {past} the {subject}.")]


def _extremes(rng: Random, kind: str, low: int, high: int) -> list[Pair]:
    numbers = rng.sample(range(low, high), 3)
    start = f"Of {numbers[0]}, {numbers[1]} and {numbers[2]}, the"
    ends = str(max(numbers)), str(min(numbers))
    return _couple(kind, f"{start} largest is", f"{start} smallest is", *ends)


def _sums(rng: Random, kind: str, low: int, high: int) -> list[Pair]:
    """Two sums near each other: each is the wrong answer of the other."""
    one = rng.randrange(low, high - 3)
    other = one + rng.randrange(1, 4)
    starts = []
    for total in (one, other):
        part = rng.randrange(1, total)
        starts.append(f"{part} plus {total - part} is")
    return _couple(kind, starts[0], starts[1], str(one), str(other))


def _facts(rng: Random, kind: str, known: Mapping[str, str], start: str) -> list[Pair]:
    one, other = rng.sample(sorted(known), 2)
    if known[one] == known[other] or {one, known[one]} & {other, known[other]}:
        return _facts(rng, kind, known, start)
    answers = [f"{article(word)} {word}" if kind == "is-a" else word for word in (known[one], known[other])]
    starts = [grammar.spell(start.format(article(word), word).split()) for word in (one, other)]
    return _couple(kind, starts[0], starts[1], answers[0], answers[1])


def article(word: str) -> str:
    """Return "a" or "an"."""
    return "an" if word[0] in "aeiou" else "a"


KINDS: Mapping[str, Callable[[Random, str], list[Pair]]] = {
    "agreement": partial(_agreement, distractors=0),
    "agreement, one distractor": partial(_agreement, distractors=1),
    "agreement, two distractors": partial(_agreement, distractors=2),
    "role reversal": _roles,
    "largest, smallest": partial(_extremes, low=1, high=FAR),
    "largest, smallest beyond 100": partial(_extremes, low=FAR, high=10 * FAR),
    "addition": partial(_sums, low=2, high=SMALL_SUM),
    "addition beyond 20": partial(_sums, low=SMALL_SUM + 1, high=2 * FAR),
    "capitals": partial(_facts, known=facts.CAPITALS, start="The capital of {1} is"),
    "is-a": partial(_facts, known=facts.KINDS, start="{0} {1} is"),
    "opposites": partial(_facts, known=facts.OPPOSITES, start="The opposite of {1} is"),
}


def draw_reasoning(count: int, seed: int = 0) -> list[Pair]:
    """Draw `count` pairs of each kind, an even number, all different."""
    pairs: dict[Pair, None] = {}
    for kind, draw in KINDS.items():
        rng, goal = Random(f"{kind}-{seed}"), len(pairs) + count
        while len(pairs) < goal:
            couple = draw(rng, kind)
            if not any(pair in pairs for pair in couple):
                pairs |= dict.fromkeys(couple)
    return list(pairs)
