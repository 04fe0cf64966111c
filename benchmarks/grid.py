"""Which pruning is best? Encoders × tasks × methods at 10 %; all but the method is bermo's default.

    python benchmarks/grid.py MODELS DATA OUT [--only REGEX] [--workers 6] [--show]
    python benchmarks/grid.py --gather results/grid.json OUT [--beside results/grid.json]

MODELS holds a folder for each encoder (gte, minilm, mpnet, roberta; the box needs none), DATA the unpacked
datasets sst2, mrpc, cola, mr, qnli, qqp_partial. PLAN says what is run with how many seeds, the most wanted
first; seeds of an arm are trained together, arms side by side on one GPU. The same command goes on where it
stopped: OUT holds a folder for each run, ENCODER-TASK-METHOD.SEEDS. Then: python scripts/make_grid.py

The encoder of RoBERTa's shape is the box: python benchmarks/as_roberta.py bermo/box MODELS/roberta
"""

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from bermo.recipes.core import PAPER_SEEDS

TASKS = {
    "sst2": "--task sst2 --data {data}/sst2 --epochs 3",
    "sst2k": "--task sst2 --data {data}/sst2 --limit 20000 --epochs 3",
    "sst2k1": "--task sst2 --data {data}/sst2 --limit 20000 --epochs 1",
    "sst2k2": "--task sst2 --data {data}/sst2 --limit 20000 --epochs 2",
    "mrpc": "--task mrpc --data {data}/mrpc --epochs 10",
    "cola": "--task cola --data {data}/cola --epochs 5",
    "mr": "--train {data}/mr/train.tsv --valid {data}/mr/dev.tsv --epochs 5",
    "qnli": "--train {data}/qnli/dev.tsv --split 0.2 --epochs 5",
    "qqp": "--task qqp --data {data}/qqp_partial --epochs 3",
}
MOVEMENT = "--prune movement --density 0.1"
PENALTY = "--score-lr 1e-2 --lr 3e-5 --penalty"
TAUGHT = f"{MOVEMENT} --teacher {{teacher}}"
METHODS = {
    "sensitivity": MOVEMENT,
    "size": f"{MOVEMENT} --rank size",
    "score": f"{MOVEMENT} --rank score",
    "soft": "--prune soft-movement --density 0.1",
    "magnitude": "--prune magnitude --density 0.1",
    "no-scores": f"{MOVEMENT} --score-lr 0",
    "size-global": f"{MOVEMENT} --rank size --scope global",
    "taught": TAUGHT,
    "soft-penalty": f"--prune soft-movement {PENALTY} 150",
    "l0-penalty": f"--prune l0 {PENALTY} 50",
    "dense": "",
}
"""Also with -plain at the end: without the mix. The penalties are the paper's for QQP."""
SHOWN = {
    "sst2k": "SST-2, 20,000 rows",
    "sst2k1": "SST-2, 20,000 rows, 1 epoch",
    "sst2k2": "SST-2, 20,000 rows, 2 epochs",
    "gte": "gte-small",
    "minilm": "MiniLM-L6",
    "mpnet": "mpnet-base",
    "box": "the box",
    "roberta": "the box as RoBERTa",
}
"""What the table calls a task or a folder of an encoder, where it is not its own name."""
SMALL = "mrpc cola mr qnli qqp"
RIVALS = "size score soft magnitude"
PLAN = (
    # encoders, tasks, methods, first seed and last, seeds of one process
    ("mpnet", "sst2", "teacher", (0, 1), 1),
    ("gte", "sst2", "sensitivity", (3, 10), 4),
    ("mpnet", "sst2", "sensitivity", (0, 5), 1),
    ("gte", "sst2k", "teacher", (0, 1), 1),
    ("gte minilm box", "sst2k", "sensitivity", (0, 10), 5),
    ("mpnet", "sst2", "taught", (0, 5), 1),
    ("gte minilm box", SMALL, "sensitivity", (0, 5), 5),
    ("mpnet", f"sst2k {SMALL}", "sensitivity", (0, 3), 3),
    ("gte minilm box", "sst2k", f"{RIVALS} dense", (0, 5), 5),
    ("gte minilm box", SMALL, "soft magnitude size", (0, 3), 3),
    ("mpnet", "sst2k", f"{RIVALS}", (0, 3), 3),
    ("gte", "sst2k", "taught taught-plain", (0, 5), 5),
    ("gte mpnet", "qqp", "soft-penalty soft-penalty-plain l0-penalty l0-penalty-plain", (0, 3), 3),
    ("mpnet", "sst2k", "sensitivity-plain size-plain score-plain dense dense-plain", (0, 3), 3),
    ("roberta", "sst2k mrpc cola", "sensitivity soft magnitude size score", (0, 3), 3),
    ("gte minilm box", SMALL, "dense score", (0, 3), 3),
    ("gte minilm", f"sst2k {SMALL}", "sensitivity-plain", (0, 5), 5),
    ("mpnet", "mrpc cola mr qnli qqp", "soft magnitude", (0, 2), 2),
    ("gte minilm box", "sst2k mrpc", "dense-plain", (0, 5), 5),
    ("gte mpnet", "sst2k1 sst2k2", "sensitivity sensitivity-plain", (0, 3), 3),
    ("minilm box", "sst2k", "size-plain score-plain soft-plain magnitude-plain", (0, 3), 3),
    ("mpnet", "sst2k", "soft-plain magnitude-plain", (0, 2), 2),
    ("roberta", "mr qnli qqp", "sensitivity soft magnitude size", (0, 3), 3),
    ("mpnet", "mrpc cola mr qnli qqp", "dense size", (0, 2), 2),
)
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

    def words(self, models: Path, data: Path, out: Path) -> list[str]:
        """Return the arguments of bermo for it, without the folder of the run."""
        model = "box" if self.encoder == "box" else models / self.encoder
        plain = "--mix none" if self.method.endswith("-plain") or self.method == "teacher" else ""
        keep = "best" if self.method == "teacher" else "none"
        method = METHODS.get(self.method.removesuffix("-plain"), "").format(teacher=self.teacher(out))
        seeds = f"--seeds {','.join(map(str, self.seeds))}, --together {len(self.seeds)}"
        task = TASKS[self.task].format(data=data)
        return f"train --model {model} {task} {method} {plain} {seeds} {COMMON} --keep {keep}".split()

    @property
    def is_taught(self) -> bool:
        return "{teacher}" in METHODS.get(self.method.removesuffix("-plain"), "")

    def teacher(self, out: Path) -> Path:
        """Return the folder of the dense, plain run of the same encoder and task."""
        return out / f"{self.encoder}-{self.task}-teacher.{PAPER_SEEDS[0]}"


def jobs() -> Iterator[Job]:
    """Every process of the plan, the most wanted first."""
    for encoders, tasks, methods, (first, last), size in PLAN:
        seeds = PAPER_SEEDS[first:last]
        for method in methods.split():
            for task in tasks.split():
                for encoder in encoders.split():
                    for k in range(0, len(seeds), size):
                        yield Job(encoder=encoder, task=task, method=method, seeds=seeds[k : k + size])


def run(job: Job, options: argparse.Namespace) -> str:
    """Train one arm; its words go to a log beside its folder."""
    began = time.monotonic()
    if job.is_taught and not (job.teacher(options.out) / "result.json").exists():
        return f"{job.name}: left out, its teacher {job.teacher(options.out).name} is missing"
    words = job.words(options.models, options.data, options.out)
    command = [sys.executable, "-m", "bermo", *words, "--out", str(options.out / job.name)]
    with (options.out / f"{job.name}.log").open("w") as log:
        done = subprocess.run(command, stdout=log, stderr=log, check=False)
    return f"{job.name}: {done.returncode} after {time.monotonic() - began:.0f} s"


def rows(out: Path) -> list[dict[str, Any]]:
    """Return one row for each seed of each finished run."""
    found: list[dict[str, Any]] = []
    for path in sorted(out.glob("*/result.json")):
        encoder, task, method = path.parent.name.partition(".")[0].split("-", 2)
        if method == "teacher":
            continue
        for seed in json.loads(path.read_text(encoding="utf-8"))["seeds"]:
            found.append(
                {
                    "encoder": SHOWN.get(encoder, encoder),
                    "task": SHOWN.get(task, task),
                    "method": method.removesuffix("-plain"),
                    "mix": not method.endswith("-plain"),
                    "seed": seed["seed"],
                    "score": round(seed["score"], 3),
                    "last": round(seed["last_score"], 3),
                    "dead": bool(seed["diverged"]),
                    "density": round(seed["density"], 4),
                    "dense": method.startswith("dense"),
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
    parser.add_argument("--show", action="store_true", help="print the jobs and stop")
    parser.add_argument("--gather", type=Path, help="write the rows of a folder of runs to this file")
    parser.add_argument("--beside", type=Path, help="rows of this file are kept where no new one replaces it")
    options = parser.parse_args()
    if options.gather:
        earlier = json.loads(options.beside.read_text(encoding="utf-8")) if options.beside else []
        content = beside(rows(options.models), earlier)
        options.gather.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        return
    wanted = [job for job in jobs() if re.search(options.only, job.name)]
    if options.show:
        print(
            "\n".join(
                f"{job.name}: {' '.join(job.words(options.models, options.data, options.out))}"
                for job in wanted
            )
        )
        return
    options.out.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(options.workers) as pool:
        for taught in (False, True):  # a teacher comes before what it teaches
            for said in pool.map(
                lambda job: run(job, options), [job for job in wanted if job.is_taught == taught]
            ):
                print(said, flush=True)


if __name__ == "__main__":
    main()
