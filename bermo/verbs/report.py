"""bermo report: runs and findings as one page that opens anywhere."""

from dataclasses import dataclass
from pathlib import Path

from bermo.fields import Rules, option, positional
from bermo.printing import say, wrapped
from bermo.verbs.verb import Verb


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """What the page shows, and where it is written."""

    paths: tuple[Path, ...] = positional(
        "run folders, and folders with figures.json", is_list=True, metavar="PATH"
    )
    out: Path = option(Path("report.html"), "the page to write")

    def rules(self) -> Rules:
        is_page = self.out.suffix.lower() in ("", ".html", ".htm")
        return [(is_page, f"--out is a page for a browser and must end in .html, but got {self.out}.")]


def run(options: ReportOptions) -> int:
    from bermo.report.page import write_page

    left_out = write_page(list(options.paths), options.out)
    if left_out:
        names = ", ".join(map(str, left_out))
        say(wrapped(f"Left out, since there is no run and no figures.json in it: {names}"))
    size = options.out.stat().st_size / 1024
    say(wrapped(f"The page is {options.out} ({size:.0f} KiB). Open it in a browser."))
    return 0


VERB = Verb(help="one page about runs and findings: figures, tables", options=ReportOptions, run=run)
