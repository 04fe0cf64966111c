"""Trials in a row: what is tried next, by how many workers, for how long, and what came of it."""

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from random import Random
from typing import Literal

from tests.torture.client import Server, compile_shim
from tests.torture.damage import DAMAGES
from tests.torture.faults import DISKS, KILLS, Sort, draw
from tests.torture.kinds import Kind
from tests.torture.table import Results
from tests.torture.trials import (
    Broken,
    Known,
    Normal,
    Outcome,
    Place,
    damage_finished,
    damage_stopped,
    interrupt,
    run_normally,
)
from tests.torture.world import make_world

MOST_FAULTS = 6
"""Faults that one run is hit by before it may end."""
Sorts = Literal["kills", "disks", "damage"]
SHARES: Mapping[Sorts, float] = {"kills": 0.8, "disks": 0.1, "damage": 0.1}
"""How often each sort of fault is tried."""
SLOW_WEIGHT = 0.05
"""How often a slow kind is tried, for one trial of any other."""
KILL_AT_WRITE = KILLS[0]
ROOM = 4 << 30
"""Bytes of a folder in memory that are enough for the trials of many workers."""
A_WHILE = 10.0
"""Seconds between two lines of how far it is."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is tortured, for how long, and by how many workers."""

    kinds: Sequence[Kind]
    seed: int
    seconds: float
    most_trials: int | None = None
    only_trial: int | None = None
    sorts: Sequence[Sorts] = tuple(SHARES)
    workers: int = 1


@dataclass
class Session:
    """What the workers share."""

    plan: Plan
    shim: Path | None
    results: Results
    numbers: Iterator[int]
    lock: threading.Lock = field(default_factory=threading.Lock)
    is_over: bool = False
    errors: list[BaseException] = field(default_factory=list)


def memory_folder() -> Path | None:
    """A folder in memory with room, where there is one: a disk's own time would be most of a trial."""
    folder = Path("/dev/shm")
    has_room = folder.is_dir() and shutil.disk_usage(folder).free > ROOM
    return folder if has_room and os.access(folder, os.W_OK) else None


def torture(
    plan: Plan, home: Path, results: Results | None = None, tell: Callable[[Results], None] = lambda _: None
) -> Results:
    """Make trials until the time is over or Ctrl-C, and count them, after those that `results` has.

    `tell` is called with what was counted every few seconds, and at the end.
    """
    results = Results() if results is None else results
    sitting = results.sit(plan.seed, plan.workers)
    session = Session(plan, compile_shim(home), results, _numbers(plan, sitting.last))
    if session.shim is None:
        print("No preloaded library here: faults come at random times only.", file=sys.stderr)
    with ExitStack() as stack:
        servers = [stack.enter_context(Server(session.shim, home, n)) for n in range(plan.workers)]
        for server in servers:
            server.wait_until_ready()
        make_world(home / "world", servers[0], plan.kinds)
        known = Known()
        places = [Place(s, home / f"worker-{n}", home / "world", known) for n, s in enumerate(servers)]
        _work_together(session, places, tell)
    if session.errors:
        raise session.errors[0]
    return results


def _work_together(session: Session, places: Sequence[Place], tell: Callable[[Results], None]) -> None:
    """Let every place make trials until all are done; after Ctrl-C they end those under way."""
    threads = [threading.Thread(target=_work, args=(session, place)) for place in places]
    results, seed = session.results, session.plan.seed
    start, before = time.monotonic(), results.sittings[seed].seconds
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        try:
            _wait(threads)
        except KeyboardInterrupt:
            session.is_over = True
        with session.lock:
            seconds = round(before + time.monotonic() - start, 1)
            results.sittings[seed] = replace(results.sittings[seed], seconds=seconds)
            tell(results)


def _wait(threads: Sequence[threading.Thread]) -> None:
    """Wait for a while, or until all have ended."""
    end = time.monotonic() + A_WHILE
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))


def _numbers(plan: Plan, last: int) -> Iterator[int]:
    """The numbers of the trials after the last one, until the time is over."""
    if plan.only_trial is not None:
        yield plan.only_trial
        return
    end = time.monotonic() + plan.seconds
    for number in count(last + 1):
        if time.monotonic() > end or (plan.most_trials is not None and number > plan.most_trials):
            return
        yield number


def _work(session: Session, place: Place) -> None:
    try:
        place.home.mkdir()
        while not session.is_over:
            with session.lock:
                number = next(session.numbers, None)
            if number is None:
                return
            kind, outcome = _try(session, place, number)
            with session.lock:
                session.results.add(session.plan.seed, number, kind.name, outcome)
    except BaseException as error:
        session.errors.append(error)
        session.is_over = True


def _try(session: Session, place: Place, number: int) -> tuple[Kind, Outcome]:
    """Make the trial of a number: it alone, and the seed, decide what is done."""
    random = Random(f"{session.plan.seed}-{number}")
    kinds = session.plan.kinds
    kind = random.choices(kinds, [SLOW_WEIGHT if kind.is_slow else 1.0 for kind in kinds])[0]
    try:
        return kind, _torture(session, place, kind, random)
    except Broken as broken:
        return kind, Outcome(end="lost", what="nothing was done", why=str(broken))


def _torture(session: Session, place: Place, kind: Kind, random: Random) -> Outcome:
    normal = run_normally(place, kind)
    sorts, has_shim = session.plan.sorts, session.shim is not None
    chosen = random.choices(sorts, [SHARES[sort] for sort in sorts])[0]
    if chosen == "kills" or (chosen == "disks" and not has_shim):
        return _interrupt(place, kind, normal, [s for s in KILLS if s.is_timed or has_shim], random)
    if chosen == "disks":
        return _interrupt(place, kind, normal, DISKS, random)
    how = random.choice(list(DAMAGES))
    if kind.readers and (not has_shim or random.random() < 0.7):
        return damage_finished(place, kind, normal, random.choice(kind.readers), how, random)
    fault = draw(KILL_AT_WRITE, normal.calls, normal.seconds, random)
    return damage_stopped(place, kind, normal, fault, how, random)


def _interrupt(place: Place, kind: Kind, normal: Normal, sorts: Sequence[Sort], random: Random) -> Outcome:
    num_faults = random.randint(1, MOST_FAULTS)
    faults = [draw(random.choice(sorts), normal.calls, normal.seconds, random) for _ in range(num_faults)]
    return interrupt(place, kind, normal, faults)
