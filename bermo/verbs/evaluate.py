"""bermo evaluate: every score of a trained model on a test file with labels."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from bermo.fields import Rules, option, positional
from bermo.ship.runtimes.spec import EvaluateSpec
from bermo.verbs.importing import importing, importing_answers
from bermo.verbs.verb import Verb


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """Which model is tested on which file, and where the result goes."""

    run: Path = positional("a run's folder, a saved model's, or an export's")
    file: Path = positional("texts with their labels, in the form of the training file")
    spec: EvaluateSpec = EvaluateSpec()
    out: Path | None = option(None, "also write all of it there as JSON", metavar="FILE")
    figures: Path | None = option(
        None, "also write the figures of its errors to this folder, for bermo report", metavar="FOLDER"
    )

    def rules(self) -> Rules:
        ending = "" if self.out is None else self.out.suffix
        return [
            (ending in ("", ".json"), f"--out is written as JSON and must end in .json, but got {self.out}.")
        ]


def run(options: EvaluateOptions) -> int:
    from bermo.runs.model_files import find_model
    from bermo.verbs.starting import check_files, check_metric, check_new, say_start

    check_metric(options.spec.metric)
    check_new(options.out)
    check_new(options.figures, "--figures")
    for folder in (options.run, options.spec.against):
        if folder is not None:
            find_model(folder)
    check_files(options.file)
    say_start("evaluate", f"{options.run} on {options.file.name}")
    with _importing(options):
        from bermo.figures.data import write_findings
        from bermo.report.console import PlainConsole
        from bermo.report.evaluation import print_evaluation
        from bermo.report.mistakes import check_figures, evaluation_findings
        from bermo.report.terminal import TerminalDisplay
        from bermo.runs.trained import open_trained
        from bermo.ship.runtimes.evaluate import evaluate_file, write_evaluation

    if options.figures is not None:
        check_figures(open_trained(options.run).trained.task.kind, options.figures)
    evaluated = evaluate_file(options.run, options.file, options.spec, TerminalDisplay())
    if options.out is not None:
        write_evaluation(options.out, evaluated)
    if options.figures is not None:
        write_findings(options.figures / "figures.json", evaluation_findings(evaluated))
    print_evaluation(evaluated, PlainConsole())
    return 0


def _importing(options: EvaluateOptions) -> AbstractContextManager[None]:
    """Import what the evaluation needs: a function of the user's own may import anything, and a file says of
    which versions its scores are.
    """
    from bermo.data.own_metric import is_function

    if is_function(options.spec.metric):
        return importing()
    if options.out is not None:
        return importing("answers")
    return importing_answers(options.run, *([] if options.spec.against is None else [options.spec.against]))


VERB = Verb(
    help="score a trained model on a test file: every metric, each class, confusions, errors",
    options=EvaluateOptions,
    run=run,
)
