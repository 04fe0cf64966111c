"""Tables about scores: dense models on real data, probing."""

from typing import Any

from scripts.tables.numbers import gap, read, spread, table, with_interval

SEMANTIC = ("tense", "subject-number", "object-number", "coordination-inversion")
ENCODERS = {"gte": "gte-small", "mpnet": "mpnet-base", "minilm": "MiniLM-L6", "box": "the box"}
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


def cases(end: str) -> list[str]:
    """Return the cases of fine-tuned probing that end so and have all semantic tasks.

    right = lower-cased for the vocabulary; wrong = capitals kept, unknown to it; words = word content alone.
    """
    known = read("probing-gpu.json")["finetuned"]
    return [
        case
        for case, arms in known.items()
        if case.endswith(end) and (end == "words" or all(f"{task}-mix" in arms for task in SEMANTIC))
    ]


def encoder_of(case: str) -> str:
    """Return what a case's encoder is called."""
    return ENCODERS[case.partition("-")[0]]


def reading_of(case: str) -> str:
    """Return the reading of the paper's norm that a case has where it is not the usual one."""
    return "".join(case.split("-")[1:-1])


def plain_case(case: str) -> str:
    """Return the case that has the plain arms: the usual one, which no reading of the norm changes."""
    return case.replace(f"-{reading_of(case)}-", "-") if reading_of(case) else case


def semantic_gain(case: str) -> Any:
    """Return plain mean, mix mean and the paired difference over seeds of the semantic tasks."""
    known = read("probing-gpu.json")["finetuned"]
    scores = {
        arm: {task: {run["seed"]: run["last_score"] for run in runs[f"{task}-{arm}"]} for task in SEMANTIC}
        for arm, runs in (("plain", known[plain_case(case)]), ("mix", known[case]))
    }
    seeds = sorted(scores["plain"][SEMANTIC[0]].keys() & scores["mix"][SEMANTIC[0]].keys())
    means = {
        arm: [sum(scores[arm][task][seed] for task in SEMANTIC) / len(SEMANTIC) for seed in seeds]
        for arm in scores
    }
    gains = [mix - plain for plain, mix in zip(means["plain"], means["mix"], strict=True)]
    return spread(means["plain"]).mean, spread(means["mix"]).mean, spread(gains)


def unknown_share(case: str) -> float:
    """Return the share of unknown tokens in percent, the mean over the semantic tasks' training texts."""
    arms = read("probing-gpu.json")["finetuned"][plain_case(case)]
    shares = [arms[f"{task}-plain"][0]["unknown_share"] for task in SEMANTIC]
    return 100 * sum(shares) / len(shares)


def probing() -> str:
    """The mean of four semantic tasks, fine-tuned, plain beside mixed."""
    rows = []
    for case in (case for case in read("probing-gpu.json")["finetuned"] if not case.endswith("words")):
        plain, mix, gain = semantic_gain(case)
        cased = "lower case" if case.endswith("right") else "capitals kept"
        norm = f", norm {reading_of(case)}" if reading_of(case) else ""
        rows.append(
            [
                f"{encoder_of(case)}, {cased}{norm}",
                f"{unknown_share(case):.1f} %",
                f"{plain:.2f}",
                f"{mix:.2f}",
                gap(gain),
                PAPER_GAIN,
            ]
        )
    head = ["", "unknown tokens", "plain", "mix", "mix − plain (95 %)", "the paper"]
    return table(head, rows)
