"""The table of pretraining's objectives at equal compute."""

from typing import Any

from scripts.tables.numbers import read, spread, table

ARMS = {
    "mlm": "masked tokens",
    "word": "masked whole words",
    "phrase": "masked phrases",
    "span": "masked spans",
    "structbert": "StructBERT",
    "electra": "ELECTRA",
    "xlnet": "XLNet",
    "elmo": "ELMo",
    "inner-mix": "masked tokens, inner mix",
}
TASKS = {"sst2": "SST-2", "cola": "CoLA", "mrpc": "MRPC", "stsb": "STS-B"}
PROBES = {"tense": "tense", "tree-depth": "tree depth"}


def objectives() -> str:
    """Every objective: steps in the same time, likelihood, tasks, probes; mean and half of the interval."""
    by_arm: dict[str, list[Any]] = {}
    for row in read("objectives.json"):
        by_arm.setdefault(row["arm"], []).append(row)
    lines = []
    for arm, name in ARMS.items():
        own = by_arm[arm]
        masked = [row["masked"] for row in own]
        tasks = [_cell([row["tasks"][task] for row in own]) for task in TASKS]
        probes = [_cell([row["probes"][probe]["best"] for row in own]) for probe in PROBES]
        likelihood = "–" if None in masked else _cell(masked, 2)
        lines.append([name, f"{own[0]['steps']:,}", likelihood, *tasks, *probes])
    return table(["objective", "steps", "likelihood", *TASKS.values(), *PROBES.values()], lines)


def _cell(values: list[float], digits: int = 1) -> str:
    known = spread(values)
    assert known.interval is not None
    half = (known.interval[1] - known.interval[0]) / 2
    return f"{known.mean:.{digits}f} ± {half:.{digits}f}".replace("-", "−")
