"""Searches: a space is read, trials are runs, bad ones stop early, a killed search goes on."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from optuna.trial import TrialState

from bermo.cli import main
from bermo.errors import BermoError
from bermo.figures.data import read_findings
from bermo.jobs.executor import Ended
from bermo.jobs.job import Job
from bermo.jobs.search import Search
from bermo.jobs.search_figures import search_findings, unbeaten
from bermo.jobs.space import Choice, Range, read_space, set_values
from bermo.methods.finetune import finetune
from bermo.spec import RunSpec, replace_in
from tests.specs import TINY

QUICK = replace_in(
    replace(TINY, prune=RunSpec().prune), train={"epochs": 1.0}, data={"limit": 16, "max_length": 16}
)
TEXT = "lr=1e-5..1e-3,warmup=0.0..0.5,mix=none|across"
SPACE = read_space(TEXT, QUICK)


def test_a_space_is_read_with_the_types_of_its_options() -> None:
    assert (
        Range(name="lr", dotted="train.lr", low=1e-5, high=1e-3, is_whole=False),
        Range(name="warmup", dotted="train.warmup", low=0.0, high=0.5, is_whole=False),
        Choice(name="mix", dotted="model.mix.kind", words=("none", "across")),
    ) == SPACE
    assert [parameter.is_log for parameter in SPACE if isinstance(parameter, Range)] == [True, False]
    spec = set_values(QUICK, SPACE, {"lr": 3e-4, "warmup": 0.25, "mix": "none"})
    assert (spec.train.lr, spec.train.warmup, spec.model.mix.kind) == (3e-4, 0.25, "none")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("lr", "is no part of a space"),
        ("lr=1", "nothing to choose"),
        ("lrr=1..2", 'Did you mean "lr"'),
        ("mix=1..2", "takes no number"),
        ("lr=2..1", "the smaller number first"),
        ("mix=none|acros", 'Did you mean "across"'),
        ("warmup=0.0..7", "warmup must be"),
        ("lr=1e-5..1e-4,lr=1..2", "each once"),
        ("", "each once"),
    ],
)
def test_a_space_that_cannot_be_is_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(BermoError, match=sentence):
        read_space(text, QUICK)


class Here:
    """An executor that trains in this process, one job at a time, and may be killed before one ends."""

    room = 1

    def __init__(self, dies_at: int | None = None) -> None:
        self.queue: list[Job] = []
        self.started, self.dies_at = 0, dies_at

    def submit(self, job: Job) -> None:
        self.queue.append(job)

    def wait(self, seconds: float) -> Ended | None:
        job = self.queue.pop()
        self.started += 1
        if self.started == self.dies_at:
            raise KeyboardInterrupt
        assert main(list(job.words)) == 0
        return Ended(job=job, code=0)

    def stop(self, job: Job) -> None: ...

    def close(self) -> None: ...


def run(out: Path, executor: Here, trials: int = 5) -> Search:
    out.mkdir(exist_ok=True)
    search = Search(QUICK, SPACE, out)
    search.run(executor, trials, 0, lambda text: None)
    return search


def test_a_killed_search_goes_on_with_the_trials_that_it_would_have_had(
    tmp_path: Path, shallow_box: Path
) -> None:
    whole = run(tmp_path / "whole", Here())
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "killed", Here(dies_at=3))
    again = run(tmp_path / "killed", Here())
    assert [trial.params for trial in again.study.trials] == [trial.params for trial in whole.study.trials]
    assert [trial.value for trial in again.study.trials] == [trial.value for trial in whole.study.trials]
    best = whole.best()
    assert best is not None
    by_hand = finetune(set_values(QUICK, SPACE, whole.study.best_trial.params), tmp_path / "hand")
    assert by_hand.seeds[0].score == whole.study.best_value
    # More may be asked for later.
    assert len(run(tmp_path / "whole", Here(), 6).study.trials) == 6
    titles = [section.title for section in search_findings(whole).sections]
    assert titles == ["History", "Importance", "Score and speed", "Trials"]


class Fake(Here):
    """Writes scores in place of trainings: each is worse than the one before, at every evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.stopped: list[str] = []
        self.looks: dict[str, int] = {}

    def wait(self, seconds: float) -> Ended | None:
        job = self.queue[-1]
        look = self.looks[job.name] = self.looks.get(job.name, 0) + 1
        number = int(job.name.removeprefix("trial-"))
        folder = job.folder / "seed-1"
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "metrics.jsonl").open("a") as file:
            file.write(json.dumps({"step": look, "valid/accuracy": 90.0 - number + look}) + "\n")
        if job.name in self.stopped:
            self.queue.pop()
            return Ended(job=job, code=75)
        if look < 3:
            return None
        self.queue.pop()
        return Ended(job=job, code=1)

    def stop(self, job: Job) -> None:
        self.stopped.append(job.name)


def test_a_trial_that_is_worse_than_the_median_is_stopped_at_a_look(tmp_path: Path) -> None:
    search = Search(QUICK, SPACE, tmp_path)
    # Five trials that ran to their end, as the pruner wants to have seen.
    for number in range(5):
        trial = search.study.ask()
        for look in (1, 2, 3):
            trial.report(90.0 - number + look, look)
        search.study.tell(trial, 93.0 - number)
    executor = Fake()
    search.run(executor, 6, 0, lambda text: None)
    assert executor.stopped == ["trial-0005"]
    assert search.study.trials[5].state == TrialState.PRUNED
    assert executor.looks["trial-0005"] == 2


def test_the_front_holds_what_nothing_beats_in_both() -> None:
    assert unbeaten([1.0, 2.0, 3.0, 2.5], [90.0, 80.0, 85.0, 85.0]) == (0, 2)
    assert unbeaten([1.0], [math.nan]) == (0,)


def test_the_verb_refuses_another_space_in_the_same_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "search.json").write_text(json.dumps({"space": "lr=1e-5..1e-4", "spec": {}}))
    words = ["search", "--task", "box/tense", "--space", TEXT, "--out", str(tmp_path)]
    assert main(words) == 2
    assert "was started with other options" in capsys.readouterr().err


def test_findings_are_read_back(tmp_path: Path) -> None:
    from bermo.figures.data import write_findings

    findings = search_findings(Search(QUICK, SPACE, tmp_path))
    write_findings(tmp_path / "figures.json", findings)
    assert read_findings(tmp_path / "figures.json") == findings
