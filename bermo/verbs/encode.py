"""bermo encode: one vector for each text of a file, by any encoder in any form."""

from dataclasses import dataclass
from pathlib import Path

from bermo.fields import REQUIRED, option, positional
from bermo.ship.runtimes.spec import EncodeSpec
from bermo.verbs.importing import importing_answers
from bermo.verbs.verb import Verb


@dataclass(frozen=True, kw_only=True)
class EncodeOptions:
    """Which encoder reads which texts, and where the vectors go."""

    model: Path = positional(
        "a folder of sentence-transformers, an encoder, a run, a saved or shrunk model or an export; or box"
    )
    file: Path = positional("texts: one a line (.txt), or .tsv .csv .jsonl .parquet with a column of texts")
    out: Path = option(
        REQUIRED, "the file of the vectors, numpy's .npy: (texts, units), float32", metavar="FILE"
    )
    spec: EncodeSpec = EncodeSpec()


def run(options: EncodeOptions) -> int:
    from bermo.runs.model_files import find_model
    from bermo.verbs.starting import check_files, check_new, say_start

    find_model(options.model)
    check_files(options.file)
    check_new(options.out)
    say_start("encode", f"{options.file.name} by {options.model}")
    with importing_answers(options.model):
        from bermo.report.terminal import TerminalDisplay
        from bermo.ship.runtimes.embed import encode_file

    encode_file(options.model, options.file, options.out, options.spec, TerminalDisplay())
    return 0


VERB = Verb(
    help="texts to vectors, one a text: a sentence encoder in any form", options=EncodeOptions, run=run
)
