"""How a verdict follows from the numbers beside it.

    a gain is claimed      every interval above 0: holds; every one below the claim: does not, or is smaller
                           on what is named then; some above 0: it depends on what is named; else not shown
    no loss is claimed     no interval below 0: holds; all below the paper's own losses: does not; else part
    seeds are claimed      more plain seeds dead than mixed, by more than chance: holds; fewer plain ones dead
                           than the paper's share, by the whole interval: does not; else not shown
    sooner is claimed      an interval above 0 after as many epochs: shown there; else not shown

Of ten comparisons and more, one in twenty may differ by chance: whatever is claimed, so many do not count.
Each encoder is judged by itself; where one says that a claim holds and another that it does not, it depends.
"""

import re
from collections.abc import Callable, Sequence

from scripts.tables.contrasts import Contrast
from scripts.tables.counts import chance_of_more, share_interval
from scripts.tables.evidence import Evidence

HOLDS, FAILS, OPEN = "holds", "does not hold", "not shown"
SAME = "holds: no difference shown"
SMALLER = "a smaller gain"
LARGEST_LOSS = -0.9
"""Points that the mix loses somewhere in the paper, which calls that about as good."""
CHANCE = 0.05
"""How likely a difference of counts may be by chance where it is taken for one."""
MANY = 10
"""Comparisons from which on one that differs is what chance gives."""


def encoders(rows: Sequence[Evidence]) -> list[str]:
    """Return the encoders of some rows, in their order."""
    return list(dict.fromkeys(one.encoder for one in rows))


def by_encoder(rows: Sequence[Evidence], judge: Callable[[Sequence[Evidence]], str]) -> str:
    """Judge each encoder: one word where they agree, else which says what."""
    said: dict[str, list[str]] = {}
    for name in encoders(rows):
        said.setdefault(judge([one for one in rows if one.encoder == name]), []).append(name)
    if len(said) == 1:
        return next(iter(said))
    words = "; ".join(f"{word} on {listed(names)}" for word, names in said.items())
    is_split = FAILS in said and any(word.startswith(HOLDS) for word in said)
    return f"depends on the encoder: {words}" if is_split else words


def gain(claim: float) -> Callable[[Sequence[Evidence]], str]:
    """Return how a claimed gain of so much is judged."""
    return lambda rows: gain_verdict(rows, claim)


def gain_verdict(rows: Sequence[Evidence], claim: float) -> str:
    """Judge a claimed gain by the intervals."""
    known = [one.interval for one in rows if one.interval]
    if all(low > 0 for low, _ in known):
        return HOLDS
    if all(low <= 0 and high < claim for low, high in known):
        return FAILS
    shown, others = (
        [one.data for one in rows if one.interval and (one.interval[0] > 0) == is_so]
        for is_so in (True, False)
    )
    if shown and all(high < claim for _, high in known):
        return f"{SMALLER} ({listed(shown)})"
    return f"depends (shown: {listed(shown)}; not shown: {listed(others)})" if shown else OPEN


def listed(names: Sequence[str]) -> str:
    """Write names once each, as a sentence does; names with commas outside brackets are kept apart."""
    each = list(dict.fromkeys(names))
    comma = "; " if any("," in re.sub(r"\(.*?\)", "", name) for name in each) else ", "
    return f"{comma.join(each[:-1])} and {each[-1]}" if each[1:] else each[0]


def differing(rows: Sequence[Evidence]) -> list[Evidence]:
    """Return the rows whose interval leaves 0 out."""
    return [one for one in rows if one.interval and not one.interval[0] <= 0 <= one.interval[1]]


def no_loss_verdict(rows: Sequence[Evidence]) -> str:
    """Judge the claim that the mix is about as good."""
    known = [one.interval for one in rows if one.interval]
    worse, better = sum(high < 0 for _, high in known), sum(low > 0 for low, _ in known)
    if len(differing(rows)) <= by_chance(rows):
        return SAME
    if all(high < LARGEST_LOSS for _, high in known):
        return FAILS
    counts = [f"{count} {word}" for count, word in ((worse, "worse"), (better, "better")) if count]
    return f"{'holds in part' if worse else HOLDS}: {', '.join(counts)} of {len(known)} comparisons"


def by_chance(rows: Sequence[Evidence]) -> int:
    """Return how many comparisons may differ where there is no difference: one in twenty, of many."""
    count = sum(one.interval is not None for one in rows)
    return max(1, round(0.05 * count)) if count >= MANY else 0


def sooner_verdict(rows: Sequence[Evidence]) -> str:
    """Judge the claim that the mix needs fewer epochs: it would be ahead at some length of training."""
    ahead = [one for one in differing(rows) if one.interval and one.interval[0] > 0]
    is_shown = len(ahead) > by_chance(rows)
    return f"shown in {len(ahead)} of {len(rows)} comparisons" if is_shown else OPEN


def ratio_verdict(rows: Sequence[Evidence], least: float, claim: float) -> str:
    """Judge the claim that plain keeps `claim` times as many weights; `least` would be a gain at all."""
    known = [one.interval for one in rows if one.interval]
    if known and all(low >= least for low, _ in known):
        return HOLDS
    return FAILS if known and all(high < claim for _, high in known) else OPEN


def seeds_word(one: Contrast, claim: float) -> str:
    """Judge one training: by the paper a share `claim` of the plain seeds dies, and no mixed one."""
    if one.chance <= CHANCE:
        return HOLDS
    return FAILS if share_interval(one.plain.dead, one.plain.num_seeds)[1] < claim else OPEN


def seeds_verdict(contrasts: Sequence[Contrast], claim: float) -> str:
    """Judge a claim about which seeds live: one word, or which encoders and tasks say which."""
    words = [(seeds_word(one, claim), one) for one in contrasts]
    said = [word for word in (HOLDS, FAILS, OPEN) if any(word == own for own, _ in words)]
    if len(said) == 1:
        return said[0]
    parts = "; ".join(f"{word} on {listed(_places(words, word))}" for word in said)
    return f"depends: {parts}" if said[:2] == [HOLDS, FAILS] else parts


def _places(words: Sequence[tuple[str, Contrast]], wanted: str) -> list[str]:
    """Name the encoders that have a word; with their tasks where another of them has another word."""
    places = []
    for encoder in dict.fromkeys(one.encoder for word, one in words if word == wanted):
        own = [(word, one) for word, one in words if one.encoder == encoder]
        data = list(dict.fromkeys(one.data for word, one in own if word == wanted))
        is_whole = all(word == wanted for word, _ in own)
        comma = "; " if any("," in name for name in data) else ", "
        places.append(encoder if is_whole else f"{encoder} ({comma.join(data)})")
    return places


def over_encoders(known: Sequence[Contrast]) -> str:
    """Count the seeds of all encoders together, where each has too few to judge it by itself."""
    dead, of_plain, others, of_mix = (
        sum(getattr(getattr(one, arm), key) for one in known)
        for arm in ("plain", "mix")
        for key in ("dead", "num_seeds")
    )
    if len(known) < 2 or chance_of_more(dead, of_plain, others, of_mix) > CHANCE:
        return ""
    return (
        f" On 20,000 rows {dead} of {of_plain} plain seeds of all encoders die, and {others or 'none'} of"
        f" {of_mix} mixed ones: together that is more than chance gives, of most of them alone it is not."
    )


def cure_verdict(contrasts: Sequence[Contrast], claim: float) -> str:
    """Judge the claim that nothing but the mix keeps seeds alive, for each encoder and ranking."""
    words = [seeds_word(one, claim) for one in contrasts]
    needed = [
        f"{one.encoder} ({one.case})" for word, one in zip(words, contrasts, strict=True) if word == HOLDS
    ]
    if FAILS not in words:
        return HOLDS if needed and OPEN not in words else OPEN
    return (
        f"depends on the ranking and the start: the mix is needed on {listed(needed)}, not elsewhere"
        if needed
        else FAILS
    )
