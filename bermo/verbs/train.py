"""bermo train: one spec from the command line. The options are the fields of `RunSpec`."""

from dataclasses import dataclass
from pathlib import Path

from bermo.fields import option
from bermo.spec import RunSpec
from bermo.verbs.ending import is_main_process, say_stopped
from bermo.verbs.importing import importing
from bermo.verbs.verb import Verb


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """What to train, and the folder of the run."""

    out: Path | None = option(
        None, "folder of the run; the same command goes on there", shown="runs/TASK-MIX"
    )
    spec: RunSpec = RunSpec()


def run(options: TrainOptions) -> int:
    from bermo.data.load import load_task
    from bermo.verbs.starting import check_before, data_name, say_start

    spec = options.spec
    out = options.out or Path(f"runs/{spec.data.task.replace('/', '-')}-{spec.model.mix.kind}")
    check_before(spec, out)
    say_start("train", f"reading {data_name(spec.data)}")
    data = load_task(spec.data)

    with importing():
        from bermo.methods.finetune import finetune
        from bermo.report.terminal import TerminalDisplay, print_result
        from bermo.training.job import Stopped

    try:
        result = finetune(spec, out, TerminalDisplay(), data)
    except Stopped as stopped:
        return say_stopped(stopped)
    if is_main_process():
        print_result(result, str(out))
    return 0


VERB = Verb(
    help="train on your own file or a named task",
    options=TrainOptions,
    run=run,
    usage="bermo train --train FILE [--valid FILE] [options]\n"
    "       bermo train --task NAME --data FOLDER [options]",
)
