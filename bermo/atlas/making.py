"""The commands of all methods, started one after the other or side by side, as far as the budget goes.

A method that fails is noted with its reason, and the others go on. One begins only if its commands and the
measurements that are still to come fit into what is left of the budget:

    its cost · the seconds of the dense training · seeds / jobs at a time + its exports and its bench

A training that reads texts without labels too takes as much longer as it has more rows.
"""

import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from bermo.atlas.chain import Chain
from bermo.atlas.methods import DENSE
from bermo.jobs.drive import Drive, Tell
from bermo.jobs.executor import Executor
from bermo.jobs.job import Failure, has_ended
from bermo.report.terminal import duration
from bermo.runs.statistics import read_run

SHIP_SECONDS = 15.0
"""About what deleting or exporting takes, most of it tracing, with checks on the CPU."""
Clock = Callable[[], float]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is made: the chains of each method, the dense one first."""

    chains: dict[str, list[Chain]]
    only_train: bool = False
    seconds: float | None = None
    """The budget."""
    measuring: float = 0.0
    """About how long one method is measured."""
    taught_rows: float = 1.0
    """How many times as many rows a training with texts without labels reads."""
    measured: Collection[str] = ()
    """Methods that need not be measured again."""


@dataclass(kw_only=True)
class Made:
    """How it went."""

    failed: dict[str, str] = field(default_factory=dict)
    """Methods of which a command failed, and why."""
    left_out: list[str] = field(default_factory=list)


class Making:
    """Drives the jobs of an atlas."""

    def __init__(
        self, plan: Plan, executor: Executor, retries: int, tell: Tell, clock: Clock = time.monotonic
    ) -> None:
        self.plan, self.tell, self.clock = plan, tell, clock
        self.room = executor.room
        self.executor = executor
        self.drive = Drive(executor, retries, tell)
        self.started = clock()
        self.begun: list[str] = []
        self.made = Made()

    def run(self) -> Made:
        """Make everything that fits; Ctrl-C stops all of it first."""
        waiting = deque(self.plan.chains)
        try:
            while waiting or self.drive.num_open:
                # The dense models come first and alone: what all else takes is told by them.
                while waiting and self.drive.num_open < (self.room if DENSE in self._over() else 1):
                    self._begin(waiting.popleft(), waiting)
                self.drive.step()
        finally:
            self.executor.close()
        for name, failure in self.drive.failed.items():
            self._note(name, failure)
        return self.made

    def _over(self) -> set[str]:
        opened = {name.partition("/")[0] for name in (*self.drive.waiting, *self.drive.under_way)}
        return set(self.begun) - opened

    def _begin(self, name: str, waiting: Collection[str]) -> None:
        """Add a method's jobs, if it fits, and say how long it takes and what comes after it."""
        chains, needed = self.plan.chains[name], self.estimate(name)
        left = self._left()
        if name != DENSE and left is not None and needed > max(left, 0.0):
            self.made.left_out.append(name)
            rest = f"{duration(left)} are left" if left > 0 else "nothing is left"
            self.tell(f"{name} is left out: about {duration(needed)}, and {rest}.")
            return
        self.begun.append(name)
        more = sum(map(self.estimate, waiting))
        about = "" if name == DENSE else f" (about {duration(needed)}, then {duration(more)} for the others)"
        self.tell(f"{len(self.begun)}. {name}: {chains[0].method.summary}{about}")
        for chain in chains:
            for job in chain.training if self.plan.only_train else chain.jobs:
                self.drive.add(job)

    def _left(self) -> float | None:
        """The seconds of the budget that are left once all that has begun is measured."""
        if self.plan.seconds is None:
            return None
        measuring = sum(map(self._measuring, self.begun))
        return self.plan.seconds - (self.clock() - self.started) - measuring

    def _measuring(self, name: str) -> float:
        """About how long a method is measured that may be measured already."""
        is_over = self.plan.only_train or name in self.plan.measured
        return 0.0 if is_over else self.plan.measuring

    def estimate(self, name: str) -> float:
        """About how many seconds a method takes, what is done already left out."""
        seconds = self._measuring(name)
        for chain in self.plan.chains[name]:
            jobs = chain.training if self.plan.only_train else chain.jobs
            for step, job in zip(chain.method.steps, jobs, strict=False):
                if not has_ended(job):
                    cost = getattr(step, "cost", None)
                    rows = self.plan.taught_rows if "--unlabelled" in job.words else 1.0
                    known = SHIP_SECONDS if cost is None else cost * rows * self._dense_seconds()
                    seconds += known / self.room
        return seconds

    def _dense_seconds(self) -> float:
        """The mean seconds of the dense trainings that are done."""
        known = [
            read_run(chain.jobs[0].folder, (chain.seed,)).seeds[0].own_seconds
            for chain in self.plan.chains[DENSE]
            if has_ended(chain.jobs[0])
        ]
        return sum(known) / len(known) if known else 0.0

    def _note(self, name: str, failure: Failure) -> None:
        """Keep the first reason of a method; what only lacked an earlier command says nothing new."""
        method = name.partition("/")[0]
        reason = " ".join(failure.last_lines[-1:]).removeprefix("bermo: ")
        self.made.failed.setdefault(method, f"{name} ended with {failure.code}: {reason}")
