"""bermo run: a recipe's arms, one after the other, side by side in the end."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from bermo.errors import BermoError
from bermo.spec import Experiment
from bermo.verbs.ending import is_main_process, say_stopped
from bermo.verbs.importing import importing

HELP = "run a recipe"


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("recipe")
    parser.add_argument(
        "changes", nargs="*", metavar="dotted.field=value", help="change a field in every arm"
    )
    parser.add_argument("--seeds", help="how many seeds, or which")
    parser.add_argument("--arms", help="only these arms, e.g. plain,mix")
    parser.add_argument("--tiny", action="store_true", help="the form that ends in seconds")
    parser.add_argument("--out", help="folder of the results (runs/RECIPE)")


def run(options: Namespace) -> int:
    from bermo.recipes import change, choose, find, tiny

    experiment = find(options.recipe)()
    if options.arms:
        experiment = choose(experiment, options.arms.split(","))
    form = "-tiny" if options.tiny else ""
    out = Path(options.out or f"runs/{options.recipe.replace('/', '-')}{form}")
    if options.tiny:
        experiment = tiny(experiment, out)
    pairs = [text.partition("=") for text in options.changes]
    pairs += [("seeds", "=", options.seeds)] if options.seeds else []
    for dotted, equals, text in pairs:
        if not equals:
            raise BermoError(f'"{dotted}" is no change. Write dotted.field=value, e.g. train.lr=1e-4.')
        experiment = change(experiment, dotted, text)
    return run_experiment(experiment, out)


def run_experiment(experiment: Experiment, out: Path) -> int:
    """Run every arm into its own folder, then print them side by side."""
    with importing():
        from rich.console import Console

        from bermo.methods.finetune import finetune
        from bermo.report.terminal import TerminalDisplay, results_table, weight_bars
        from bermo.runs.folder import check_free
        from bermo.spec import check
        from bermo.training.job import Stopped

    for name, spec in experiment.arms.items():
        check_free(out / name, check(spec))
    results = {}
    display = TerminalDisplay()
    for name, spec in experiment.arms.items():
        display.tell(f"\n{name}: {spec.data.task}, {spec.model.backbone}, mix {spec.model.mix.kind}")
        try:
            results[name] = finetune(spec, out / name, display)
        except Stopped as stopped:
            return say_stopped(stopped)
    if is_main_process():
        console = Console(highlight=False)
        console.print()
        console.print(results_table(results))
        for name, result in results.items():
            if len(result.seeds[0].mix_weights) > 1:
                console.print(f"\n{name}: share of each layer")
                console.print(weight_bars(result.seeds[0].mix_layers, result.seeds[0].mix_weights))
        console.print(f"\nResults are in {out}", markup=False)
    return 0
