"""bermo report: runs and findings as one page that opens anywhere."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

HELP = "one page about runs and findings: figures, tables"


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("paths", nargs="+", metavar="PATH", help="run folders, and folders with figures.json")
    parser.add_argument("--out", default="report.html", help="the page to write [report.html]")


def run(options: Namespace) -> int:
    from bermo.report.page import write_page

    out = Path(options.out)
    write_page([Path(path) for path in options.paths], out)
    print(f"The page is {out} ({out.stat().st_size / 1024:.0f} KiB). Open it in a browser.")
    return 0
