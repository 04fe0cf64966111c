"""python -m tests.torture [--minutes M] [--workers N] [--seed S] [--only KIND …] [--faults SORT …]
                          [--out FILE.json]

Kills, failing disks and damaged files for every kind of command; exits with 1 if anything was lost, differed,
hung or ended in a traceback. FILE.json is written every few seconds; where it exists, its counts are gone on
with, and the trials after its last one are made. Ctrl-C keeps what was counted. A failed trial is repeated by
its number: --seed S --trial N.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from bermo.files import write_json
from bermo.machine import processor
from tests.torture.kinds import BY_NAME, KINDS
from tests.torture.session import SHARES, Plan, memory_folder, torture
from tests.torture.table import Results


def main() -> int:
    """Torture for the time given, print the table, and keep it as JSON."""
    options = _options()
    plan = Plan(
        kinds=[BY_NAME[name] for name in options.only] if options.only else KINDS,
        seed=options.seed,
        seconds=60 * options.minutes,
        only_trial=options.trial,
        sorts=options.faults or tuple(SHARES),
        workers=1 if options.trial is not None else options.workers,
    )
    results = _read(options.out, plan.seed)
    home = Path(tempfile.mkdtemp(prefix="torture-", dir=memory_folder()))
    try:
        torture(plan, home, results, lambda so_far: _tell(so_far, plan, options.out))
    finally:
        if not options.keep:
            shutil.rmtree(home, ignore_errors=True)
        print(results.text())
    return 0 if results.is_clean else 1


def _read(path: Path | None, seed: int) -> Results:
    """What earlier trials of the same seed left in the file."""
    if path is None or not path.exists():
        return Results()
    values = json.loads(path.read_text(encoding="utf-8"))
    if values["seed"] != seed:
        sys.exit(f"{path} holds trials of --seed {values['seed']}. Give the same one, or another --out.")
    return Results.from_json(values)


def _tell(results: Results, plan: Plan, path: Path | None) -> None:
    """Print how far it is, and keep it."""
    print(results.line(), flush=True)
    if path is not None:
        facts = {"seed": plan.seed, "workers": plan.workers, "processor": processor().name}
        write_json(path, facts | results.to_json())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.torture")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="trials at a time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=sorted(BY_NAME), metavar="KIND")
    parser.add_argument("--faults", nargs="+", choices=tuple(SHARES), metavar="SORT", help=", ".join(SHARES))
    parser.add_argument("--trial", type=int, help="make one trial again")
    parser.add_argument("--out", type=Path, metavar="FILE.json")
    parser.add_argument("--keep", action="store_true", help="leave the folders of the last trials")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
