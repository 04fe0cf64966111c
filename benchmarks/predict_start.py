"""How long `bermo predict` takes from a cold start: new processes in turns, their seconds.

    python benchmarks/predict_start.py TEXTS run=runs/mine int8=runs/mine-onnx-int8 [--rounds 10]
        [--source before=../other-checkout] [--json OUT]

Each round starts one process for each folder and each source of bermo, this checkout's being "now". A first
round, which is not counted, brings files into memory and writes byte code. Seconds of the processor are those
of all threads, in the process and in the system for it.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from importlib.metadata import version
from itertools import product
from pathlib import Path

from bermo.machine import processor

ROOT = Path(__file__).parent.parent
PACKAGES = ("torch", "transformers", "tokenizers", "onnxruntime", "numpy")


def named(text: str) -> tuple[str, Path]:
    """Read NAME=FOLDER."""
    name, _, folder = text.partition("=")
    return name, Path(folder).resolve()


def once(source: Path, folder: Path, texts: Path) -> tuple[float, float]:
    """Run the command in a new process; return its seconds by the clock and of the processor."""
    command = [sys.executable, "-m", "bermo", "predict", str(folder), str(texts)]
    started = time.perf_counter()
    process = subprocess.Popen(command, cwd=source, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return wall, used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("texts", type=Path)
    parser.add_argument("folders", type=named, nargs="+", metavar="NAME=FOLDER")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--source", type=named, action="append", default=[], metavar="NAME=FOLDER")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    sources = {**dict(options.source), "now": ROOT}
    arms = list(product(dict(options.folders).items(), sources.items()))
    found: dict[str, list[tuple[float, float]]] = {}
    for number in range(1 + options.rounds):
        for (name, folder), (of, source) in arms:
            seconds = once(source, folder, options.texts.resolve())
            if number:
                found.setdefault(f"{name}, {of}", []).append(seconds)
    rows = {name: _row(seconds) for name, seconds in found.items()}
    print(f"{'':<24}{'clock':>8}{'least':>8}{'processor':>11}{'least':>8}   medians of {options.rounds}")
    for name, row in rows.items():
        print(f"{name:<24}" + "".join(f"{row[key]:{wide}.2f}" for key, wide in COLUMNS.items()))
    if options.json:
        known = {"processor": processor().name, "cores": len(os.sched_getaffinity(0))}
        versions = {package: version(package) for package in PACKAGES}
        values = known | {"versions": versions, "rounds": options.rounds, "seconds": rows}
        options.json.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")


COLUMNS = {"clock": 8, "least_clock": 8, "processor": 11, "least_processor": 8}


def _row(seconds: list[tuple[float, float]]) -> dict[str, float]:
    walls, owns = zip(*seconds, strict=True)
    return {
        "clock": round(statistics.median(walls), 3),
        "least_clock": round(min(walls), 3),
        "processor": round(statistics.median(owns), 3),
        "least_processor": round(min(owns), 3),
    }


if __name__ == "__main__":
    main()
