"""A claim's numbers as a figure: what was compared, a dot or bar for each encoder, its 95 % interval.

Differences are dots on level whiskers, scores bars.
"""

from bermo.figures.data import Bars
from scripts.tables.claim import Claim
from scripts.tables.evidence import Evidence
from scripts.tables.judged import encoders

NO_ENDS = (float("nan"), float("nan"))
COLOURS = ("gte-small", "mpnet-base", "the box", "MiniLM-L6", "the paper")
"""What has the same colour in all figures of claims."""
LONGEST = 7.0
"""Points from zero at which whiskers of differences are cut, so that the others can be seen."""


def figure_of(claim: Claim) -> Bars:
    """Draw the rows of a claim that have an interval; the paper's own number stands beside them."""
    rows = [one for one in claim.evidence if one.ends is not None or one.interval is not None]
    names = tuple(dict.fromkeys(_label(one) for one in rows))
    series: dict[str, tuple[float | None, ...]] = {}
    errors = {}
    for encoder in encoders(rows):
        own = {_label(one): one for one in rows if one.encoder == encoder}
        series[encoder] = tuple(_mean(own.get(name)) for name in names)
        errors[encoder] = tuple(_ends(own.get(name)) for name in names)
    if claim.paper_values:
        series["the paper"] = tuple(_paper(claim, name) for name in names)
    known = [end for one in rows if one.interval for end in one.interval]
    is_cut = any(abs(end) > LONGEST for end in known)
    return Bars(
        title=f"Claim: {claim.title}",
        x_label="",
        y_label=claim.unit,
        names=names,
        series=series,
        errors=errors,
        note="Whiskers: 95 % intervals over seeds."
        + (" One that is longer than the axis ends with an arrow." if is_cut else ""),
        is_level=bool(known),
        colours={name: COLOURS.index(name) for name in series if name in COLOURS},
        limits=(max(-LONGEST, min(known)), min(LONGEST, max(known))) if is_cut else None,
    )


def _label(one: Evidence) -> str:
    words = one.what.removeprefix("mix − plain, ").removesuffix(", mix − plain")
    words = words.removesuffix(": taught − untaught").partition(": kept")[0]
    return words.removesuffix(", dense").replace(", 20,000 rows", " part").replace("movement by ", "by ")


def _paper(claim: Claim, name: str) -> float | None:
    return next((value for words, value in claim.paper_values.items() if words in name), None)


def _mean(one: Evidence | None) -> float | None:
    return None if one is None else float(one.value.partition(" ")[0].replace("−", "-"))


def _ends(one: Evidence | None) -> tuple[float, float]:
    known = None if one is None else one.ends or one.interval
    return NO_ENDS if known is None else (round(known[0], 4), round(known[1], 4))
