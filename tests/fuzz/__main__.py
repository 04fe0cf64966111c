"""python -m tests.fuzz [--minutes M] [--workers N] [--seed S] [--only READER] [--out FILE.json]
                       [--add FILE.json …]

Changed files for every reader, until the time is over; exits with 1 if anything but our own error came out,
took too long or too much memory, or wrote. FILE.json is written every few seconds; where it exists, its
counts are gone on with: further inputs of the same seed, or those of another seed, are added. --add counts
the files of other machines too, and tries nothing. A fault is repeated by its number: --only READER --seed S
--trial N.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

from bermo.files import write_json
from tests.fuzz.readers import READERS
from tests.fuzz.session import Results, input_of, try_input
from tests.fuzz.workers import Plan, fuzz


def main() -> int:
    """Fuzz for the time given, print the table, and write it as JSON."""
    options = _options()
    readers, results = tuple(options.only or _installed()), _read(options.out)
    if options.trial is not None:
        return _again(readers[0], options.seed, options.trial)
    for file in options.add:
        results.join_(_read(file))
    if not options.add:
        plan = Plan(readers, options.seed, options.workers, time.time() + 60 * options.minutes)
        fuzz(plan, results, lambda: _tell(results, options.out))
    _tell(results, options.out)
    print(results.text())
    return 1 if results.faults else 0


def _installed() -> list[str]:
    """The readers whose packages are installed."""
    left_out = [name for name, reader in READERS.items() if not reader.is_installed]
    if left_out:
        print(f"Without their packages: {', '.join(left_out)}.", file=sys.stderr)
    return [name for name in READERS if name not in left_out]


def _read(path: Path | None) -> Results:
    """What earlier trials left in the file."""
    if path is None or not path.exists():
        return Results()
    return Results.from_json(json.loads(path.read_text(encoding="utf-8")))


def _tell(results: Results, path: Path | None) -> None:
    """Print how far it is, and keep it."""
    print(f"{results.num_inputs:,} inputs, {len(results.faults)} kinds of faults.", flush=True)
    if path is not None:
        write_json(path, results.to_json())


def _again(reader: str, seed: int, number: int) -> int:
    """Make one trial again and print what it gave; its files stay."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-")) / "input"
    outcome = try_input(reader, input_of(reader, seed, number), folder)
    print(f"{outcome.end} {outcome.reason}\n{outcome.trace}The input is in {folder}")
    return 1 if outcome.end == "fault" else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=list(READERS), metavar="READER")
    parser.add_argument("--trial", type=int, help="make one trial again")
    parser.add_argument("--out", type=Path, metavar="FILE.json")
    parser.add_argument("--add", nargs="+", default=[], type=Path, metavar="FILE.json")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
