"""Size, latency, throughput, memory and score of several models, side by side and fair.

    latency      p50, p95, p99 of the seconds of one call at batch 1
    throughput   rows a second at the largest batch, from the median call
    spread       the smallest and the largest of a ratio over the rounds, each round's medians compared

Each candidate lives in its own process. Rounds go round all of them, shape by shape, so that a noisy machine
hurts all alike; the ratios are against one of them, the baseline, in the same minutes. Rounds that differ too
much are measured again (noise.py).
"""

import math
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch

from bermo.errors import BermoError
from bermo.fields import check
from bermo.files import read_sealed, reading, write_sealed
from bermo.machine import processor
from bermo.methods.measure import versions
from bermo.progress import Display, Quiet
from bermo.ship.bench.measured import Bench, Measured, Shape, Timing
from bermo.ship.bench.noise import worst_round
from bermo.ship.bench.spec import BenchSpec
from bermo.ship.bench.worker import Entry, Worker

SECONDS_A_TURN = 0.5
"""A turn lasts about so long, and one call at least."""
MOST_CALLS = 200
Turn = tuple[int, Shape]
"""The number of a candidate, and the shape of its calls."""
Seconds = dict[Turn, list[list[float]]]
"""The seconds of each call of each round."""


def bench(entries: Sequence[Entry], spec: BenchSpec, display: Display | None = None) -> Bench:
    """Measure the candidates, the baseline first; each works in its own process, one at a time."""
    display = display or Quiet()
    _check(entries, spec)
    with ExitStack() as stack:
        workers = []
        for entry in entries:
            workers.append(Worker(entry))
            stack.push(workers[-1].close)
        facts = [worker.ask("facts") for worker in workers]
        scores = _scores(workers, spec, display)
        seconds, repeats = _rounds(workers, spec, display)
        peaks = [worker.ask("peak_memory") for worker in workers]
    rows = tuple(
        Measured(
            name=entry.name,
            form=fact.form,
            precision=fact.precision,
            device=entry.device,
            megabytes=fact.num_bytes / 1e6,
            peak_memory_mb=peak,
            score=score,
            timings=tuple(_timing(shape, seconds[index, shape]) for shape in spec.shapes),
        )
        for index, (entry, fact, peak, (_, score, _)) in enumerate(
            zip(entries, facts, peaks, scores, strict=True)
        )
    )
    return Bench(
        spec=spec,
        metric=scores[0][0],
        threads=entries[0].threads,
        machine=machine({entry.device for entry in entries}),
        versions=versions(),
        rows=rows,
        repeats=repeats,
        num_scored=scores[0][2],
    )


def write_bench(path: Path, result: Bench) -> None:
    """Write a bench as JSON, with its ratios."""
    values = asdict(result)
    for row, item in zip(values["rows"], result.rows, strict=True):
        row["speedup"], row["latency_gain"] = result.speedup(item), result.latency_gain(item)
        row["size_gain"] = result.size_gain(item)
        row["speedup_spread"] = result.spread(item, result.throughput_shape)
        row["latency_spread"] = result.spread(item, result.latency_shape)
    values["spec"]["data"] = None if result.spec.data is None else result.spec.data.name
    write_sealed(path, values)


def read_bench(path: Path) -> Bench:
    """Read a bench that was written; the name of its data file stands for the file."""
    with reading(path, "Delete it, and the same command measures again."):
        values = read_sealed(path)
        spec = values["spec"] | {name: tuple(values["spec"][name]) for name in ("batches", "lengths")}
        spec["data"] = None if spec["data"] is None else Path(spec["data"])
        rows = tuple(map(_read_row, values["rows"]))
        return Bench(**(values | {"spec": BenchSpec(**spec), "rows": rows}))


def _read_row(row: dict[str, Any]) -> Measured:
    names = {field.name for field in fields(Measured)}
    return Measured(
        **{key: value for key, value in row.items() if key in names and key != "timings"},
        timings=tuple(Timing(**(t | {"rounds": tuple(t["rounds"])})) for t in row["timings"]),
    )


def front(result: Bench) -> tuple[int, ...]:
    """Return the candidates that no other beats in both latency and score, the fastest first."""
    points = [
        (row.at(*result.latency_shape).p50, -math.inf if row.score is None else row.score, index)
        for index, row in enumerate(result.rows)
    ]
    kept, best = [], -math.inf
    for _, score, index in sorted(points, key=lambda point: (point[0], -point[1])):
        if score > best:
            kept.append(index)
            best = score
    return tuple(kept)


def machine(devices: Collection[str]) -> str:
    """Name the processor as far as the system tells, and the GPU if one was used."""
    own = processor()
    gpus = [torch.cuda.get_device_name(device) for device in devices if device != "cpu"]
    return ", ".join([*gpus, own.name, f"{own.cores} cores", own.system])


def _check(entries: Sequence[Entry], spec: BenchSpec) -> None:
    if not entries:
        raise BermoError("There is nothing to measure. Give at least one run, model or export.")
    check(spec)


def _scores(
    workers: list[Worker], spec: BenchSpec, display: Display
) -> list[tuple[str | None, float | None, int]]:
    if spec.data is None:
        return [(None, None, 0)] * len(workers)
    display.start("scoring", len(workers), 0)
    result: list[tuple[str | None, float | None, int]] = []
    try:
        for worker in workers:
            result.append(worker.ask("score", spec.data))
            display.step(len(result), None)
    finally:
        display.close()
    return result


def _rounds(workers: list[Worker], spec: BenchSpec, display: Display) -> tuple[Seconds, int]:
    """Warm up, then let all candidates take turns, shape by shape, round after round.

    Rounds that were disturbed are measured again, at most as many as were asked for at each shape. Returns
    the seconds of all calls, and how many rounds were measured again.
    """
    turns = [(index, shape) for shape in spec.shapes for index in range(len(workers))]
    display.start("timing", len(turns) * (spec.rounds + 1), 0)
    try:
        # The warm-up: its third call says how many fill a turn; on a GPU the second one captures a graph.
        calls = {turn: _calls(_time(workers, turn, 3)) for turn in _shown(turns, display, 0)}
        seconds: Seconds = {turn: [] for turn in turns}
        for number in range(1, spec.rounds + 1):
            for turn in _shown(turns, display, number * len(turns)):
                seconds[turn].append(_time(workers, turn, calls[turn]))
        return seconds, sum(_repeat_(workers, shape, calls, seconds) for shape in spec.shapes)
    finally:
        display.close()


def _repeat_(workers: list[Worker], shape: Shape, calls: Mapping[Turn, int], seconds: Seconds) -> int:
    """Measure the worst rounds of a shape again while they differ too much; return how many there were."""
    turns = [(index, shape) for index in range(len(workers))]
    most = len(seconds[turns[0]])
    for repeats in range(most):
        medians = [[statistics.median(calls) for calls in seconds[turn]] for turn in turns]
        worst = worst_round(medians)
        if worst is None:
            return repeats
        for turn in turns:
            seconds[turn][worst] = _time(workers, turn, calls[turn])
    return most


def _time(workers: list[Worker], turn: Turn, calls: int) -> list[float]:
    index, shape = turn
    seconds: list[float] = workers[index].ask("time", *shape, calls)
    return seconds


def _calls(seconds: Sequence[float]) -> int:
    return max(1, min(MOST_CALLS, math.ceil(SECONDS_A_TURN / max(seconds[-1], 1e-6))))


def _shown(turns: Sequence[Turn], display: Display, before: int) -> Iterator[Turn]:
    for done, turn in enumerate(turns, start=before + 1):
        yield turn
        display.step(done, None)


def _timing(shape: Shape, rounds: list[list[float]]) -> Timing:
    ordered = sorted(1000 * value for seconds in rounds for value in seconds)
    middle = statistics.median(ordered)
    return Timing(
        batch=shape[0],
        length=shape[1],
        calls=len(ordered),
        p50=middle,
        p95=_quantile(ordered, 0.95),
        p99=_quantile(ordered, 0.99),
        rows_per_second=1000 * shape[0] / middle,
        rounds=tuple(1000 * statistics.median(seconds) for seconds in rounds),
    )


def _quantile(ordered: list[float], share: float) -> float:
    """The smallest value that `share` of all do not exceed."""
    return ordered[math.ceil(share * len(ordered)) - 1]
