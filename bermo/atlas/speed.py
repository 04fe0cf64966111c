"""How fast a method is beside the dense model, in turns on this machine; kept in out/METHOD/bench.json.

A method is timed on tokens, as `bermo bench` does; a baseline, which has tokens of its own, on the first
validation texts, and so is the dense model beside it.
"""

import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bermo.atlas.baselines import Answers
from bermo.atlas.chain import Base, Chain, torch_model
from bermo.atlas.methods import DENSE
from bermo.data.rows import TextRows, head
from bermo.errors import BermoError
from bermo.files import read_sealed, reading, write_sealed
from bermo.progress import Display
from bermo.runs.trained import open_trained
from bermo.ship.bench.entries import line_up
from bermo.ship.bench.measured import Bench
from bermo.ship.bench.noise import noise_sentence
from bermo.ship.bench.run import bench, machine, read_bench, write_bench
from bermo.ship.bench.spec import BenchDevice, BenchSpec
from bermo.ship.runtimes.predict import Predictor

BENCH_FILE, GPU_FILE = "bench.json", "bench-gpu.json"
REMEDY = "Delete it, and the same command measures again."
AT_ONCE = 8
"""Methods in one bench: each has a process with its runtime in memory."""
CALLS = 5
"""Calls of a baseline in each round."""


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Median milliseconds of a short call, rows a second of a large one, and both as ratios to the dense
    model's.
    """

    milliseconds: float
    rows_per_second: float
    latency_gain: float
    speedup: float
    speedup_spread: tuple[float, float]
    noise: str | None = None
    """Why the numbers are not to be trusted, if they are not."""


class Timer:
    """Times what chains ship beside the dense model, several methods in one bench; what was timed on this
    machine with these shapes is not timed again.

    On a GPU, where exports do not run, it times the torch models that they were made from, in fp16.
    """

    def __init__(
        self,
        base: Base,
        spec: BenchSpec,
        threads: int | None,
        display: Display,
        device: BenchDevice = "cpu",
    ) -> None:
        self.base, self.spec, self.display, self.device = base, spec, display, device
        self.threads = threads or os.cpu_count() or 1

    def time(self, chains: Sequence[Chain]) -> None:
        """Time the dense model, which comes first, and the others that are not timed yet."""
        dense, *others = chains
        missing = [chain for chain in others if self.known(chain) is None]
        if not missing and self.known(dense) is None:
            self._bench(dense, [])
        for start in range(0, len(missing), AT_ONCE):
            self._bench(dense, missing[start : start + AT_ONCE])

    def speed(self, chain: Chain) -> Speed:
        """Return how fast a chain's model is, which was timed before."""
        result = self.known(chain)
        if result is None:
            raise BermoError(f"{chain.method.name} was not timed.")
        row = result.rows[-1]
        return Speed(
            milliseconds=row.at(*result.latency_shape).p50,
            rows_per_second=row.at(*result.throughput_shape).rows_per_second,
            latency_gain=result.latency_gain(row),
            speedup=result.speedup(row),
            speedup_spread=result.spread(row, result.throughput_shape),
            noise=noise_sentence(result),
        )

    def known(self, chain: Chain) -> Bench | None:
        """Return the bench of a chain, if it was measured on this machine with these shapes."""
        path = self._path(chain)
        if not path.exists():
            return None
        result = read_bench(path)
        wanted = (self.spec, self.threads, machine({self.device}))
        return result if (result.spec, result.threads, result.machine) == wanted else None

    def _bench(self, dense: Chain, chains: Sequence[Chain]) -> None:
        """Measure chains in turns, and write for each its own row beside the dense one."""
        timed = [dense, *chains]
        entries = line_up(
            [str(self._model(chain)) for chain in timed],
            self.spec,
            threads=self.threads,
            device=self.device,
            precisions=("fp32",) if self.device == "cpu" else ("fp16",),
        )
        named = [replace(entry, name=c.method.name) for entry, c in zip(entries, timed, strict=True)]
        result = bench(named, self.spec, self.display)
        for index, chain in enumerate(timed):
            rows = result.rows[:1] if index == 0 else (result.rows[0], result.rows[index])
            write_bench(self._path(chain), replace(result, rows=rows))

    def _model(self, chain: Chain) -> Path:
        return chain.shipped if self.device == "cpu" else torch_model(chain, self.base)

    def _path(self, chain: Chain) -> Path:
        name = BENCH_FILE if self.device == "cpu" else GPU_FILE
        return self.base.out / chain.method.name / name


def baseline_speed(name: str, answers: Answers, rows: TextRows, timer: Timer) -> Speed:
    """Time a baseline beside the dense model on the same texts, tokens made anew by both in each call."""
    base, spec = timer.base, timer.spec
    path = base.out / name / BENCH_FILE
    wanted = {"spec": _plain(spec), "threads": timer.threads, "machine": machine({"cpu"})}
    if path.exists():
        with reading(path, REMEDY):
            known = read_sealed(path)
            if {key: known[key] for key in wanted} == wanted:
                return Speed(**(known["speed"] | {"speedup_spread": tuple(known["speed"]["speedup_spread"])}))
    seeds = sorted((base.out / DENSE).glob("seed-*/1-train"))
    if not seeds:
        raise BermoError("There is no dense model to compare with.")
    dense = Predictor(open_trained(seeds[0]), device="cpu", threads=timer.threads)
    one, many = (head(rows, count) for count in (min(spec.batches), max(spec.batches)))
    assert isinstance(one, TextRows)
    assert isinstance(many, TextRows)
    short = _turns(lambda: dense.logits(one), lambda: answers(one), spec.rounds)
    large = _turns(lambda: dense.logits(many), lambda: answers(many), spec.rounds)
    gains = [theirs / own for theirs, own in large]
    speed = Speed(
        milliseconds=1000 * statistics.median(own for _, own in short),
        rows_per_second=len(many) / statistics.median(own for _, own in large),
        latency_gain=statistics.median(theirs / own for theirs, own in short),
        speedup=statistics.median(gains),
        speedup_spread=(min(gains), max(gains)),
    )
    write_sealed(path, wanted | {"speed": asdict(speed)})
    return speed


def _turns(dense: Callable[[], object], own: Callable[[], object], rounds: int) -> list[tuple[float, float]]:
    """Return the median seconds of both in each round, after a first that warms up."""
    return [(_median(dense, 1), _median(own, CALLS)) for _ in range(rounds + 1)][1:]


def _median(call: Callable[[], object], count: int) -> float:
    seconds = []
    for _ in range(count):
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def _plain(spec: BenchSpec) -> dict[str, Any]:
    return {"batches": list(spec.batches), "lengths": list(spec.lengths), "rounds": spec.rounds}
