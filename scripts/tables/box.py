"""The table of the encoder in the box: how it was pretrained, and the rate at which it is fine-tuned."""

from itertools import product

from scripts.tables.numbers import read, spread, table

TASKS = {
    "sst2": "SST-2",
    "cola": "CoLA (Matthews)",
    "rte": "RTE",
    "mrpc": "MRPC (mean of accuracy and F1)",
    "stsb": "STS-B (mean of the correlations)",
}
ENCODERS = (
    "masked words alone",
    "then taught by mpnet-base, 8 minutes",
    "then taught by gte-small, 8 minutes",
    "taught by gte-small, 5 minutes more",
    "A: then StructBERT's order, 2 minutes, and gte-small, 9 minutes",
    "B: A, then ELECTRA's replaced words, 9 minutes",
    "B, then gte-small, 4 minutes",
    "C: A, then replaced words beside gte-small, 9 minutes",
    "C, then masked words beside gte-small, 3 minutes",
    "D: C for 12 minutes more, then a head alone",
    "0.7 of A and 0.3 of B, weight by weight",
    "E: 0.5 of A and 0.5 of B, weight by weight",
    "0.3 of A and 0.7 of B, weight by weight",
    "F: D, then pairs of MNLI",
    "0.5 of D and 0.5 of F, weight by weight",
    "G: D, then pairs of QQP, then of MNLI",
    "0.5 of G before MNLI and 0.5 of G, weight by weight",
    "H: E, then pairs of MNLI",
    "0.5 of E and 0.5 of H, weight by weight (the box)",
)


def judged() -> str:
    """Last evaluations of three seeds, mean and half of the interval, for each encoder and rate."""
    rows = read("box-gpu.json")["judged"]
    known_rates = sorted({row["rate"] for row in rows})
    lines = []
    for encoder, rate in product(ENCODERS, known_rates):
        own = [row for row in rows if (row["encoder"], row["rate"]) == (encoder, rate)]
        if not own:
            continue
        found = [spread([row["last"] for row in own if row["task"] == task]) for task in TASKS]
        cells = [f"{known.mean:.1f} ± {_half(known.interval):.1f}" for known in found]
        lines.append([encoder, f"{rate:.0e}".replace("e-0", "e-"), *cells])
    return table(["pretrained on", "rate", *TASKS.values()], lines)


def _half(interval: tuple[float, float] | None) -> float:
    assert interval is not None
    return (interval[1] - interval[0]) / 2
