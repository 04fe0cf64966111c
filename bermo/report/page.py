"""One self-contained page: every figure drawn, told in words, and as a table to sort and to copy.

The page needs no network and no other file. Its policy (CSP) allows nothing but its own style and script,
by their hashes. The same sources give the same bytes.
"""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from bermo.errors import BermoError
from bermo.figures import colours
from bermo.figures.data import Figure, Findings, Table, as_table
from bermo.figures.draw import draw, to_svg
from bermo.figures.table import kept, to_html_table
from bermo.files import check_place, write_text
from bermo.report.collect import collect
from bermo.report.overlay import on_one_scale, overlay
from bermo.report.overview import runs_findings

GENERATOR = '<meta name="generator" content="bermo report">'
FOLDER = Path(__file__).parent
WIDE = 520.0  # drawings beyond this take the whole width of the page
HEAD_BYTES = 4096
MAX_NAMES = 5  # in the page's title


def write_page(sources: Sequence[Path], out: Path) -> tuple[Path, ...]:
    """Write one page about all the runs and figures in `sources`; return those that hold none."""
    check_out(out)
    collected = collect(sources)
    findings = [runs_findings(collected.runs)] if collected.runs else []
    shared = overlay(collected.findings, collected.places)
    findings += [shared] if shared else []
    findings += on_one_scale(collected.findings)
    names = [item.title for item in collected.findings] + [run.name for run in collected.runs]
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    write_text(out, to_page(findings, f"bermo: {', '.join(names[:MAX_NAMES])}{more}"))
    return collected.left_out


def check_out(out: Path) -> None:
    """Refuse to write over anything but a page of ours."""
    if out.is_dir():
        raise BermoError(f"{out} is a folder. Give a file with --out, e.g. {out / 'report.html'}.")
    check_place(out)
    if not out.exists():
        return
    with out.open("rb") as file:
        head = file.read(HEAD_BYTES)
    if GENERATOR.encode() not in head:
        raise BermoError(
            f"{out} exists and was not written by bermo report; it is not overwritten. "
            "Give another file with --out."
        )


@dataclass(frozen=True, kw_only=True)
class Presented:
    """A figure as the template takes it: its title, its note, its numbers and, unless it is a table, its
    drawing.
    """

    title: str
    note: str
    rows: Markup
    drawing: Markup | None = None
    is_wide: bool = False


def to_page(findings: Sequence[Findings], title: str) -> str:
    """Return the page's HTML; the template escapes every text but what we write as HTML ourselves."""
    style = colours.style(":root") + (FOLDER / "page.css").read_text(encoding="utf-8")
    script = (FOLDER / "page.js").read_text(encoding="utf-8")
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return _template().render(
        title=title,
        findings=findings,
        policy=Markup(policy),
        generator=Markup(GENERATOR),
        style=Markup(style),
        script=Markup(script),
    )


def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(FOLDER, encoding="utf-8"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["present"] = _present
    environment.filters["kept"] = kept
    return environment.get_template("page.html")


def _present(figure: Figure) -> Presented:
    # Drawings and tables are written by hand (figures/): their numbers are placed by our own rules, not by
    # a plot library's.
    rows = Markup(to_html_table(as_table(figure)))
    if isinstance(figure, Table):
        return Presented(title=figure.title, note=figure.note, rows=rows)
    return Presented(
        title=figure.title,
        note=figure.note,
        rows=rows,
        drawing=Markup(to_svg(figure)),
        is_wide=draw(figure).width > WIDE,
    )


def _hash(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
