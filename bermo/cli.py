"""The command line: verbs -> functions. Heavy imports live inside the verbs, so --help is instant.

The options of `train` are the fields of `RunSpec`: a field's metadata gives its flag and its help.
"""

import argparse
import inspect
import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

from bermo.errors import BermoError, nearest
from bermo.spec import Experiment, RunSpec, leaves, override

STOPPED = 128  # a command ended by signal N exits with 128 + N, as shells expect


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are ours: one sentence, the nearest known name."""

    def error(self, message: str) -> NoReturn:
        raise BermoError(f"{message}. See: {self.prog} --help")


def build_parser() -> Parser:
    """Declare all verbs and their options."""
    parser = Parser(prog="bermo", description=DESCRIPTION, allow_abbrev=False)
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", parser_class=Parser)

    demo = verbs.add_parser(
        "demo", help="train plain and mixed side by side, offline", allow_abbrev=False
    )
    demo.add_argument("--out", default="runs/demo", help="folder of the run (runs/demo)")

    train = verbs.add_parser(
        "train",
        help="train on your own file or a named task",
        usage="bermo train --train FILE --valid FILE | --task NAME --data FOLDER [options]",
        allow_abbrev=False,
    )
    train.add_argument(
        "--out", help="folder of the run; the same command goes on there (runs/TASK-MIX)"
    )
    groups = {name: train.add_argument_group(title) for name, title in GROUPS.items()}
    for leaf in leaves(RunSpec()):
        shown = "" if leaf.default is None else f" [{_show(leaf.default)}]"
        extra: dict[str, Any] = {"nargs": "?", "const": "true"} if leaf.is_switch else {}
        groups[leaf.dotted.split(".")[0]].add_argument(
            f"--{leaf.flag}",
            dest=leaf.dotted,
            metavar="X",
            help=_escape(leaf.help + shown),
            **extra,
        )

    verbs.add_parser("list", help="name the recipes and tasks")
    show = verbs.add_parser("show", help="print a recipe: question, source, cost, spec")
    show.add_argument("recipe")
    run = verbs.add_parser("run", help="run a recipe", allow_abbrev=False)
    run.add_argument("recipe")
    run.add_argument(
        "changes", nargs="*", metavar="dotted.field=value", help="change a field in every arm"
    )
    run.add_argument("--seeds", help="how many seeds, or which")
    run.add_argument("--arms", help="only these arms, e.g. plain,mix")
    run.add_argument("--tiny", action="store_true", help="the form that ends in seconds")
    run.add_argument("--out", help="folder of the results (runs/RECIPE)")

    predict = verbs.add_parser(
        "predict", help="apply a trained model to a file of texts", allow_abbrev=False
    )
    predict.add_argument("run", help="a run's folder, or a saved model's")
    predict.add_argument(
        "file", help="texts: one a line, or .tsv .csv .jsonl .parquet with the same columns"
    )
    predict.add_argument("--out", help="write there instead of printing")
    predict.add_argument("--batch-size", type=int, default=64, help="rows at a time [64]")
    return parser


GROUPS = {
    "model": "the model",
    "data": "the data",
    "train": "training",
    "prune": "pruning",
    "distill": "a teacher",
    "seeds": "seeds",
}
FULL_DISK = (
    "The disk is full. What was saved before is whole: make room, and the same command goes on."
)
DESCRIPTION = "Mix, fine-tune, prune, probe and ship Transformer encoders."


def main(arguments: list[str] | None = None) -> int:
    """Run the command; a user's mistake is one sentence and exit code 2."""
    try:
        return _dispatch(sys.argv[1:] if arguments is None else arguments)
    except BermoError as error:
        print(f"bermo: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("bermo: Stopped. What was saved is whole; the same command goes on.", file=sys.stderr)
        return STOPPED + signal.SIGINT
    except BrokenPipeError:  # `bermo list | head`: the reader has gone, and so may we
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return STOPPED + signal.SIGPIPE

    except Exception as error:
        # safetensors has an error class of its own for a full disk, with no number in it.
        if "No space left on device" not in str(error):
            raise
        print(f"bermo: {FULL_DISK}", file=sys.stderr)
        return 1


def _dispatch(arguments: list[str]) -> int:
    parser = build_parser()
    options, rest = parser.parse_known_args(arguments)
    if options.verb == "run":  # argparse takes positional words before the first option only
        options.changes += [word for word in rest if not word.startswith("-")]
        rest = [word for word in rest if word.startswith("-")]
    if rest:
        flags = {f"--{leaf.flag}" for leaf in leaves(RunSpec())} | {
            "--out",
            "--tiny",
            "--arms",
            "--help",
        }
        raise BermoError(f'Unknown option "{rest[0]}".{nearest(rest[0].split("=")[0], flags)}')
    if options.verb in ("train", "demo", "run", "predict"):
        _quieten()
    match options.verb:
        case "train":
            return _train(options)
        case "demo":
            return _demo(options)
        case "list":
            return _list()
        case "show":
            return _show_recipe(options.recipe)
        case "run":
            return _run(options)
        case "predict":
            return _predict(options)
        case _ if options.version:
            from importlib.metadata import version

            print(version("bermo"))
        case _:
            parser.print_help()
    return 0


def _train(options: argparse.Namespace) -> int:
    spec = RunSpec()
    for leaf in leaves(spec):
        text = getattr(options, leaf.dotted)
        if text is not None:
            spec = override(spec, leaf.dotted, text, f"--{leaf.flag}")
    out = options.out or f"runs/{spec.data.task.replace('/', '-')}-{spec.model.mix.kind}"

    from bermo.job import Stopped
    from bermo.methods.finetune import finetune
    from bermo.report.terminal import TerminalDisplay, print_result

    try:
        result = finetune(spec, Path(out), TerminalDisplay())
    except Stopped as stopped:
        return _say_stopped(stopped)
    if _is_main_process():
        print_result(result, out)
    return 0


def _demo(options: argparse.Namespace) -> int:
    from bermo.recipes import find

    code = _run_experiment(find("demo")(), Path(options.out))
    if code == 0:
        print(DEMO_NOTE + NEXT_STEPS)
    return code


DEMO_NOTE = """
The question was whether a sentence's subject is singular or plural. Guessing gives 50, a bag of words 80.6.
This is one seed of an untrained encoder: whether the mix helps is not shown by it (--seeds asks that).
"""
NEXT_STEPS = """
What to do next:
  bermo train --train my.csv --valid dev.csv --out runs/mine     your own texts and labels
  bermo train … --mix none                                       the plain encoder, as a baseline
  bermo train … --seeds 5                                        mean and interval over five seeds
  bermo predict runs/mine texts.txt                              use what you trained
  bermo list                                                     recipes and tasks"""


def _run(options: argparse.Namespace) -> int:
    from bermo.recipes import change, choose, find, tiny

    experiment = find(options.recipe)()
    if options.arms:
        experiment = choose(experiment, options.arms.split(","))
    if options.tiny:
        experiment = tiny(experiment)
    pairs = [text.partition("=") for text in options.changes]
    pairs += [("seeds", "=", options.seeds)] if options.seeds else []
    for dotted, equals, text in pairs:
        if not equals:
            raise BermoError(
                f'"{dotted}" is no change. Write dotted.field=value, e.g. train.lr=1e-4.'
            )
        experiment = change(experiment, dotted, text)
    form = "-tiny" if options.tiny else ""
    out = options.out or f"runs/{options.recipe.replace('/', '-')}{form}"
    return _run_experiment(experiment, Path(out))


def _run_experiment(experiment: Experiment, out: Path) -> int:
    """Run every arm into its own folder, then print them side by side."""
    from rich.console import Console

    from bermo.job import Stopped
    from bermo.methods.finetune import finetune
    from bermo.report.terminal import TerminalDisplay, results_table, weight_bars
    from bermo.runs import check_free
    from bermo.spec import check

    for name, spec in experiment.arms.items():
        check_free(out / name, check(spec))
    results = {}
    display = TerminalDisplay()
    for name, spec in experiment.arms.items():
        display.tell(
            f"\n{name}: {spec.data.task}, {spec.model.backbone}, mix {spec.model.mix.kind}"
        )
        try:
            results[name] = finetune(spec, out / name, display)
        except Stopped as stopped:
            return _say_stopped(stopped)
    if _is_main_process():
        console = Console(highlight=False)
        console.print()
        console.print(results_table(results))
        for name, result in results.items():
            if len(result.seeds[0].mix_weights) > 1:
                console.print(f"\n{name}: share of each layer")
                console.print(weight_bars(result.seeds[0].mix_layers, result.seeds[0].mix_weights))
        console.print(f"\nResults are in {out}", markup=False)
    return 0


def _say_stopped(stopped: Exception) -> int:
    print(f"bermo: {stopped} The same command goes on from there.", file=sys.stderr)
    return STOPPED + int(stopped.signal_number)  # type: ignore[attr-defined]


def _list() -> int:
    from bermo.data.tasks import TASKS
    from bermo.recipes import RECIPES

    print("Recipes (bermo show NAME, bermo run NAME):")
    for name, recipe in RECIPES.items():
        print(f"  {name:<14} {_first_line(recipe.__doc__)}")
    print("\nTasks (bermo train --task NAME --data FOLDER; box/… need no files):")
    for name, task in TASKS.items():
        print(f"  {name:<26} {task.kind}, {task.metric}")
    return 0


def _show_recipe(name: str) -> int:
    from bermo.recipes import find

    recipe = find(name)
    print(inspect.cleandoc(recipe.__doc__ or ""))
    for arm, spec in recipe().arms.items():
        print(f"\n{arm}:")
        for leaf in leaves(spec):
            print(f"  {leaf.dotted:<26} {_show(leaf.default)}")
    return 0


def _predict(options: argparse.Namespace) -> int:
    from bermo.methods.predict import predict_file
    from bermo.report.terminal import TerminalDisplay

    predict_file(
        Path(options.run),
        Path(options.file),
        Path(options.out) if options.out else None,
        options.batch_size,
        TerminalDisplay(),
    )
    return 0


def _quieten() -> None:
    """Keep transformers' own bars off the screen: progress is shown once, by us."""
    from transformers.utils import logging

    logging.disable_progress_bar()


def _is_main_process() -> bool:
    return int(os.environ.get("RANK", "0")) == 0


def _first_line(text: str | None) -> str:
    return (text or "").strip().split("\n")[0]


def _show(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _escape(text: str) -> str:
    return text.replace("%", "%%")  # argparse formats help texts


if __name__ == "__main__":
    sys.exit(main())
