"""Tables about scores: dense models on real data, probing."""

from statistics import fmean
from typing import Any

from bermo.recipes.probing import PAPER
from scripts.tables.numbers import gap, read, signed, spread, table, with_interval

SEMANTIC = ("tense", "subject-number", "object-number", "coordination-inversion")
ENCODERS = {"gte": "gte-small", "mpnet": "mpnet-base", "minilm": "MiniLM-L6", "box": "the box"}


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
    """Return the cases of fine-tuned probing that end so and have a semantic task.

    right = lower-cased for the vocabulary; wrong = capitals kept, unknown to it; words = word content alone.
    """
    known = read("probing-gpu.json")["finetuned"]
    return [case for case in known if case.endswith(end) and (end == "words" or tasks_of(case))]


def encoder_of(case: str) -> str:
    """Return what a case's encoder is called."""
    return ENCODERS[case.partition("-")[0]]


def reading_of(case: str) -> str:
    """Return the reading of the paper's norm that a case has where it is not the usual one."""
    return "".join(case.split("-")[1:-1])


def plain_case(case: str) -> str:
    """Return the case that has the plain arms: the usual one, which no reading of the norm changes."""
    return case.replace(f"-{reading_of(case)}-", "-") if reading_of(case) else case


def tasks_of(case: str) -> tuple[str, ...]:
    """Return the semantic tasks of a case of which both arms were run."""
    known = read("probing-gpu.json")["finetuned"]
    plain, mix = known.get(plain_case(case), {}), known[case]
    return tuple(task for task in SEMANTIC if f"{task}-plain" in plain and f"{task}-mix" in mix)


def named_tasks(case: str) -> str:
    """Say of which tasks a mean is."""
    tasks = tasks_of(case)
    return "mean of four tasks" if tasks == SEMANTIC else f"mean of {' and '.join(tasks)}"


def paper_gain(tasks: tuple[str, ...]) -> str:
    """Return the paper's gain over some tasks."""
    return signed(fmean(PAPER[task][1] - PAPER[task][0] for task in tasks))


PAPER_GAIN = paper_gain(SEMANTIC)


def semantic_gain(case: str) -> Any:
    """Return plain mean, mix mean and the paired difference over seeds of the semantic tasks."""
    known, tasks = read("probing-gpu.json")["finetuned"], tasks_of(case)
    scores = {
        arm: {task: {run["seed"]: run["last_score"] for run in runs[f"{task}-{arm}"]} for task in tasks}
        for arm, runs in (("plain", known[plain_case(case)]), ("mix", known[case]))
    }
    seeds = sorted(scores["plain"][tasks[0]].keys() & scores["mix"][tasks[0]].keys())
    means = {
        arm: [sum(each[task][seed] for task in tasks) / len(tasks) for seed in seeds]
        for arm, each in scores.items()
    }
    gains = [mix - plain for plain, mix in zip(means["plain"], means["mix"], strict=True)]
    return spread(means["plain"]).mean, spread(means["mix"]).mean, spread(gains)


def unknown_share(case: str) -> float:
    """Return the share of unknown tokens in percent, the mean over the semantic tasks' training texts."""
    arms = read("probing-gpu.json")["finetuned"][plain_case(case)]
    shares = [arms[f"{task}-plain"][0]["unknown_share"] for task in tasks_of(case)]
    return 100 * sum(shares) / len(shares)


def probing() -> str:
    """The mean of the semantic tasks, fine-tuned, plain beside mixed."""
    rows = []
    for case in (case for case in read("probing-gpu.json")["finetuned"] if not case.endswith("words")):
        plain, mix, gain = semantic_gain(case)
        cased = "lower case" if case.endswith("right") else "capitals kept"
        norm = f", norm {reading_of(case)}" if reading_of(case) else ""
        few = "" if tasks_of(case) == SEMANTIC else f", {named_tasks(case)}"
        rows.append(
            [
                f"{encoder_of(case)}, {cased}{norm}{few}",
                f"{unknown_share(case):.1f} %",
                f"{plain:.2f}",
                f"{mix:.2f}",
                gap(gain),
                paper_gain(tasks_of(case)),
            ]
        )
    head = ["", "unknown tokens", "plain", "mix", "mix − plain (95 %)", "the paper"]
    return table(head, rows)
