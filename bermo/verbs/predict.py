"""bermo predict: a trained model's answers to a file of texts."""

from dataclasses import dataclass
from pathlib import Path

from bermo.fields import option, positional
from bermo.verbs.importing import importing
from bermo.verbs.verb import Verb


@dataclass(frozen=True, kw_only=True)
class PredictOptions:
    """Which model answers which texts, and where the answers go."""

    run: Path = positional("a run's folder, a saved model's, or an export's")
    file: Path = positional("texts: one a line, or .tsv .csv .jsonl .parquet with the same columns")
    out: Path | None = option(None, "write there instead of printing", metavar="FILE")
    batch_size: int = option(64, "rows at a time", least=1)


def run(options: PredictOptions) -> int:
    from bermo.runs.model_files import find_model
    from bermo.verbs.starting import check_files, check_new, say_start

    check_new(options.out)
    find_model(options.run)
    check_files(options.file)
    say_start("predict", f"{options.run} on {options.file.name}")
    with importing():
        from bermo.methods.predict import predict_file
        from bermo.report.terminal import TerminalDisplay
        from bermo.ship.runtimes.candidate import open_for_prediction

    predict_file(
        options.run,
        options.file,
        options.out,
        options.batch_size,
        TerminalDisplay(),
        open_for_prediction,
    )
    return 0


VERB = Verb(help="apply a trained model to a file of texts", options=PredictOptions, run=run)
