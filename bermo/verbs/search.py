"""bermo search: the best values of a few options, by trials that are runs."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path

from bermo.fields import REQUIRED, group, leaves, option
from bermo.jobs.spec import SpreadSpec
from bermo.printing import say
from bermo.spec import RunSpec
from bermo.verbs.verb import Verb


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """What is searched, how long, where; and what every trial trains."""

    space: str = option(REQUIRED, "options and their ranges, e.g. lr=1e-5..1e-4,mix=none|across")
    trials: int = option(20, "how many; more may be asked for later", least=1, most=100_000)
    out: Path = option(Path("runs/search"), "folder of the trials; the same command goes on there")
    spread: SpreadSpec = group(SpreadSpec(), "side by side")
    spec: RunSpec = RunSpec()


def run(options: SearchOptions) -> int:
    from bermo.data.load import load_task
    from bermo.jobs.drive import failures_text
    from bermo.jobs.engines import check_engine, check_installed, make_executor
    from bermo.jobs.space import corner, read_space
    from bermo.runs.command import shown
    from bermo.runs.kept_options import locked_for
    from bermo.values import to_dict
    from bermo.verbs.starting import check_before, data_name, say_start

    check_installed("search", "optuna")
    spread = options.spread if options.spread.on else replace(options.spread, on="local", workers=1)
    check_engine(spread)
    space = read_space(options.space, options.spec)
    # A folder that no trial has.
    check_before(corner(options.spec, space, 0), options.out / "trial")
    load_task(options.spec.data)
    say_start("search", f"{options.trials} trials of {data_name(options.spec.data)} into {options.out}")
    kept = {"space": options.space, "spec": to_dict(options.spec)}
    with locked_for(options.out, "search.json", kept, leaves(SearchOptions)):
        from bermo.figures.data import write_findings
        from bermo.jobs.search import Search
        from bermo.jobs.search_figures import search_findings

        search = Search(options.spec, space, options.out)
        executor = make_executor(spread, options.out)
        failed = search.run(executor, options.trials, spread.retries, lambda text: say(text, sys.stderr))
        findings = search_findings(search)
        write_findings(options.out / "figures.json", findings)
    if failed:
        say(failures_text(failed, search.out), sys.stderr)
    if (best := search.best()) is None:
        return 1
    say(f"Best: {best.name} ({search.study.best_value:.2f}):\n  {shown(best.words)}")
    say(f"All trials: bermo report {options.out}")
    return 1 if failed else 0


VERB = Verb(
    help="the best values of a few options, by trials",
    options=SearchOptions,
    run=run,
    usage="bermo search --space lr=1e-5..1e-4 --train FILE [--trials N] [options]",
)
