"""Search over options with optuna: TPE suggests, a trial is the folder of a run, bad ones are stopped early.

    Bergstra et al. 2011, "Algorithms for hyper-parameter optimization" (the tree-structured Parzen estimator)

The journal (a file of JSON lines) says which values were suggested and what came of them; everything
else is in the folders. A trial that a kill left under way is found again by its number, and goes on. The
sampler is seeded by the numbers of the trial and of the option, so a search that goes on suggests what it
would have.
"""

import math
from pathlib import Path

import optuna
from optuna.storages import JournalStorage
from optuna.trial import FrozenTrial, Trial, TrialState

from bermo.files import reading
from bermo.jobs.drive import Drive, Over, Tell
from bermo.jobs.executor import Executor
from bermo.jobs.job import Failure, Job, make_job
from bermo.jobs.journal import REMEDY, Journal
from bermo.jobs.space import Parameter, Range, Value, set_values
from bermo.runs.results import SeedResult
from bermo.runs.rows import METRICS_FILE, read_rows
from bermo.runs.statistics import read_run
from bermo.spec import RunSpec

JOURNAL, NAME = "journal.jsonl", "bermo"
RANDOM_TRIALS = 10
"""Drawn evenly before the sampler has seen enough."""
MOST_PARAMETERS = 100
"""Seeds that a trial has, one for each of its values."""
FULL_TRIALS = 5
"""Finished before one is compared with them and stopped early."""


class Search:
    """A study of optuna's and the jobs of its trials."""

    def __init__(self, spec: RunSpec, space: tuple[Parameter, ...], out: Path) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.spec, self.space, self.out = spec, space, out
        self.study = open_study(out / JOURNAL)
        self.under_way: dict[str, Trial] = {}

    def run(self, executor: Executor, num_trials: int, retries: int, tell: Tell) -> dict[str, Failure]:
        """Run trials until there are so many, and return those that failed; Ctrl-C stops them first."""
        now = Drive(executor, retries, tell)
        try:
            for known in self.study.get_trials(deepcopy=False, states=[TrialState.RUNNING]):
                self._add(now, Trial(self.study, known._trial_id))
            while now.num_open or len(self.study.trials) < num_trials:
                while now.num_open < executor.room and len(self.study.trials) < num_trials:
                    self._add(now, self.study.ask())
                over = now.step()
                self._look(now, tell)
                if over is not None:
                    self._tell(over)
        finally:
            executor.close()
        return now.failed

    def job(self, trial: Trial | FrozenTrial) -> Job:
        """Return the job of a trial whose values are known."""
        name = f"trial-{trial.number:04d}"
        return make_job(name, set_values(self.spec, self.space, trial.params), self.out / name)

    def best(self) -> Job | None:
        """Return the job of the best trial, if one is done."""
        done = self.study.get_trials(deepcopy=False, states=[TrialState.COMPLETE])
        return self.job(self.study.best_trial) if done else None

    def _add(self, now: Drive, trial: Trial) -> None:
        for index, parameter in enumerate(self.space):
            seed = trial.number * MOST_PARAMETERS + index
            self.study.sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=RANDOM_TRIALS)
            suggest(trial, parameter)
        job = self.job(trial)
        self.under_way[job.name] = trial
        now.add(job)

    def _look(self, now: Drive, tell: Tell) -> None:
        """Report new scores of the trials under way, and stop those that are worse than most were then."""
        for job in list(now.under_way.values()):
            trial = self.under_way[job.name]
            known = len(self.study.trials[trial.number].intermediate_values)
            for index, value in enumerate(scores(job)[known:], start=known + 1):
                trial.report(value, index)
                if job.name not in now.given_up and trial.should_prune():
                    tell(f"{job.name}: {value:.2f} at evaluation {index} is below the median; stopped.")
                    now.give_up(job)

    def _tell(self, over: Over) -> None:
        trial = self.under_way.pop(over.job.name)
        if over.how == "done":
            result = read_run(over.job.folder, over.job.seeds)
            self.study.tell(trial, math.fsum(map(reached, result.seeds)) / len(result.seeds))
        else:
            self.study.tell(trial, state=TrialState.PRUNED if over.how == "stopped" else TrialState.FAIL)


def open_study(path: Path) -> optuna.Study:
    """Return the study that a journal holds, or a new one."""
    pruner = optuna.pruners.MedianPruner(n_startup_trials=FULL_TRIALS)
    journal = Journal(path)
    with reading(path, REMEDY):
        try:
            storage = JournalStorage(journal)
            # Not load_if_exists, which writes a line each time.
            if journal.logs:
                return optuna.load_study(study_name=NAME, storage=storage, pruner=pruner)
            return optuna.create_study(study_name=NAME, storage=storage, pruner=pruner, direction="maximize")
        except (AssertionError, optuna.exceptions.OptunaError) as error:
            raise ValueError(str(error)) from error


def suggest(trial: Trial, parameter: Parameter) -> Value:
    """Return the trial's value of a parameter, which is drawn once."""
    if not isinstance(parameter, Range):
        return trial.suggest_categorical(parameter.name, parameter.words)
    if parameter.is_whole:
        low, high = int(parameter.low), int(parameter.high)
        return trial.suggest_int(parameter.name, low, high, log=parameter.is_log)
    return trial.suggest_float(parameter.name, parameter.low, parameter.high, log=parameter.is_log)


def scores(job: Job) -> list[float]:
    """Return the scores of the first seed's evaluations so far; that before the first step is none."""
    rows = read_rows(job.folder / f"seed-{job.seeds[0]}" / METRICS_FILE)
    main = next((name for row in rows for name in row if name.startswith("valid/")), "")
    return [float(row[main]) for row in rows if row.get(main) is not None and row["step"] > 0]


def reached(seed: SeedResult) -> float:
    """Return what a seed's training gave: of one that diverged, where it ended."""
    return seed.last_score if seed.diverged else seed.score
