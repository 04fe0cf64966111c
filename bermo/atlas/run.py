"""The whole atlas: commands, measurements, rows, and the model that is picked.

    prepare -> making (train, shrink, export of every method and seed) -> measure -> bench -> rows -> pick

Everything is in folders: what is done is not done again.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

import torch
from transformers.utils.logging import disable_progress_bar

from bermo.atlas.baselines import BASELINES
from bermo.atlas.chain import Chain, make_chain
from bermo.atlas.checks import Rows
from bermo.atlas.joining import (
    baseline_row,
    dense_of,
    method_row,
    open_baseline,
    open_student,
    student_row,
    with_gpu,
    with_speed,
)
from bermo.atlas.making import Made, Making, Plan
from bermo.atlas.measure import MEASURED, measure
from bermo.atlas.methods import DENSE, METHODS
from bermo.atlas.prepare import make_base
from bermo.atlas.rows import Atlas, Row
from bermo.atlas.spec import AtlasSpec
from bermo.atlas.speed import BENCH_FILE, Speed, Timer, baseline_speed
from bermo.atlas.students import STUDENTS
from bermo.crashes import describe, was_interrupted
from bermo.errors import BermoError
from bermo.files import copy_folder, whole_folder
from bermo.jobs.executor import Executor
from bermo.machine import processor, usable_cores
from bermo.printing import number_of
from bermo.progress import Display
from bermo.runs.trained import open_trained
from bermo.spec import RunSpec

LOADING_SECONDS = 15.0
"""About how long two models take to load in processes of their own, and one to answer the rows."""
TURN_SECONDS = 0.7
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Which methods, of what, into which folder."""

    names: tuple[str, ...]
    spec: AtlasSpec
    run: RunSpec
    out: Path
    retries: int = 0


class AtlasRun:
    """One call of the command."""

    def __init__(self, asked: Asked, rows: Rows, display: Display) -> None:
        self.asked, self.rows, self.display = asked, rows, display
        self.base = make_base(asked.run, rows, asked.out, asked.spec.unlabelled)
        self.failed: dict[str, str] = {}
        self.noisy: list[str] = []

    def make(self, executor: Executor) -> Made:
        """Run the commands of all methods."""
        spec = self.asked.spec
        only_train = spec.only == "train"
        chains = {name: self._chains(name) for name in self.asked.names if name in METHODS}
        plan = Plan(
            chains={name: known for name, known in chains.items() if known[0].training or not only_train},
            only_train=only_train,
            seconds=spec.seconds,
            measuring=self._measuring_seconds(),
            taught_rows=len(self.rows.taught) / len(self.rows.train),
            measured=[name for name, known in chains.items() if self._is_measured(known)],
        )
        made = Making(plan, executor, self.asked.retries, self.display.tell).run()
        self.failed |= made.failed
        return made

    def score(self, at_once: int = 1) -> None:
        """Score what was made, which a bench on an idle machine need not do; several models at once."""
        chains = [chain for chains in self._made(self.asked.names).values() for chain in chains]
        # The answers of the dense models come first: all others are compared with them.
        first = [chain for chain in chains if at_once == 1 or chain.method.name == DENSE]
        for chain in first:
            self._guarded(chain.method.name, measure, chain, self.base)
        others = [chain for chain in chains if chain not in first]
        if others:
            self._score_side_by_side(others, at_once)
        seeds = [chain.seed for chain in first if chain.method.name == DENSE]
        for name in self.asked.names:
            if name not in METHODS and seeds:
                self._guarded(name, self._row_without_encoder, name, seeds)

    def _score_side_by_side(self, chains: Sequence[Chain], at_once: int) -> None:
        """Score models in processes, each with its share of the cores."""
        threads = max(1, usable_cores() // at_once)
        with ProcessPoolExecutor(at_once, get_context("spawn"), disable_progress_bar) as pool:
            found = [pool.submit(measure, chain, self.base, threads) for chain in chains]
            for chain, future in zip(chains, found, strict=True):
                self._guarded(chain.method.name, future.result)

    def measure(self, left_out: Sequence[str]) -> Atlas:
        """Measure everything that was made; what cannot be is named with its reason."""
        spec, gpu_name = self.asked.spec, _gpu_name()
        made = self._made([name for name in self.asked.names if name not in left_out])
        if DENSE not in made:
            raise BermoError(
                "The dense model could not be made, and all else is compared with it."
                f" {self.failed.get(DENSE, '')}"
            )
        timer = Timer(self.base, spec.bench, spec.threads, self.display)
        first = [chains[0] for chains in made.values() if chains]
        self._time(timer, first)
        rows = list[Row]()
        for number, (name, chains) in enumerate(made.items(), start=1):
            self.display.tell(f"Measuring {name} ({number} of {len(made)})")
            row = self._guarded(name, self._row, name, chains, made[DENSE], timer)
            rows += [] if row is None else [row]
        if not rows or rows[0].name != DENSE:
            raise BermoError(f"The dense model cannot be measured. {self.failed.get(DENSE, '')}")
        if gpu_name is not None:
            rows = self._with_gpu(rows, [chain for chain in first if chain.changes_model])
        return Atlas(
            title=Path(self.asked.run.model.backbone).name,
            metric=dense_of(rows[0].seeds[0], self.base).metric,
            num_rows=len(self.rows.valid),
            machine=f"{processor().name}, {number_of(timer.threads, 'thread')}",
            gpu=gpu_name,
            caption=_caption(spec),
            rows=tuple(replace(row, size_gain=rows[0].megabytes / row.megabytes) for row in rows),
            failed=self.failed,
            left_out=tuple(left_out),
            noisy=tuple(self.noisy),
            unlabelled=self._about_unlabelled(rows),
        )

    def _about_unlabelled(self, rows: Sequence[Row]) -> str | None:
        """Say which texts without labels were learned from, and by whom."""
        path, texts = self.base.unlabelled, self.rows.unlabelled
        if path is None or texts is None:
            return None
        chains = {name: self._chains(name) if name in METHODS else [] for name in self.asked.names}
        learned = [row.name for row in rows if row.name in STUDENTS or any(map(_reads, chains[row.name]))]
        return (
            f"{number_of(len(texts), 'text')} without labels ({Path(path).name}), answered by the dense"
            f" model, were learned from too: {', '.join(learned) or 'none of these methods is taught'}."
        )

    def _chains(self, name: str) -> list[Chain]:
        return [make_chain(METHODS[name], seed, self.base) for seed in self.asked.run.seeds]

    def _made(self, names: Sequence[str]) -> dict[str, list[Chain]]:
        """Return the chains of each method that have ended; what is no encoder has none."""
        found = {name: self._chains(name) if name in METHODS else [] for name in names}
        ended = {name: [c for c in chains if _is_there(c.shipped)] for name, chains in found.items()}
        return {name: chains for name, chains in ended.items() if chains or name not in METHODS}

    def _with_gpu(self, rows: Sequence[Row], chains: Sequence[Chain]) -> list[Row]:
        """Time the torch models on the GPU too."""
        spec = self.asked.spec
        timer = Timer(self.base, spec.bench, spec.threads, self.display, "cuda")
        self._time(timer, chains)
        timed = {chain.method.name: self._guarded(chain.method.name, timer.speed, chain) for chain in chains}
        return [row if (speed := timed.get(row.name)) is None else with_gpu(row, speed) for row in rows]

    def _time(self, timer: Timer, first: Sequence[Chain]) -> None:
        """Time all methods, several in one bench; where that fails, each by itself, so that one does not
        spoil the others.
        """
        self.display.tell(f"Timing {number_of(len(first), 'method')} in turns, on the {timer.device}")
        try:
            timer.time(first)
        except Exception as error:
            if was_interrupted(error):
                raise KeyboardInterrupt from error
            for chain in first:
                self._guarded(chain.method.name, timer.time, list(dict.fromkeys([first[0], chain])))

    def _row(self, name: str, chains: Sequence[Chain], dense: Sequence[Chain], timer: Timer) -> Row:
        seeds = [chain.seed for chain in dense]
        if name in METHODS:
            row = method_row(chains, self.base)
            speed = self._guarded(name, timer.speed, chains[0])
        else:
            row = self._row_without_encoder(name, seeds)
            speed = self._guarded(name, self._speed_on_texts, name, seeds[0], timer)
        if speed is not None and speed.noise is not None:
            self.noisy.append(name)
        return row if speed is None else with_speed(row, speed)

    def _row_without_encoder(self, name: str, seeds: Sequence[int]) -> Row:
        """Fit and measure a baseline, or the students of all seeds, unless that is done."""
        if name in STUDENTS:
            return student_row(STUDENTS[name], self.rows, seeds, self.base)
        return baseline_row(BASELINES[name], self.rows, seeds, self.base)

    def _speed_on_texts(self, name: str, seed: int, timer: Timer) -> Speed:
        """Time a baseline, or the student of a seed."""
        if name in STUDENTS:
            answers = open_student(STUDENTS[name], self.rows, seed, self.base)
        else:
            answers = open_baseline(BASELINES[name], self.rows, self.base)
        return baseline_speed(name, answers, self.rows.valid, timer)

    def _guarded(self, name: str, work: Callable[..., T], *arguments: object) -> T | None:
        """Do something for a method; a failure is its own."""
        try:
            return work(*arguments)
        except Exception as error:
            if was_interrupted(error):
                raise KeyboardInterrupt from error
            reason = str(error) if isinstance(error, BermoError) else describe(error)
            self.failed.setdefault(name, reason)
            self.display.tell(f"{name}: {reason}")
            return None

    def _is_measured(self, chains: Sequence[Chain]) -> bool:
        """Tell whether all seeds of a method are scored, and it was timed."""
        scored = [(chain.folder / MEASURED).exists() for chain in chains]
        return all(scored) and (self.base.out / chains[0].method.name / BENCH_FILE).exists()

    def _measuring_seconds(self) -> float:
        spec, seeds = self.asked.spec, len(self.asked.run.seeds)
        timing = 2 * TURN_SECONDS * len(spec.bench.shapes) * (spec.rounds + 1)
        return LOADING_SECONDS * (1 + seeds) + timing


def keep_picked(row: Row, out: Path) -> Path:
    """Copy what a row ships to out/picked, in place of what was picked before."""
    with whole_folder(out / "picked") as folder:
        copy_folder(open_trained(row.folder).folder, folder)
    return out / "picked"


def _gpu_name() -> str | None:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else None


def _reads(chain: Chain) -> bool:
    """Tell whether a command of a chain reads texts without labels."""
    return any("--unlabelled" in job.words for job in chain.jobs)


def _is_there(shipped: Path) -> bool:
    """Tell whether a chain has ended: a training's folder is there from its first moment on."""
    return (shipped / "spec.json").exists() is (shipped / "result.json").exists() and shipped.exists()


def _caption(spec: AtlasSpec) -> str:
    bench = spec.bench
    return (
        f"batch {min(bench.batches)} of {min(bench.lengths)} tokens for latency, {max(bench.batches)} of"
        f" {max(bench.lengths)} for throughput, {number_of(bench.rounds, 'round')} in turns"
    )
