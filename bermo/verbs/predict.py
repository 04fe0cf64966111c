"""bermo predict: a trained model's answers to texts from a file, standard input or the command line."""

import signal
from dataclasses import dataclass
from pathlib import Path

from bermo.fields import Rules, option, positional
from bermo.interrupts import SIGNALLED
from bermo.ship.runtimes.spec import PredictSpec
from bermo.verbs.importing import importing_answers
from bermo.verbs.verb import Verb

STDIN = Path("-")


@dataclass(frozen=True, kw_only=True)
class PredictOptions:
    """Which model answers which texts, and where the answers go."""

    run: Path = positional("a run's folder, a saved model's, or an export's")
    file: Path | None = positional(
        "texts: one a line (.txt), or .tsv .csv .jsonl .parquet with the columns of training, or a tagger's"
        " words with their tags; without it or with -, standard input",
        None,
    )
    text: tuple[str, ...] = option((), "a text to answer; may be repeated", metavar="TEXT", is_repeated=True)
    out: Path | None = option(None, "write there instead of printing: .jsonl, .csv or .tsv", metavar="FILE")
    spec: PredictSpec = PredictSpec()

    def rules(self) -> Rules:
        has_file = self.file not in (None, STDIN)
        return [
            (
                not (self.text and self.file),
                "Both a file and --text were given. Leave one out; every text needs a --text of its own.",
            ),
            (
                not (self.text and (self.spec.id or self.spec.truth)),
                "--id and --truth name columns of a file, and --text has none. Leave them out.",
            ),
            (
                self.spec.format is None or not (has_file or self.text),
                "--format is for standard input; a file's name says what it is. Leave it out.",
            ),
        ]


def run(options: PredictOptions) -> int:
    from bermo.runs.model_files import find_model
    from bermo.ship.runtimes.written import check_out
    from bermo.verbs.starting import check_files, say_start

    file = None if options.file == STDIN else options.file
    check_out(options.out)
    find_model(options.run)
    check_files(file)
    what = "--text" if options.text else "standard input" if file is None else file.name
    say_start("predict", f"{options.run} on {what}")
    with importing_answers(options.run):
        from bermo.report.terminal import TerminalDisplay
        from bermo.ship.runtimes.predict_file import predict_file

    try:
        predict_file(options.run, options.text or file, options.spec, options.out, TerminalDisplay())
    except KeyboardInterrupt:  # nothing was begun that would be worth a word
        return SIGNALLED + signal.SIGINT
    return 0


VERB = Verb(
    help="apply a trained model to texts: a file, standard input, or --text",
    options=PredictOptions,
    run=run,
)
