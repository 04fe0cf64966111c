"""How a verdict follows from the numbers beside it.

    a gain is claimed      every interval above 0: holds; every one below the claim: does not; else not shown
    no loss is claimed     no interval below 0: holds; all below the paper's own losses: does not; else part
    seeds are claimed      the same on every encoder: holds or does not; else it depends on the encoder
    sooner is claimed      an interval above 0 at some length of training: shown there; else not shown

Of ten comparisons and more, one in twenty may differ by chance: whatever is claimed, so many do not count.
Each encoder is judged by itself; where one says that a claim holds and another that it does not, it depends.
"""

from collections.abc import Callable, Sequence

from scripts.tables.evidence import Evidence

HOLDS, FAILS, OPEN = "holds", "does not hold", "not shown"
SAME = "holds: no difference shown"
LARGEST_LOSS = -0.9
"""Points that the mix loses somewhere in the paper, which calls that about as good."""
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
    words = "; ".join(f"{word} on {' and '.join(names)}" for word, names in said.items())
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
    return FAILS if all(low <= 0 and high < claim for low, high in known) else OPEN


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
    return f"shown at {len(ahead)} of {len(rows)} lengths of training" if is_shown else OPEN


def ratio_verdict(rows: Sequence[Evidence], least: float, claim: float) -> str:
    """Judge the claim that plain keeps `claim` times as many weights; `least` would be a gain at all."""
    known = [one.interval for one in rows if one.interval]
    if known and all(low >= least for low, _ in known):
        return HOLDS
    return FAILS if known and all(high < claim for _, high in known) else OPEN


def seeds_verdict(is_as_claimed: dict[str, bool]) -> str:
    """Judge a claim about which seeds live."""
    if len(set(is_as_claimed.values())) > 1:
        yes, no = (
            ", ".join(name for name, is_so in is_as_claimed.items() if is_so == want)
            for want in (True, False)
        )
        return f"depends on the encoder: holds on {yes}, not on {no}"
    return HOLDS if all(is_as_claimed.values()) else FAILS


def dies_plain_only(rows: Sequence[Evidence]) -> bool:
    """Tell whether a plain seed died and no mixed one did."""
    plain, mix = ([one for one in rows if ("plain" in one.what) == want] for want in (True, False))
    return any(one.dead for one in plain) and not any(one.dead for one in mix)


def cure_verdict(rows: Sequence[Evidence]) -> str:
    """Judge the claim that nothing but the mix keeps seeds alive, for each encoder and ranking."""
    ways: dict[tuple[str, str], list[Evidence]] = {}
    for one in rows:
        ways.setdefault(
            (one.encoder, one.what.replace("plain", "").replace("mix", "").strip(", ")), []
        ).append(one)
    needed = [f"on {encoder} ({how})" for (encoder, how), own in ways.items() if dies_plain_only(own)]
    if not needed:
        return FAILS
    if len(needed) == len(ways):
        return HOLDS
    return f"depends on the ranking and the rate: the mix is needed {' and '.join(needed)}, not elsewhere"
