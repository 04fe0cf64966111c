"""The table of the encoder in the box: before it had a teacher, and after."""

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
    "taught by gte-small, 5 minutes more (the box)",
)


def judged() -> str:
    """Last evaluations of three seeds, mean and half of the interval."""
    rows = read("box-gpu.json")["judged"]
    lines = []
    for encoder in ENCODERS:
        found = [
            spread([row["last"] for row in rows if (row["encoder"], row["task"]) == (encoder, task)])
            for task in TASKS
        ]
        lines.append([encoder, *(f"{known.mean:.1f} ± {_half(known.interval):.1f}" for known in found)])
    return table(["pretrained on", *TASKS.values()], lines)


def _half(interval: tuple[float, float] | None) -> float:
    assert interval is not None
    return (interval[1] - interval[0]) / 2
