"""bermo train: one spec from the command line. The options are the fields of `RunSpec`."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from bermo.spec import RunSpec, leaves, override
from bermo.verbs.ending import is_main_process, say_stopped
from bermo.verbs.importing import importing
from bermo.verbs.show import show_value

HELP = "train on your own file or a named task"
GROUPS = {
    "model": "the model",
    "data": "the data",
    "train": "training",
    "prune": "pruning",
    "distill": "a teacher",
    "seeds": "seeds",
}


def add_options(parser: ArgumentParser) -> None:
    parser.usage = "bermo train --train FILE --valid FILE | --task NAME --data FOLDER [options]"
    parser.add_argument("--out", help="folder of the run; the same command goes on there (runs/TASK-MIX)")
    add_spec_options(parser)


def add_spec_options(parser: ArgumentParser) -> None:
    """Declare a flag for every field of a run's spec, in groups."""
    groups = {name: parser.add_argument_group(title) for name, title in GROUPS.items()}
    for leaf in leaves(RunSpec()):
        shown = "" if leaf.default is None else f" [{show_value(leaf.default)}]"
        extra: dict[str, Any] = {"nargs": "?", "const": "true"} if leaf.is_switch else {}
        groups[leaf.dotted.split(".")[0]].add_argument(
            f"--{leaf.flag}",
            dest=leaf.dotted,
            metavar="X",
            help=(leaf.help + shown).replace("%", "%%"),  # argparse formats help texts
            **extra,
        )


def spec_of(options: Namespace, spec: RunSpec) -> RunSpec:
    """Return `spec` with the fields that the command line named."""
    for leaf in leaves(spec):
        text = getattr(options, leaf.dotted)
        if text is not None:
            spec = override(spec, leaf.dotted, text, f"--{leaf.flag}")
    return spec


def run(options: Namespace) -> int:
    spec = spec_of(options, RunSpec())
    out = options.out or f"runs/{spec.data.task.replace('/', '-')}-{spec.model.mix.kind}"

    with importing():
        from bermo.methods.finetune import finetune
        from bermo.report.terminal import TerminalDisplay, print_result
        from bermo.training.job import Stopped

    try:
        result = finetune(spec, Path(out), TerminalDisplay())
    except Stopped as stopped:
        return say_stopped(stopped)
    if is_main_process():
        print_result(result, out)
    return 0
