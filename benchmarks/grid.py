"""Which pruning is best? Encoders × tasks × methods at 10 %; all but the method is bermo's default.

    python benchmarks/grid.py MODELS DATA OUT [--only REGEX] [--workers 6] [--seconds 900] [--show]
        [--beside results/grid.json]     only what has no row in that file yet
        [--again box,roberta]     these have new weights: their rows of that file are left out, all are run
        [--extra "--limit 64 --epochs 0.1 --device cpu --precision fp32"]     further options: a small trial
    python benchmarks/grid.py --gather results/grid.json OUT [--beside results/grid.json] [--again …]

MODELS holds a folder for each encoder (gte, minilm, mpnet, roberta; the box needs none), DATA the unpacked
datasets sst2, mrpc, cola, mr, qnli, qqp_partial, conll2003 and rte. PLAN of grid_plan.py says what is run
with how many seeds, the most wanted first; seeds of an arm are trained together, arms side by side on one
GPU; after --seconds none begins. The same command goes on where it stopped: OUT holds a folder for each
run, ENCODER-TASK-METHOD.SEEDS. Then:
python scripts/make_grid.py && python scripts/make_tables.py && python scripts/make_figures.py

The encoder of RoBERTa's shape is the box: python benchmarks/as_roberta.py bermo/box MODELS/roberta
"""

import argparse
import json
import math
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from threading import Event
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.grid_plan import METHODS, PLAN, SEEDS, SHOWN, TASKS
from bermo.recipes.core import PAPER_SEEDS
from bermo.runs.results import ONE_ANSWER

COMMON = "--precision bf16 --checkpoint-minutes 100 --evaluations 1"


@dataclass(frozen=True, kw_only=True)
class Job:
    """One process: an arm with some of its seeds."""

    encoder: str
    task: str
    method: str
    seeds: tuple[int, ...]

    @property
    def name(self) -> str:
        return f"{self.encoder}-{self.task}-{self.method}.{'-'.join(map(str, self.seeds))}"

    def words(self, models: Path, data: Path, out: Path, extra: str = "") -> list[str]:
        """Return the arguments of bermo for it, without the folder of the run."""
        model = "box" if self.encoder == "box" else models / self.encoder
        plain = "--mix none" if self.method.endswith("-plain") or self.method == "teacher" else ""
        keep = "best" if self.method == "teacher" else "none"
        method = METHODS.get(self.method.removesuffix("-plain"), "").format(teacher=self.teacher(out))
        seeds = f"--seeds {','.join(map(str, self.seeds))}, --together {len(self.seeds)}"
        task = TASKS[self.task].format(data=data)
        return f"train --model {model} {task} {method} {plain} {seeds} {COMMON} --keep {keep} {extra}".split()

    @property
    def arm(self) -> tuple[str, str, str, bool]:
        """What the rows of grid.json know it by."""
        plain = self.method.endswith("-plain")
        shown = SHOWN.get(self.encoder, self.encoder), SHOWN.get(self.task, self.task)
        return *shown, self.method.removesuffix("-plain"), not plain

    @property
    def is_taught(self) -> bool:
        return "{teacher}" in METHODS.get(self.method.removesuffix("-plain"), "")

    def teacher(self, out: Path) -> Path:
        """Return the folder of the dense, plain run of the same encoder and task."""
        return out / f"{self.encoder}-{self.task}-teacher.{PAPER_SEEDS[0]}"


def jobs() -> Iterator[Job]:
    """Every process of the plan, the most wanted first."""
    for encoders, tasks, methods, (first, last), size in PLAN:
        seeds = SEEDS[first:last]
        for method in methods.split():
            for task in tasks.split():
                for encoder in encoders.split():
                    for k in range(0, len(seeds), size):
                        yield Job(encoder=encoder, task=task, method=method, seeds=seeds[k : k + size])


def left(wanted: Iterable[Job], known: Iterable[dict[str, Any]]) -> list[Job]:
    """Return the jobs with the seeds that have no row, and only teachers that such a job needs."""
    done = {(row["encoder"], row["task"], row["method"], row["mix"], row["seed"]) for row in known}
    open_ = []
    for job in wanted:
        seeds = tuple(seed for seed in job.seeds if (*job.arm, seed) not in done)
        open_ += [replace(job, seeds=seeds)] if seeds else []
    taught = {(job.encoder, job.task) for job in open_ if job.is_taught}
    return [job for job in open_ if job.method != "teacher" or (job.encoder, job.task) in taught]


def run(job: Job, options: argparse.Namespace) -> str:
    """Train one arm, after its teacher."""
    began = time.monotonic()
    if job.is_taught and job.teacher(options.out).name in options.teachers:
        options.teachers[job.teacher(options.out).name].wait()
    try:
        return f"{job.name}: {_train(job, options)} after {time.monotonic() - began:.0f} s"
    finally:
        if job.name in options.teachers:
            options.teachers[job.name].set()


def _train(job: Job, options: argparse.Namespace) -> str:
    """Return the exit code, or why there is none; the words of a training go to a log beside its folder."""
    if time.monotonic() > options.until:
        return "not begun"
    if job.is_taught and not (job.teacher(options.out) / "result.json").exists():
        return f"left out, its teacher {job.teacher(options.out).name} is missing"
    words = job.words(options.models, options.data, options.out, options.extra)
    command = [sys.executable, "-m", "bermo", *words, "--out", str(options.out / job.name)]
    with (options.out / f"{job.name}.log").open("w") as log:
        return str(subprocess.run(command, stdout=log, stderr=log, check=False).returncode)


def rows(out: Path) -> list[dict[str, Any]]:
    """Return one row for each seed of each finished run."""
    found: list[dict[str, Any]] = []
    for path in sorted(out.glob("*/result.json")):
        encoder, task, method = path.parent.name.partition(".")[0].split("-", 2)
        if method == "teacher":
            continue
        arm = Job(encoder=encoder, task=task, method=method, seeds=()).arm
        for seed in json.loads(path.read_text(encoding="utf-8"))["seeds"]:
            found.append(
                {
                    **dict(zip(("encoder", "task", "method", "mix"), arm, strict=True)),
                    "seed": seed["seed"],
                    "score": round(seed["score"], 3),
                    "last": round(seed["last_score"], 3),
                    "dead": (seed["diverged"] or seed["undertrained"] or "").startswith(ONE_ANSWER),
                    "density": round(seed["density"], 4),
                    "dense": method.startswith("dense"),
                    "device": seed["device"],
                }
            )
    return found


def beside(found: list[dict[str, Any]], earlier: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put rows beside earlier ones, which a new row of the same training replaces, in one order."""
    same = itemgetter("encoder", "task", "method", "mix", "seed")
    named = {same(row): row for row in [*earlier, *found]}
    encoders = [SHOWN[name] for name in ("gte", "minilm", "mpnet", "box", "roberta")]
    tasks = [SHOWN.get(task, task) for task in TASKS]
    methods = list(METHODS)
    return sorted(
        named.values(),
        key=lambda row: (
            encoders.index(row["encoder"]),
            tasks.index(row["task"]),
            methods.index(row["method"]),
            not row["mix"],
            row["seed"],
        ),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("models", type=Path)
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--only", default=".", help="jobs whose name fits")
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=math.inf, help="no job begins after so long")
    parser.add_argument("--extra", default="", help="further options of every training")
    parser.add_argument("--show", action="store_true", help="print the jobs and stop")
    parser.add_argument("--gather", type=Path, help="write the rows of a folder of runs to this file")
    parser.add_argument("--beside", type=Path, help="a file of rows: what has one is not run, or is kept")
    parser.add_argument("--again", default="", help="encoders whose rows of that file are left out")
    options = parser.parse_args()
    again = [SHOWN.get(name, name) for name in options.again.split(",")]
    earlier = json.loads(options.beside.read_text(encoding="utf-8")) if options.beside else []
    earlier = [row for row in earlier if row["encoder"] not in again]
    if options.gather:
        content = beside(rows(options.models), earlier)
        options.gather.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        return
    wanted = [job for job in left(jobs(), earlier) if re.search(options.only, job.name)]
    if options.show:
        print(
            "\n".join(
                f"{job.name}: {' '.join(job.words(options.models, options.data, options.out, options.extra))}"
                for job in wanted
            )
        )
        return
    options.out.mkdir(parents=True, exist_ok=True)
    options.until = time.monotonic() + options.seconds
    wanted.sort(key=lambda job: job.method != "teacher")
    options.teachers = {job.name: Event() for job in wanted if job.method == "teacher"}
    with ThreadPoolExecutor(options.workers) as pool:
        for done in as_completed([pool.submit(run, job, options) for job in wanted]):
            print(done.result(), flush=True)


if __name__ == "__main__":
    main()
