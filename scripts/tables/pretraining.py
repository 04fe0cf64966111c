"""The tables of pretraining at equal compute: objectives, habits, ELMo's layers."""

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
HABITS = {
    "plain": "none",
    "short-first": "rows of 32 tokens in the first third of the time",
    "stacked": "three layers in the first half, then six",
    "average": "running mean of the weights",
    "layer-drop": "each layer left out in a tenth of the steps",
    "recompute": "layers computed again in the backward pass",
    "lamb": "1,024 rows a step, LAMB",
    "large-adamw": "1,024 rows a step, AdamW",
}
PROBES = {"tense": "tense", "tree-depth": "tree depth"}


def objectives() -> str:
    """Every objective: steps in the same time, likelihood, tasks, probes; mean and half of the interval."""
    by_arm, lines = _by_arm("objectives.json"), []
    for arm, name in ARMS.items():
        own = by_arm[arm]
        masked = [row["masked"] for row in own]
        tasks = [_cell([row["tasks"][task] for row in own]) for task in TASKS]
        probes = [_cell([row["probes"][probe]["best"] for row in own]) for probe in PROBES]
        likelihood = "–" if None in masked else _cell(masked, 2)
        lines.append([name, f"{own[0]['steps']:,}", likelihood, *tasks, *probes])
    return table(["objective", "steps", "likelihood", *TASKS.values(), *PROBES.values()], lines)


def habits() -> str:
    """Every habit: steps in the same time, likelihood and peak memory."""
    by_arm, lines = _by_arm("habits.json"), []
    for arm, name in HABITS.items():
        own = by_arm[arm]
        likelihood = _cell([row["likelihood"] for row in own], 2)
        memory = max(row["peak_memory_mib"] for row in own)
        lines.append([name, f"{own[0]['steps']:,}", likelihood, f"{memory:,.0f}"])
    return table(["habit", "steps", "likelihood", "peak MiB"], lines)


def elmo() -> str:
    """ELMo and a Transformer: each probe's best layer and mix, word senses; mean and half of the interval."""
    by_arm, lines = _by_arm("elmo.json"), []
    for task in by_arm["elmo"][0]["probes"]:
        cells = [
            _cell([row["probes"][task][way] for row in by_arm[arm]])
            for way in ("best", "mix")
            for arm in ("elmo", "transformer")
        ]
        lines.append([task.replace("-", " "), *cells])
    senses = [_cell([max(row["senses"].values()) for row in by_arm[arm]]) for arm in ("elmo", "transformer")]
    lines.append(["word senses (F1)", *senses, "–", "–"])
    return table(
        ["probe", "ELMo, best layer", "Transformer, best layer", "ELMo, mix", "Transformer, mix"], lines
    )


def _by_arm(name: str) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for row in read(name):
        found.setdefault(row["arm"], []).append(row)
    return found


def _cell(values: list[float], digits: int = 1) -> str:
    known = spread(values)
    assert known.interval is not None
    half = (known.interval[1] - known.interval[0]) / 2
    return f"{known.mean:.{digits}f} ± {half:.{digits}f}".replace("-", "−")
