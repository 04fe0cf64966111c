"""Tables about scores: dense models on real data, probing."""

from typing import Any

from scripts.tables.numbers import gap, read, spread, table, with_interval

SEMANTIC = ("tense", "subject-number", "object-number", "coordination-inversion")
CASES = {"gte-right": "gte-small", "gte-wrong": "gte-small", "box-right": "the box", "box-wrong": "the box"}
"""Arms of probing-gpu.json: right = lower-cased for the vocabulary; wrong = capitals kept, unknown to it."""
PAPER_GAIN = "+2.65"
"""The paper's gain over the same four tasks."""


def core() -> str:
    """gte-small dense, plain and mixed, on three tasks."""
    runs = read("core-gpu.json")["runs"]
    tasks = {
        "sst2": ("SST-2, accuracy", 3),
        "conll2003": ("CoNLL-2003 valid, entity F1", 3),
        "squad": ("SQuAD 1.1, F1", 2),
    }
    rows = []
    for task, (title, epochs) in tasks.items():
        cells = []
        for arm in ("plain", "mix"):
            own = sorted(
                (run for run in runs if (run["task"], run["arm"]) == (task, arm)), key=lambda run: run["seed"]
            )
            cells.append(_scores([run["score"] for run in own]))
        seeds = ", ".join(str(seed) for seed in sorted({run["seed"] for run in runs if run["task"] == task}))
        rows.append([title, str(epochs), seeds, *cells])
    return table(["task", "epochs", "seeds", "plain", "mix (across)"], rows)


def _scores(scores: list[float]) -> str:
    each = ", ".join(f"{score:.2f}" for score in scores)
    return each if len(scores) == 1 else f"{each}; mean {with_interval(scores)}"


def semantic_gain(case: str) -> Any:
    """Return plain mean, mix mean and the paired difference over seeds of the semantic tasks."""
    arms = read("probing-gpu.json")["finetuned"][case]
    scores = {
        arm: {task: {run["seed"]: run["last_score"] for run in arms[f"{task}-{arm}"]} for task in SEMANTIC}
        for arm in ("plain", "mix")
    }
    seeds = sorted(scores["plain"][SEMANTIC[0]])
    means = {
        arm: [sum(scores[arm][task][seed] for task in SEMANTIC) / len(SEMANTIC) for seed in seeds]
        for arm in scores
    }
    gains = [mix - plain for plain, mix in zip(means["plain"], means["mix"], strict=True)]
    return spread(means["plain"]).mean, spread(means["mix"]).mean, spread(gains)


def unknown_share(case: str) -> float:
    """Return the share of unknown tokens in percent, the mean over the semantic tasks' training texts."""
    arms = read("probing-gpu.json")["finetuned"][case]
    shares = [arms[f"{task}-plain"][0]["unknown_share"] for task in SEMANTIC]
    return 100 * sum(shares) / len(shares)


def probing() -> str:
    """The mean of four semantic tasks, fine-tuned, plain beside mixed."""
    rows = []
    for case, encoder in CASES.items():
        plain, mix, gain = semantic_gain(case)
        cased = "lower case" if case.endswith("right") else "capitals kept"
        rows.append(
            [
                f"{encoder}, {cased}",
                f"{unknown_share(case):.1f} %",
                f"{plain:.2f}",
                f"{mix:.2f}",
                gap(gain),
                PAPER_GAIN,
            ]
        )
    head = ["", "unknown tokens", "plain", "mix", "mix − plain (95 %)", "the paper"]
    return table(head, rows)
