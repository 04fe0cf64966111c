"""python -m tests.torture [--minutes M] [--seed S] [--only KIND] [--out FILE.json]

Kills, failing disks and damaged files for every kind of command; exits with 1 if anything was lost, differed,
hung or ended in a traceback. A failed trial is repeated by its number: --seed S --trial N.
"""

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

from bermo.files import write_json
from bermo.machine import processor
from tests.torture.kinds import BY_NAME, KINDS
from tests.torture.session import Plan, memory_folder, torture


def main() -> int:
    """Torture for the time given, print the table, and write it as JSON."""
    options = _options()
    plan = Plan(
        kinds=[BY_NAME[name] for name in options.only] if options.only else KINDS,
        seed=options.seed,
        seconds=60 * options.minutes,
        only_trial=options.trial,
        workers=1 if options.trial is not None else options.workers,
    )
    home = Path(tempfile.mkdtemp(prefix="torture-", dir=memory_folder()))
    try:
        results = torture(plan, home)
    finally:
        if not options.keep:
            shutil.rmtree(home, ignore_errors=True)
    print(results.text())
    print(f"{results.num_kills} kills in {sum(results.trials.values())} trials.")
    if options.out is not None:
        facts = {"seed": plan.seed, "minutes": options.minutes, "workers": plan.workers}
        write_json(options.out, facts | {"processor": processor().name} | results.to_json())
    return 0 if results.is_clean else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.torture")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=sorted(BY_NAME), metavar="KIND")
    parser.add_argument("--trial", type=int, help="make one trial again")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, metavar="FILE.json")
    parser.add_argument("--keep", action="store_true", help="leave the folders of the last trials")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
