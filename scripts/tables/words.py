"""Probes of words and trees on UD EWT and CoNLL-2003: one row a task, and trees by layer."""

from typing import Any

from scripts.tables.numbers import read, table

FILE = "words-cpu.json"
NAMES = {"upos": "part of speech", "deprel": "relation", "entity": "entity"}


def tasks() -> str:
    """The best layer of each task by dev, its test accuracy, its code, and where the task is solved."""
    rows = [
        _task(model, task, found)
        for model, of_model in read(FILE)["models"].items()
        for task, found in of_model.items()
        if task in NAMES
    ]
    head = ["encoder", "task", "rows (train / test)", "best layer", "test (95 %)", "selectivity"]
    return table([*head, "compression", "centre", "expected layer (95 %)"], rows)


def _task(model: str, task: str, found: Any) -> list[str]:
    best = max(range(len(found["dev"])), key=found["dev"].__getitem__)
    low, high = found["expected_interval"]
    return [
        model,
        NAMES[task],
        f"{found['rows'][0]:,} / {found['rows'][2]:,}",
        found["layers"][best],
        f"{found['accuracy'][best]:.1f} ({found['least'][best]:.1f} to {found['most'][best]:.1f})",
        f"{found['accuracy'][best] - found['control'][best]:.1f}",
        f"{found['compression'][best]:.1f}",
        f"{found['centre']:.2f}",
        f"{found['expected']:.2f} ({low:.2f} to {high:.2f})",
    ]


def trees() -> str:
    """UUAS by layer of every encoder that was measured, beside the baselines."""
    found = {name: tasks["tree"] for name, tasks in read(FILE)["models"].items() if "tree" in tasks}
    depth = max(len(trees["layers"]) for trees in found.values())
    rows = [
        [f"layer {layer}", *(_scores(_at(trees["scores"], layer)) for trees in found.values())]
        for layer in range(depth)
    ]
    rows.append(["linear chain", *(_scores(trees["chain"]) for trees in found.values())])
    best = [max(trees["untrained"], key=lambda item: item["uuas"]) for trees in found.values()]
    rows.append(["best untrained layer", *map(_scores, best)])
    return table(["UUAS (95 %); root", *found], rows)


def _at(scores: list[Any], layer: int) -> Any:
    return scores[layer] if layer < len(scores) else None


def _scores(scores: Any) -> str:
    if scores is None:
        return ""
    low, high = scores["uuas_interval"]
    root = "" if scores["root"] is None else f"; {scores['root']:.1f}"
    return f"{scores['uuas']:.1f} ({low:.1f} to {high:.1f}){root}"
