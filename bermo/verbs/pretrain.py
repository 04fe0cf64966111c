"""bermo pretrain: an encoder from bare text. The options are the fields of `PretrainSpec`."""

import sys
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

from bermo.pretrain_spec import PretrainSpec
from bermo.spec import leaves, override
from bermo.verbs.ending import is_main_process, say_stopped
from bermo.verbs.importing import importing
from bermo.verbs.show import show_value

HELP = "make an encoder and its vocabulary from bare text"
GROUPS = {
    "text": "the text",
    "shape": "the encoder",
    "objective": "what is learned",
    "pace": "training",
    "seed": "seed and saving",
    "half": "seed and saving",
}


def add_options(parser: ArgumentParser) -> None:
    parser.usage = "bermo pretrain --text FILE… [--steps N | --minutes M] [options]"
    parser.add_argument(
        "--out", default="runs/pretrain", help="folder of the run; the same command goes on there"
    )
    groups = {title: parser.add_argument_group(title) for title in dict.fromkeys(GROUPS.values())}
    for leaf in leaves(PretrainSpec()):
        shown = "" if leaf.default in (None, ()) else f" [{show_value(leaf.default)}]"
        extra: dict[str, Any] = {"nargs": "?", "const": "true"} if leaf.is_switch else {}
        if leaf.dotted == "text.files":
            extra = {"nargs": "+"}
        groups[GROUPS[leaf.dotted.split(".")[0]]].add_argument(
            f"--{leaf.flag}",
            dest=leaf.dotted,
            metavar="X",
            help=(leaf.help + shown).replace("%", "%%"),
            **extra,
        )


def spec_of(options: Namespace) -> PretrainSpec:
    """Return the spec that the command line describes."""
    spec = PretrainSpec()
    for leaf in leaves(spec):
        given = getattr(options, leaf.dotted)
        if leaf.dotted == "text.files":
            spec = replace(spec, text=replace(spec.text, files=tuple(given or ())))
        elif given is not None:
            spec = override(spec, leaf.dotted, given, f"--{leaf.flag}")
    return spec


def run(options: Namespace) -> int:
    from bermo.pretrain_spec import check_pretrain

    spec = check_pretrain(spec_of(options))

    with importing():
        from bermo.methods.pretraining.run import pretrain
        from bermo.report.terminal import TerminalDisplay, duration
        from bermo.training.job import Stopped

    try:
        result = pretrain(spec, Path(options.out), TerminalDisplay())
    except Stopped as stopped:
        return say_stopped(stopped)
    if not is_main_process():
        return 0
    for name, value in result.values.items():
        print(f"held-out {name:<11} {value:10.2f}")
    print(f"parameters           {result.num_parameters:10,}")
    print(f"steps                {result.steps:10,}   {result.epochs:.2f} passes over the text")
    print(f"tokens/s             {result.tokens_per_second:10,.0f}   {duration(result.seconds)} in all")
    if result.diverged:
        print(f"It diverged: {result.diverged}. Try a smaller --lr or more steps.", file=sys.stderr)
    print(f"\nThe encoder is in {options.out}/model: bermo train --model {options.out}/model …")
    return 0
