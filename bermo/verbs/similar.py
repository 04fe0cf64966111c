"""bermo similar: the texts of a file that are nearest in meaning to a query."""

from dataclasses import dataclass
from pathlib import Path

from bermo.fields import Rules, option, positional
from bermo.printing import say
from bermo.ship.runtimes.spec import SearchSpec
from bermo.verbs.importing import importing_answers
from bermo.verbs.verb import Verb


@dataclass(frozen=True, kw_only=True)
class SimilarOptions:
    """Which encoder searches which texts for what."""

    model: Path = positional(
        "a folder of sentence-transformers, an encoder, a run, a saved or shrunk model or an export; or box"
    )
    file: Path = positional(
        "the texts that are searched: one a line (.txt), or a file with a column of texts"
    )
    query: tuple[str, ...] = option(
        (), "what is searched for; may be repeated", metavar="TEXT", is_repeated=True
    )
    spec: SearchSpec = SearchSpec()

    def rules(self) -> Rules:
        is_filled = bool(self.query) and all(text.strip() for text in self.query)
        return [(is_filled, 'There is nothing to search for. Pass --query "a text".')]


def run(options: SimilarOptions) -> int:
    from bermo.runs.model_files import find_model
    from bermo.verbs.starting import check_files, say_start

    find_model(options.model)
    check_files(options.file, options.spec.vectors)
    say_start("similar", f"{options.file.name} by {options.model}")
    with importing_answers(options.model):
        from bermo.report.terminal import TerminalDisplay
        from bermo.ship.runtimes.embed import search

    found = search(options.model, options.file, options.query, options.spec, TerminalDisplay())
    for query, texts in zip(options.query, found, strict=True):
        if len(found) > 1:
            say(query)
        for item in texts:
            say(f"{item.score:.4f}  {item.number}: {item.text}")
    return 0


VERB = Verb(
    help="search a file for the texts nearest in meaning to a query",
    options=SimilarOptions,
    run=run,
    usage='bermo similar MODEL FILE --query "…" [options]',
)
