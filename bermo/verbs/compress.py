"""bermo compress: from a trained model and a goal to a small model, in one command."""

from dataclasses import dataclass
from pathlib import Path

from bermo.fields import REQUIRED, option
from bermo.ship.compress.spec import CompressSpec
from bermo.verbs.ending import say_stopped
from bermo.verbs.importing import importing
from bermo.verbs.verb import Verb

NOT_MET = 3
"""Exit code when nothing meets the goal and the nearest was kept, so that a script can tell."""


@dataclass(frozen=True, kw_only=True)
class CompressOptions:
    """What is wanted of which model, and where the result goes."""

    spec: CompressSpec = REQUIRED
    out: Path | None = option(None, "folder of the result; the same command goes on there", shown="RUN-small")


def run(options: CompressOptions) -> int:
    from bermo.runs.model_files import check_not_exported
    from bermo.verbs.starting import check_files, say_start

    spec = options.spec
    for folder in (spec.run, *spec.candidates):
        check_not_exported(folder)
    check_files(*spec.vocabulary, spec.train, spec.valid, spec.calibrate, spec.texts, spec.unlabelled)
    say_start("compress", f"{spec.run} to {spec.goal.text()}")
    with importing():
        from bermo.report.bench import print_agreements, print_bench, write_bench_figures
        from bermo.report.console import PlainConsole
        from bermo.report.terminal import TerminalDisplay
        from bermo.ship.compress.run import compress
        from bermo.training.job import Stopped

    model = spec.run
    out = options.out or Path(f"{model}-small")
    try:
        made = compress(spec, out, TerminalDisplay())
    except Stopped as stopped:
        return say_stopped(stopped)
    write_bench_figures(out, made.bench, f"{model.name}, made small")
    console = PlainConsole()
    print_bench(made.bench, console)
    if made.agreements:
        print_agreements(made.agreements, console)
    console.print(f"\n{made.sentence}", markup=False)
    console.print(f"The model is in {out}/model, the table in {out}/README.md", markup=False)
    return 0 if made.is_met else NOT_MET


VERB = Verb(
    help="make a trained model as small or fast as you need: prune, shrink, int8, measure, choose",
    options=CompressOptions,
    run=run,
    usage="bermo compress RUN --latency 5ms | --speedup 4 | --size 10MB [options]",
)
