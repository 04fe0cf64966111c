"""A page of what pretrainings.py measured: numbers with intervals over seeds, and a verdict for each arm.

    python benchmarks/pretraining_tables.py OUT/objectives.json results/objectives.md

The name of the JSON file says what it holds. Intervals are of Student's t (95 %); a verdict is of differences
to the first arm, seed by seed.
"""

import json
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from bermo.runs.statistics import spread

Row = Mapping[str, Any]
Measure = Callable[[Row], float | None]
OF_WHAT = {
    "electra": "its own likelihood is the generator's, which is not kept",
    "elmo": "its own likelihood is of every word, from either side",
}


def measures(rows: Sequence[Row]) -> dict[str, Measure]:
    """Return what the rows were measured by, by name."""
    known: dict[str, Measure] = {"single tokens": lambda row: row["masked"]}
    for task in _names(rows, "tasks"):
        known[task] = lambda row, task=task: row["tasks"].get(task)  # type: ignore[misc]
    for task in _names(rows, "probes"):
        known[f"probe {task}"] = _best_of(task)
    return known


def page(name: str, rows: Sequence[Row]) -> str:
    """Write the page of a set."""
    match name:
        case "habits":
            known: dict[str, Measure] = {"likelihood": lambda row: row["likelihood"]}
            return _page("Habits of pretraining", HABITS_TEXT, rows, "plain", known)
        case "elmo":
            return _layers_page(rows)
        case _:
            return _page("Objectives of pretraining", OBJECTIVES_TEXT, rows, "mlm", measures(rows))


HABITS_TEXT = """One text, one shape, as many steps as fit into the same time on one GPU alone. The likelihood
is the mean log p of a masked token of held-out documents."""
OBJECTIVES_TEXT = """One text, one shape (ELMo: vectors of the same width), as many steps as fit into the same
time on one GPU alone. Single tokens: the mean log p of 15 % of the tokens of held-out documents, each masked
by itself, whatever was masked in training. Tasks: the validation score after fine-tuning. Probes: the test
accuracy of the frozen layer that is best on dev."""


def _page(title: str, text: str, rows: Sequence[Row], first: str, known: Mapping[str, Measure]) -> str:
    arms = sorted({row["arm"] for row in rows}, key=lambda arm: (arm != first, arm))
    seeds = sorted({row["seed"] for row in rows})
    head = ["arm", "steps", *known]
    said = f"{' '.join(text.split())} Seeds: {', '.join(map(str, seeds))}; mean and 95 % interval."
    lines = [f"# {title}", "", *_wrapped(said), ""]
    lines += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for arm in arms:
        own = [row for row in rows if row["arm"] == arm]
        cells = [_cell([measure(row) for row in own]) for measure in known.values()]
        steps = sorted({row["steps"] for row in own})
        lines.append(f"| {arm} | {steps[0]:,} | " + " | ".join(cells) + " |")
    lines += marked(rows)
    count = len(known) * (len(arms) - 1)
    lines += ["", "## Verdicts", ""]
    lines += _wrapped(f"Of {count} differences about {count / 20:.0f} would leave 0 out by chance alone.")
    lines.append("")
    for arm in arms[1:]:
        lines += _wrapped(f"- {verdict(arm, rows, first, known)}", "  ")
    return "\n".join(lines) + "\n"


def marked(rows: Sequence[Row]) -> list[str]:
    """Name the arms whose runs ended without having learned, with the cause of the first of them."""
    causes: dict[str, list[str]] = {}
    for row in rows:
        if row["diverged"]:
            causes.setdefault(row["arm"], []).append(row["diverged"])
    lines = [f"{arm}: {len(found)} runs are marked as diverged: {found[0]}." for arm, found in causes.items()]
    return [line for text in lines for line in ["", *_wrapped(text)]]


def verdict(arm: str, rows: Sequence[Row], first: str, known: Mapping[str, Measure]) -> str:
    """Say in one sentence where an arm is better or worse than the first one beyond chance."""
    found: dict[str, list[str]] = {"better": [], "worse": [], "no difference shown": [], "not measured": []}
    for name, measure in known.items():
        gaps = _gaps(arm, rows, first, measure)
        if len(gaps) < 2:
            found["not measured"].append(name + (" (one seed)" if gaps else ""))
            continue
        over = spread(gaps)
        low, high = over.interval or (over.mean, over.mean)
        text = f"{name} ({over.mean:+.2f}, {low:.2f} to {high:.2f})"
        found["better" if low > 0 else "worse" if high < 0 else "no difference shown"].append(text)
    parts = [f"{kind} in {', '.join(names)}" for kind, names in found.items() if names]
    note = f"; {OF_WHAT[arm]}" if arm in OF_WHAT else ""
    return f"{arm} against {first}: {'; '.join(parts)}{note}."


def _gaps(arm: str, rows: Sequence[Row], first: str, measure: Measure) -> list[float]:
    """Return the difference to the first arm for each seed that both have."""
    values = {(row["arm"], row["seed"]): measure(row) for row in rows}
    seeds = sorted({row["seed"] for row in rows})
    pairs = [(values.get((arm, seed)), values.get((first, seed))) for seed in seeds]
    return [own - other for own, other in pairs if own is not None and other is not None]


LAYERS_TEXT = """ELMo (a character CNN and two layers of LSTMs either way) and a Transformer of three
layers, both with states of 224 units, on one text, as many steps as fit into the same time on one GPU
alone. Probes: test accuracy on a frozen layer, and on the learned mix of all. Senses: F1 of the nearest
neighbour's, on Senseval-2 after SemCor. Anisotropy: the mean cosine of two words of different texts.
Layer 0 is what goes into the first layer."""


def _layers_page(rows: Sequence[Row]) -> str:
    """Write what each layer of both kinds of encoder knows: probes, word senses, anisotropy."""
    seeds = sorted({row["seed"] for row in rows})
    said = f"{' '.join(LAYERS_TEXT.split())} Seeds: {', '.join(map(str, seeds))}; mean and 95 % interval."
    lines = ["# What the layers of ELMo and of a Transformer know", "", *_wrapped(said), ""]
    arms = sorted({row["arm"] for row in rows}, reverse=True)
    own = {arm: [row for row in rows if row["arm"] == arm] for arm in arms}
    for arm in arms:
        first = own[arm][0]
        lines.append(f"- {arm}: {first['steps']:,} steps, {first['num_parameters']:,} weights")
    known = by_layer(rows)
    names = sorted(
        {layer for row in rows for find in known.values() for layer in find(row) if len(layer) == 1}
    )
    head = ["measure", "encoder", *(f"layer {name}" for name in names), "mix"]
    lines += ["", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for title, find in known.items():
        for arm in arms:
            cells = [_cell([find(row).get(name) for row in own[arm]]) for name in [*names, "mix"]]
            lines.append(f"| {title} | {arm} | " + " | ".join(cells) + " |")
    lines += [*marked(rows), "", "## Verdicts", ""]
    count = 2 * len(_names(rows, "probes")) + 1
    said = "Best: of the best layer, for probes the one that is best on dev. Of"
    lines += _wrapped(f"{said} {count} differences about {count / 20:.0f} would leave 0 out by chance alone.")
    lines.append("")
    verdicts = {f"best {task}": _best_of(task) for task in _names(rows, "probes")}
    verdicts["best senses"] = lambda row: max(row["senses"].values()) if row["senses"] else None
    verdicts |= {f"mix {task}": _mix_of(task) for task in _names(rows, "probes")}
    return "\n".join([*lines, *_wrapped(f"- {verdict('elmo', rows, 'transformer', verdicts)}", "  ")]) + "\n"


def by_layer(rows: Sequence[Row]) -> dict[str, Callable[[Row], Mapping[str, float]]]:
    """Return what is known of each layer, by its name there, and of the mix as "mix"."""
    known: dict[str, Callable[[Row], Mapping[str, float]]] = {}
    for task in _names(rows, "probes"):
        known[task] = lambda row, task=task: _probed(row, task)  # type: ignore[misc]
    known["senses"] = lambda row: row["senses"] or {}
    known["anisotropy"] = lambda row: row["anisotropy"] or {}
    return known


def _probed(row: Row, task: str) -> Mapping[str, float]:
    found = row["probes"].get(task)
    return {} if found is None else found["layers"] | {"mix": found["mix"]}


def _best_of(task: str) -> Measure:
    return lambda row: row["probes"].get(task, {}).get("best")


def _mix_of(task: str) -> Measure:
    return lambda row: row["probes"].get(task, {}).get("mix")


def _cell(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    over = spread(known)
    if over.interval is None:
        return f"{over.mean:.2f}"
    return f"{over.mean:.2f} ({over.interval[0]:.2f} to {over.interval[1]:.2f})"


def _wrapped(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(text, 118, subsequent_indent=indent, break_on_hyphens=False)


def _names(rows: Sequence[Row], group: str) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row[group]))


def main() -> None:
    source, target = map(Path, sys.argv[1:])
    rows = json.loads(source.read_text(encoding="utf-8"))
    target.write_text(page(source.stem, rows), encoding="utf-8")
    print(target.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
