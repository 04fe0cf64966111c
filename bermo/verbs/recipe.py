"""bermo run: a recipe's arms, one after the other, side by side in the end; bermo jobs: how far each is."""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bermo.errors import BermoError
from bermo.fields import check, group, option, positional
from bermo.jobs.spec import SpreadSpec
from bermo.printing import say
from bermo.runs.results import RunResult
from bermo.spec import USUAL_MIX, Experiment
from bermo.verbs.ending import is_main_process, say_stopped
from bermo.verbs.importing import importing
from bermo.verbs.verb import Verb


@dataclass(frozen=True, kw_only=True)
class RecipeOptions:
    """Which recipe, what is changed in it, and where the results go."""

    recipe: str = positional("its name (bermo list)")
    changes: tuple[str, ...] = positional(
        "change a field in every arm", (), metavar="dotted.field=value", is_list=True
    )
    seeds: str | None = option(None, "how many seeds, or which", metavar="N,N")
    arms: tuple[str, ...] | None = option(None, "only these arms, e.g. plain,mix", metavar="NAME,NAME")
    tiny: bool = option(False, "the form that ends in seconds")
    out: Path | None = option(None, "folder of the results", shown="runs/RECIPE")


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What is run."""

    what: RecipeOptions
    together: int | None = option(None, "so many seeds of each arm at once, stacked on one GPU", least=1)
    spread: SpreadSpec = group(SpreadSpec(), "side by side")


def run(options: RunOptions) -> int:
    experiment, out = read_recipe(options.what)
    if options.together is not None:
        experiment = change_fields(experiment, [f"train.together={options.together}"])
    if options.spread.on is not None:
        return spread_experiment(experiment, out, options.spread)
    return run_experiment("run", experiment, out)


def read_recipe(options: RecipeOptions) -> tuple[Experiment, Path]:
    """Return the arms of a recipe with what is changed in them, and the folder of their results."""
    from bermo.recipes import choose, tiny

    experiment = find_recipe(options.recipe)()
    if options.arms:
        experiment = choose(experiment, options.arms)
    form = "-tiny" if options.tiny else ""
    out = options.out or Path(f"runs/{options.recipe.replace('/', '-')}{form}")
    if options.tiny:
        experiment = tiny(experiment, out)
    experiment = change_fields(experiment, options.changes)
    if options.seeds:
        experiment = change_fields(experiment, [f"seeds={options.seeds}"])
    return experiment, out


def find_recipe(name: str) -> Callable[[], Experiment]:
    """Return a recipe; print the name of today where an earlier one was given."""
    from bermo.recipes import current_name, find

    recipe = find(name)
    if current_name(name) != name:
        print(f'bermo: The recipe "{name}" is called "{current_name(name)}" now.', file=sys.stderr)
    return recipe


def change_fields(experiment: Experiment, changes: Iterable[str]) -> Experiment:
    """Set the fields that texts such as "train.lr=1e-4" name, in every arm."""
    from bermo.recipes import change

    for text in changes:
        dotted, equals, value = text.partition("=")
        if not equals:
            raise BermoError(f'"{text}" is no change. Write dotted.field=value, e.g. train.lr=1e-4.')
        experiment = change(experiment, dotted, value)
    return experiment


def run_experiment(verb: str, experiment: Experiment, out: Path) -> int:
    """Run every arm into its own folder, then print them side by side."""
    from bermo.data.load import load_task
    from bermo.verbs.starting import data_name, say_start

    check_arms(experiment, out)
    first = next(iter(experiment.arms.values())).data
    say_start(verb, f"{len(experiment.arms)} arms into {out}; reading {data_name(first)}")
    data = load_task(first)
    with importing():
        from bermo.methods.finetune import finetune
        from bermo.report.terminal import TerminalDisplay
        from bermo.training.job import Stopped

    results = {}
    display = TerminalDisplay()
    for name, spec in experiment.arms.items():
        display.tell(
            f"\n{name}: {spec.data.task}, {spec.model.backbone}, mix {spec.model.mix.kind or USUAL_MIX}"
        )
        try:
            results[name] = finetune(spec, out / name, display, data if spec.data == first else None)
        except Stopped as stopped:
            return say_stopped(stopped)
    if is_main_process():
        print_results(results, out)
    return 0


def check_arms(experiment: Experiment, out: Path) -> None:
    """Refuse an experiment of which an arm cannot be, before any work."""
    from bermo.verbs.starting import check_before

    made = [str(out / name) for name in experiment.arms]
    for name, spec in experiment.arms.items():
        check_before(check(spec), out / name, made)


def spread_experiment(experiment: Experiment, out: Path, spread: SpreadSpec) -> int:
    """Run the arms side by side as jobs of an engine, then print them, and those that failed."""
    from bermo.jobs.drive import drive, failures_text
    from bermo.jobs.engines import check_engine, make_executor
    from bermo.jobs.job import jobs_of
    from bermo.runs.statistics import read_run
    from bermo.verbs.starting import say_start

    check_engine(spread)
    check_arms(experiment, out)
    jobs = jobs_of(experiment, out)
    say_start("run", f"{len(jobs)} arms into {out}, on {spread.on}")
    failed = drive(make_executor(spread, out), jobs, spread.retries, lambda text: say(text, sys.stderr))
    results = {job.name: read_run(job.folder, job.seeds) for job in jobs if job.name not in failed}
    if results:
        print_results(results, out)
    if failed:
        say(failures_text(failed, out), sys.stderr)
    return 1 if failed else 0


def print_results(results: Mapping[str, RunResult], out: Path) -> None:
    """Print runs side by side, and the layers' shares of each."""
    from bermo.report.console import PlainConsole
    from bermo.report.terminal import about_choice, results_table, weight_bars

    console = PlainConsole()
    console.print()
    console.print(results_table(results))
    if said := about_choice(results):
        console.print(said, markup=False)
    for name, result in results.items():
        if result.seeds[0].has_shares:
            console.print(f"\n{name}: share of each layer")
            console.print(weight_bars(result.seeds[0].mix_layers, result.seeds[0].mix_weights))
    console.print(f"\nResults are in {out}", markup=False)


VERB = Verb(help="run a recipe", options=RunOptions, run=run)
