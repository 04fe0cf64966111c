"""python -m tests.torture [--minutes M] [--workers N] [--seed S] [--only KIND …] [--faults SORT …]
                          [--out FILE.json] [--add FILE.json …]

Kills, failing disks and damaged files for every kind of command; exits with 1 if anything was lost, differed,
hung or ended in a traceback. FILE.json is written every few seconds; where it exists, its counts are gone on
with: the trials after the last one of the same seed are made, and those of another seed are added. Whatever
ends it keeps what was counted. --add counts the files of other machines too, and makes no trial. A failed
trial is repeated by its number: --seed S --trial N.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bermo.files import write_json
from tests.torture.kinds import BY_NAME, KINDS, Kind
from tests.torture.session import SHARES, Plan, memory_folder, torture
from tests.torture.table import Results


def main() -> int:
    """Torture for the time given, print the table, and keep it as JSON."""
    options = _options()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if options.add:
        return _add(options.out, options.add)
    plan = Plan(
        kinds=_kinds(options.only),
        seed=options.seed,
        seconds=60 * options.minutes,
        only_trial=options.trial,
        sorts=options.faults or tuple(SHARES),
        workers=1 if options.trial is not None else options.workers,
    )
    results = _read(options.out)
    home = Path(tempfile.mkdtemp(prefix="torture-", dir=memory_folder()))
    try:
        torture(plan, home, results, lambda so_far: _tell(so_far, options.out))
    finally:
        if not options.keep:
            shutil.rmtree(home, ignore_errors=True)
        print(results.text())
    return 0 if results.is_clean else 1


def _kinds(names: Sequence[str] | None) -> Sequence[Kind]:
    """The kinds of these names, or all whose packages are installed."""
    if names:
        return [BY_NAME[name] for name in names]
    left_out = [kind.name for kind in KINDS if not kind.is_installed]
    if left_out:
        print(f"Without their packages: {', '.join(left_out)}.", file=sys.stderr)
    return [kind for kind in KINDS if kind.is_installed]


def _read(path: Path | None) -> Results:
    """What earlier trials left in the file."""
    if path is None or not path.exists():
        return Results()
    return Results.from_json(json.loads(path.read_text(encoding="utf-8")))


def _add(out: Path | None, files: Sequence[Path]) -> int:
    """Count what other files hold in one."""
    results = _read(out)
    for file in files:
        results.join(_read(file))
    _tell(results, out)
    return 0 if results.is_clean else 1


def _tell(results: Results, path: Path | None) -> None:
    """Print how far it is, and keep it."""
    print(results.line(), flush=True)
    if path is not None:
        write_json(path, results.to_json())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.torture")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="trials at a time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=sorted(BY_NAME), metavar="KIND")
    parser.add_argument("--faults", nargs="+", choices=tuple(SHARES), metavar="SORT", help=", ".join(SHARES))
    parser.add_argument("--trial", type=int, help="make one trial again")
    parser.add_argument("--out", type=Path, metavar="FILE.json")
    parser.add_argument("--add", nargs="+", type=Path, metavar="FILE.json", help="count these too, and end")
    parser.add_argument("--keep", action="store_true", help="leave the folders of the last trials")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
