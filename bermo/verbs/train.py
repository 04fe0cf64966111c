"""bermo train: one spec from the command line. The options are the fields of `RunSpec`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bermo.fields import Rules, option
from bermo.spec import USUAL_MIX, MixSpec, RunSpec, replace_in
from bermo.verbs.ahead import wake_gpu_
from bermo.verbs.ending import is_main_process, say_stopped
from bermo.verbs.importing import importing
from bermo.verbs.light import is_of_several, keep_memory_
from bermo.verbs.verb import Verb

OwnKind = Literal["classification", "multi-label", "regression", "tagging", "span", "embedding", "reranker"]


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """What to train, and the folder of the run."""

    out: Path | None = option(
        None, "folder of the run; the same command goes on there", shown="runs/TASK-MIX"
    )
    kind: OwnKind | None = option(
        None,
        "what your own files are for, the same as --task own/KIND; an embedding keeps the encoder's last"
        " layer unless a mix other than the default is named",
    )
    spec: RunSpec = RunSpec()

    def rules(self) -> Rules:
        return [
            (
                self.kind is None or self.spec.data.task in ("own", f"own/{self.kind}"),
                f"--kind {self.kind} is for your own files, but the task is {self.spec.data.task}. Leave one"
                " out.",
            )
        ]


def with_kind(spec: RunSpec, kind: OwnKind | None) -> RunSpec:
    """Return the spec for the kind of the user's own files.

    The plain encoder is the default of a sentence encoder: it was trained for its vectors as they are, and
    sentence-transformers can load it.
    """
    spec = spec if kind is None else replace_in(spec, data={"task": f"own/{kind}"})
    if spec.data.task == "own/embedding" and spec.model.mix == MixSpec():
        spec = replace_in(spec, model={"mix": MixSpec(kind="none")})
    return spec


def run(options: TrainOptions) -> int:
    from bermo.data.load import load_task
    from bermo.data.own_metric import is_function
    from bermo.verbs.starting import check_before, data_name, say_start

    spec = with_kind(options.spec, options.kind)
    out = options.out or Path(f"runs/{spec.data.task.replace('/', '-')}-{spec.model.mix.kind or USUAL_MIX}")
    check_before(spec, out)
    if spec.train.device != "cpu" and not is_of_several():
        wake_gpu_()
    say_start("train", f"reading {data_name(spec.data)}")
    data = load_task(spec.data)

    # A tracker, or a function of the user's own, may import anything.
    needs_all = spec.train.tracker != "none" or is_function(spec.data.metric)
    keep_memory_()
    with importing("all" if needs_all else "training"):
        from bermo.methods.finetune import finetune
        from bermo.report.terminal import TerminalDisplay, print_result
        from bermo.training.devices import half_hint
        from bermo.training.job import Stopped

    display = TerminalDisplay()
    if is_main_process() and (hint := half_hint(spec.train)):
        display.tell(hint)
    try:
        result = finetune(spec, out, display, data)
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
