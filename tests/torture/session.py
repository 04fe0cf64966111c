"""Trials in a row: what is tried next, by how many workers, for how long, and what came of it."""

import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random

from tests.torture.client import Server, compile_shim
from tests.torture.damage import DAMAGES
from tests.torture.faults import DISKS, KILLS, Fault, Sort, draw
from tests.torture.kinds import Kind
from tests.torture.table import Results
from tests.torture.trials import (
    Normal,
    Outcome,
    Place,
    damage_finished,
    damage_stopped,
    interrupt,
    run_normally,
)
from tests.torture.world import make_world

MOST_FAULTS = 4
"""Faults that one run is hit by before it may end."""
SHARE_OF_KILLS, SHARE_OF_DISKS = 0.8, 0.1
"""Of the trials; the rest damages files."""
SLOW_WEIGHT = 0.03
KILL_AT_WRITE = KILLS[0]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is tortured, for how long, and by how many workers."""

    kinds: Sequence[Kind]
    seed: int
    seconds: float
    most_trials: int | None = None
    only_trial: int | None = None
    workers: int = 1


@dataclass
class Session:
    """What the workers share."""

    plan: Plan
    home: Path
    shim: Path | None
    results: Results = field(default_factory=Results)
    normals: dict[str, Normal] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    errors: list[BaseException] = field(default_factory=list)

    def normal(self, place: Place, kind: Kind) -> Normal:
        """The uninterrupted run of a kind, made when it is first asked for."""
        with self.lock:
            if kind.name not in self.normals:
                self.normals[kind.name] = run_normally(place, kind)
            return self.normals[kind.name]


def memory_folder() -> Path | None:
    """A folder in memory, where there is one: a disk's own time would be most of a trial."""
    folder = Path("/dev/shm")
    return folder if folder.is_dir() and os.access(folder, os.W_OK) else None


def torture(plan: Plan, home: Path) -> Results:
    """Make trials until the time is over, and return what came of them."""
    session = Session(plan, home, compile_shim(home))
    if session.shim is None:
        print("No preloaded library here: faults come at random times only.", file=sys.stderr)
    with ExitStack() as stack:
        servers = [stack.enter_context(Server(session.shim, home, n)) for n in range(plan.workers)]
        make_world(home / "world", servers[0], plan.kinds)
        numbers = _numbers(plan)
        threads = []
        for index, server in enumerate(servers):
            place = Place(server, home / f"worker-{index}", home / "world")
            place.home.mkdir()
            threads.append(threading.Thread(target=_work, args=(session, place, numbers)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if session.errors:
        raise session.errors[0]
    return session.results


def _numbers(plan: Plan) -> Iterator[int]:
    """The numbers of the trials, until the time is over."""
    if plan.only_trial is not None:
        yield plan.only_trial
        return
    end = time.monotonic() + plan.seconds
    for number in count(1):
        if time.monotonic() > end or (plan.most_trials is not None and number > plan.most_trials):
            return
        yield number


def _work(session: Session, place: Place, numbers: Iterator[int]) -> None:
    try:
        while not session.errors:
            with session.lock:
                number = next(numbers, None)
            if number is None:
                return
            kind, outcome, what = _try(session, place, number)
            with session.lock:
                session.results.add(number, kind.name, outcome, what)
    except BaseException as error:
        session.errors.append(error)


def _try(session: Session, place: Place, number: int) -> tuple[Kind, Outcome, str]:
    """Make the trial of a number: it alone, and the seed, decide what is done."""
    random = Random(f"{session.plan.seed}-{number}")
    kinds = session.plan.kinds
    kind = random.choices(kinds, [SLOW_WEIGHT if kind.is_slow else 1.0 for kind in kinds])[0]
    normal = session.normal(place, kind)
    chosen, has_shim = random.random(), session.shim is not None
    if chosen < SHARE_OF_KILLS or (chosen < SHARE_OF_KILLS + SHARE_OF_DISKS and not has_shim):
        return kind, *_interrupt(place, kind, normal, [s for s in KILLS if s.is_timed or has_shim], random)
    if chosen < SHARE_OF_KILLS + SHARE_OF_DISKS:
        return kind, *_interrupt(place, kind, normal, DISKS, random)
    how = random.choice(list(DAMAGES))
    if kind.readers and (not has_shim or random.random() < 0.7):
        reader = random.choice(kind.readers)
        return kind, damage_finished(place, kind, normal, reader, how, random), " ".join(reader)
    fault = draw(KILL_AT_WRITE, normal.calls, normal.seconds, random)
    return kind, damage_stopped(place, kind, normal, fault, how, random), str(fault)


def _interrupt(
    place: Place, kind: Kind, normal: Normal, sorts: Sequence[Sort], random: Random
) -> tuple[Outcome, str]:
    faults: list[Fault] = [
        draw(random.choice(sorts), normal.calls, normal.seconds, random)
        for _ in range(random.randint(1, MOST_FAULTS))
    ]
    return interrupt(place, kind, normal, faults), "; ".join(map(str, faults))
