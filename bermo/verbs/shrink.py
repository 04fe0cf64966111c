"""bermo shrink: what a model no longer uses is deleted for real, into a smaller model of its own."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from bermo.errors import BermoError
from bermo.verbs.importing import importing

if TYPE_CHECKING:
    from bermo.ship.shrink.run import FisherSpec

HELP = "delete dead heads, neurons, layers and words; choose them first with --fisher"

SEARCH = ("density", "speedup", "data", "train", "valid")
"""Options that mean something only with --fisher."""


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("run", help="a run's folder, or a saved model's")
    parser.add_argument("--out", required=True, help="folder of the smaller model")
    parser.add_argument(
        "--vocabulary",
        nargs="+",
        metavar="FILE",
        default=[],
        help="texts, one a line: only their words stay, and all letters",
    )
    parser.add_argument(
        "--read-share",
        type=float,
        default=0.001,
        help="top layers go that together have at most this share of the mix [0.001]",
    )
    search = parser.add_argument_group("choosing without training (Fisher)")
    search.add_argument(
        "--fisher",
        action="store_true",
        help="choose heads and neurons by Fisher information, then refit",
    )
    search.add_argument("--density", type=float, help="share of the weights that is kept")
    search.add_argument(
        "--speedup", type=float, help="how many times faster, by times measured on this machine"
    )
    search.add_argument("--data", help="the folder with the named task's files; default: the run's data")
    search.add_argument("--train", help="your training file; default: the run's")
    search.add_argument("--valid", help="your validation file; default: the run's")
    search.add_argument("--examples", type=int, default=2048, help="training rows to learn from [2048]")
    search.add_argument("--batch-size", type=int, default=32, help="rows at a time, and in the timing [32]")
    search.add_argument("--length", type=int, default=128, help="tokens of a text in the timing [128]")
    search.add_argument(
        "--device", choices=("auto", "cpu"), default="auto", help="auto takes a GPU where there is one"
    )


def run(options: Namespace) -> int:
    with importing():
        from rich.console import Console
        from rich.table import Table

        from bermo.report.terminal import TerminalDisplay, duration
        from bermo.ship.shrink.run import make_small, result_rows

    result = make_small(
        Path(options.run),
        Path(options.out),
        TerminalDisplay(),
        _fisher(options),
        [Path(file) for file in options.vocabulary],
        options.read_share,
    )
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for title in ("before", "after"):
        table.add_column(title, justify="right")
    for row in result_rows(result):
        table.add_row(*row)
    console = Console(highlight=False)
    console.print(table)
    console.print(f"\nThe model is in {options.out}, made in {duration(result.seconds)}.", markup=False)
    return 0


def _fisher(options: Namespace) -> "FisherSpec | None":
    """Return the search that was asked for; its options without --fisher are an error."""
    from bermo.ship.shrink.run import FisherSpec

    given = [name for name in SEARCH if getattr(options, name) is not None]
    if not options.fisher:
        if given:
            raise BermoError(f"--{given[0]} belongs to the search without training. Add --fisher.")
        return None
    return FisherSpec(
        folder=options.data,
        train=options.train,
        valid=options.valid,
        density=options.density,
        speedup=options.speedup,
        examples=options.examples,
        batch_size=options.batch_size,
        length=options.length,
        device=options.device,
    )
