"""Commands of bermo run side by side, each with a log; what has ended is not begun again."""

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Stage:
    """A command of bermo, its folder below OUT, and the file in that folder with which it has ended."""

    name: str
    words: tuple[str, ...]
    ends_with: str = "result.json"


def run(stages: Sequence[Stage], out: Path, workers: int) -> list[str]:
    """Run the stages that have not ended, so many at a time, and return the names of those that failed."""
    (out / "logs").mkdir(parents=True, exist_ok=True)
    left = [stage for stage in stages if not (out / stage.name / stage.ends_with).exists()]
    with ThreadPoolExecutor(workers) as pool:
        codes = list(pool.map(lambda stage: _run(stage, out), left))
    return [stage.name for stage, code in zip(left, codes, strict=True) if code != 0]


def _run(stage: Stage, out: Path) -> int:
    log = out / "logs" / f"{stage.name.replace('/', '-')}.log"
    threads = os.environ.get("OMP_NUM_THREADS", "1")
    own = {"OMP_NUM_THREADS": threads, "BERMO_CACHE": str(out / "cache")}
    with log.open("w", encoding="utf-8") as written:
        ended = subprocess.run(
            [sys.executable, "-m", "bermo", *stage.words, "--out", str(out / stage.name)],
            stdout=written,
            stderr=subprocess.STDOUT,
            env=os.environ | own,
            check=False,
        )
    print(f"{stage.name}: {'done' if ended.returncode == 0 else f'failed, see {log}'}", flush=True)
    return ended.returncode
