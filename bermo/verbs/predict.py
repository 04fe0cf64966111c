"""bermo predict: a trained model's answers to a file of texts."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from bermo.verbs.importing import importing

HELP = "apply a trained model to a file of texts"


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("run", help="a run's folder, a saved model's, or an export's")
    parser.add_argument("file", help="texts: one a line, or .tsv .csv .jsonl .parquet with the same columns")
    parser.add_argument("--out", help="write there instead of printing")
    parser.add_argument("--batch-size", type=int, default=64, help="rows at a time [64]")


def run(options: Namespace) -> int:
    with importing():
        from bermo.methods.predict import predict_file
        from bermo.report.terminal import TerminalDisplay
        from bermo.ship.runtimes.candidate import open_for_prediction

    predict_file(
        Path(options.run),
        Path(options.file),
        Path(options.out) if options.out else None,
        options.batch_size,
        TerminalDisplay(),
        lambda opened: open_for_prediction(opened.folder, opened.trained),
    )
    return 0
