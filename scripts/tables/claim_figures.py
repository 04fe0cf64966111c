"""A claim's numbers as a figure: what was compared, a dot or bar for each encoder, its 95 % interval."""

from bermo.figures.data import Bars
from scripts.tables.claim import Claim
from scripts.tables.evidence import Evidence
from scripts.tables.judged import encoders

NO_ENDS = (float("nan"), float("nan"))


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
    if claim.paper_value is not None:
        series["the paper"] = tuple(claim.paper_value for _ in names)
    return Bars(
        title=f"Claim: {claim.title}",
        x_label="",
        y_label=claim.unit,
        names=names,
        series=series,
        errors=errors,
        note="Whiskers: 95 % intervals over seeds.",
    )


def _label(one: Evidence) -> str:
    words = one.what.removesuffix(", mix − plain").removesuffix(": taught − untaught").partition(": kept")[0]
    return words.replace(", 20,000 rows", " part").replace("movement by ", "by ")


def _mean(one: Evidence | None) -> float | None:
    return None if one is None else float(one.value.partition(" ")[0].replace("−", "-"))


def _ends(one: Evidence | None) -> tuple[float, float]:
    known = None if one is None else one.ends or one.interval
    return NO_ENDS if known is None else (round(known[0], 4), round(known[1], 4))
