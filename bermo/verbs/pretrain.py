"""bermo pretrain: an encoder from bare text. The options are the fields of `PretrainSpec`."""

import sys
from dataclasses import dataclass
from pathlib import Path

from bermo.fields import option
from bermo.pretrain_spec import PretrainSpec
from bermo.printing import wrapped
from bermo.verbs.ending import is_main_process, say_stopped
from bermo.verbs.importing import importing
from bermo.verbs.light import keep_memory_
from bermo.verbs.verb import Verb


@dataclass(frozen=True, kw_only=True)
class PretrainOptions:
    """What to pretrain, and the folder of the run."""

    out: Path = option(Path("runs/pretrain"), "folder of the run; the same command goes on there")
    spec: PretrainSpec = PretrainSpec()


def run(options: PretrainOptions) -> int:
    from bermo.encoders.where import resolve
    from bermo.runs.folder import check_free
    from bermo.verbs.starting import say_start

    text, spec = options.spec.text, options.spec
    check_free(options.out, spec)
    for name in (text.tokenizer, spec.shape.model, spec.objective.teacher):
        if name is not None:
            resolve(name)
    say_start("pretrain", f"reading {', '.join(Path(file).name for file in text.files)}")
    keep_memory_()
    with importing("training"):
        from bermo.methods.pretraining.run import pretrain
        from bermo.report.terminal import TerminalDisplay, duration
        from bermo.training.job import Stopped

    try:
        result = pretrain(options.spec, options.out, TerminalDisplay())
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
        told = f"It diverged: {result.diverged}. Try a smaller --lr or more steps."
        print(wrapped(told), file=sys.stderr)
    if (options.out / "model").is_dir():
        print(f"\nThe encoder is in {options.out}/model. Use it:")
        print(f"  bermo train --model {options.out}/model …")
    return 0


VERB = Verb(
    help="make an encoder and its vocabulary from bare text",
    options=PretrainOptions,
    run=run,
    usage="bermo pretrain --text FILE… [--steps N | --minutes M] [options]",
)
