"""The page of a search: its history, what each parameter matters, and the front of score and speed."""

import math
import warnings

import optuna
from optuna.trial import FrozenTrial, TrialState

from bermo.data.own_metric import is_function
from bermo.figures.data import Bars, Figure, Findings, Lines, Points, Section, Table
from bermo.jobs.search import Search
from bermo.runs.statistics import read_run

FEWEST_FOR_IMPORTANCE = 4
NAMES = {TrialState.COMPLETE: "done", TrialState.PRUNED: "stopped early", TrialState.FAIL: "failed"}


def search_findings(search: Search) -> Findings:
    """Turn the trials of a search into sections."""
    trials = search.study.trials
    done = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    counts = {word: sum(trial.state == state for trial in trials) for state, word in NAMES.items()}
    facts = {word: str(count) for word, count in counts.items()}
    sections = (
        Section(title="History", text=_HISTORY, figures=_history(search, done)),
        Section(title="Importance", text=_IMPORTANCE, figures=_importance(search, done)),
        Section(title="Score and speed", text=_FRONT, figures=_front(search, done)),
        Section(title="Trials", text="", figures=(_table(search, trials),)),
    )
    kept = tuple(section for section in sections if section.figures)
    return Findings(title=f"Search in {search.out.name}", facts=facts, sections=kept)


_HISTORY = "The score of each trial that ran to its end, and the best up to then."
_IMPORTANCE = (
    "How much of the difference between good trials and the others a parameter explains (PED-ANOVA, Watanabe"
    " et al. 2023); they sum to 1. Few trials say little."
)
_FRONT = "Rows a second while it was trained. On the line are the trials that none beats in both."


def _history(search: Search, done: list[FrozenTrial]) -> tuple[Figure, ...]:
    if len(done) < 2:
        return ()
    values = [trial.value or 0.0 for trial in done]
    best = [max(values[: index + 1]) for index in range(len(values))]
    return (
        Lines(
            title="Score of each trial",
            x_label="trial",
            y_label=_score_label(search),
            x=tuple(float(trial.number) for trial in done),
            series={"score of the trial": tuple(values), "best so far": tuple(best)},
            is_joined=True,
        ),
    )


def _score_label(search: Search) -> str:
    """Name the axis of scores: percent, but for a function of the user's own."""
    return "score" if is_function(search.spec.data.metric) else "score (%)"


def _importance(search: Search, done: list[FrozenTrial]) -> tuple[Figure, ...]:
    if len(done) < FEWEST_FOR_IMPORTANCE or len({trial.value for trial in done}) < 2:
        return ()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        evaluator = optuna.importance.PedAnovaImportanceEvaluator()
        shares = optuna.importance.get_param_importances(search.study, evaluator=evaluator)
    return (
        Bars(
            title="Importance of each parameter",
            x_label="parameter",
            y_label="share",
            names=tuple(shares),
            series={"importance": tuple(shares.values())},
        ),
    )


def _front(search: Search, done: list[FrozenTrial]) -> tuple[Figure, ...]:
    if len(done) < 2:
        return ()
    scores = [trial.value or 0.0 for trial in done]
    speeds = [_speed(search, trial) for trial in done]
    return (
        Points(
            title="Score against speed",
            x_label="rows a second in training",
            y_label=_score_label(search),
            x=tuple(speeds),
            y=tuple(scores),
            names=tuple(str(trial.number) for trial in done),
            groups=("trial",) * len(done),
            front=unbeaten(speeds, scores),
        ),
    )


def _speed(search: Search, trial: FrozenTrial) -> float:
    job = search.job(trial)
    seeds = read_run(job.folder, job.seeds).seeds
    return math.fsum(seed.rows_per_second for seed in seeds) / len(seeds)


def unbeaten(speeds: list[float], scores: list[float]) -> tuple[int, ...]:
    """Return the points that no other beats in both, the fastest last."""
    order = sorted(range(len(speeds)), key=lambda k: (speeds[k], scores[k]))
    kept: list[int] = []
    for index in reversed(order):
        if not kept or scores[index] > scores[kept[-1]]:
            kept.append(index)
    return tuple(reversed(kept))


def _table(search: Search, trials: list[FrozenTrial]) -> Table:
    names = [parameter.name for parameter in search.space]
    ranked = sorted(trials, key=lambda trial: (trial.state != TrialState.COMPLETE, -(trial.value or 0.0)))
    rows = tuple(
        (
            search.job(trial).name,
            NAMES.get(trial.state, "under way"),
            _last(trial),
            *(trial.params[name] for name in names),
        )
        for trial in ranked
        if len(trial.params) == len(names)
    )
    note = "The score of a trial that was stopped early is that of its last evaluation."
    return Table(title="Every trial", columns=("trial", "state", "score", *names), rows=rows, note=note)


def _last(trial: FrozenTrial) -> float | None:
    if trial.state == TrialState.COMPLETE:
        return trial.value
    looks = trial.intermediate_values
    return looks[max(looks)] if looks else None
