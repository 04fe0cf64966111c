"""bermo shrink: what a model no longer uses is deleted for real, into a smaller model of its own."""

from dataclasses import dataclass
from pathlib import Path

from bermo.fields import REQUIRED, Rules, group, option, positional
from bermo.ship.shrink.spec import READ_SHARE, FisherSpec, Ranks, check_fisher
from bermo.verbs.importing import importing
from bermo.verbs.verb import Verb

SEARCH = "choosing without training (Fisher)"
SEARCH_ONLY = {
    "density": "density",
    "speedup": "speedup",
    "folder": "data",
    "train": "train",
    "valid": "valid",
}
"""Fields of FisherSpec that mean nothing without --fisher, and their flags."""


@dataclass(frozen=True, kw_only=True)
class ShrinkOptions:
    """Which model, what is deleted from it, and where the smaller one goes."""

    run: Path = positional("a run's folder, or a saved model's")
    out: Path = option(REQUIRED, "folder of the smaller model", metavar="FOLDER")
    vocabulary: tuple[Path, ...] = option(
        (), "texts, one a line: only their words are kept, and all letters", metavar="FILE", is_list=True
    )
    read_share: float = option(
        READ_SHARE,
        "top layers are deleted that together have at most this share of the mix",
        least=0,
        under=1,
    )
    stock: bool = option(
        False, "a shape and a class that stock transformers loads: equal neurons, all heads, no mix"
    )
    ranks: Ranks = group(Ranks(), "low rank, without training")
    is_fisher: bool = option(
        False, "choose heads and neurons by Fisher information, then refit", "fisher", title=SEARCH
    )
    fisher: FisherSpec = group(FisherSpec(), SEARCH)

    def rules(self) -> Rules:
        given = [flag for name, flag in SEARCH_ONLY.items() if getattr(self.fisher, name) is not None]
        return [
            (
                self.is_fisher or not given,
                f"--{''.join(given[:1])} belongs to the search without training. Add --fisher.",
            ),
            (
                not (self.stock and self.is_fisher),
                "--fisher gives every layer another shape, which --stock cannot say. Leave one out.",
            ),
            (
                not self.stock or self.ranks == Ranks(),
                "--stock is a class of transformers', which has no factors of low rank. Leave one out.",
            ),
        ]


def run(options: ShrinkOptions) -> int:
    from bermo.runs.folder import check_empty
    from bermo.runs.model_files import find_model
    from bermo.verbs.starting import check_files, say_start

    fisher = options.fisher
    check_empty(options.out)
    if options.is_fisher:
        check_fisher(fisher)
    check_files(*options.vocabulary, fisher.train, fisher.valid)
    find_model(options.run)
    say_start("shrink", f"loading {options.run}")
    with importing("training"):
        from rich.table import Table

        from bermo.report.console import PlainConsole
        from bermo.report.terminal import TerminalDisplay, duration
        from bermo.ship.shrink.run import make_small, result_rows

    result = make_small(
        options.run,
        options.out,
        TerminalDisplay(),
        fisher if options.is_fisher else None,
        options.vocabulary,
        options.read_share,
        options.stock,
        None if options.ranks == Ranks() else options.ranks,
    )
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for title in ("before", "after"):
        table.add_column(title, justify="right")
    for row in result_rows(result):
        table.add_row(*row)
    console = PlainConsole()
    console.print(table)
    console.print(f"\nThe model is in {options.out}, made in {duration(result.seconds)}.", markup=False)
    return 0


VERB = Verb(
    help="delete dead heads, neurons, layers and words, or factorise; choose first with --fisher",
    options=ShrinkOptions,
    run=run,
)
