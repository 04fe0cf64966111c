"""One self-contained page: every figure drawn, told in words, and as a table to sort and to copy.

The page needs no network and no other file. Its policy (CSP) allows nothing but its own style and script, by their hashes. The
same sources give the same bytes.
"""

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from pathlib import Path

from bermo.errors import BermoError
from bermo.figures import colours
from bermo.figures.data import Figure, Findings, Section, Table, as_table
from bermo.figures.draw import draw, to_svg
from bermo.figures.table import to_html_table
from bermo.files import write_text
from bermo.report.collect import collect
from bermo.report.overview import runs_findings

GENERATOR = '<meta name="generator" content="bermo report">'
HERE = Path(__file__).parent
WIDE = 520.0  # drawings beyond this take the whole width of the page
HEAD_BYTES = 4096
MAX_NAMES = 5  # in the page's title


def write_page(sources: Sequence[Path], out: Path) -> None:
    """Write one page about all the runs and figures in `sources`."""
    check_out(out)
    collected = collect(sources)
    findings = [runs_findings(collected.runs)] if collected.runs else []
    findings += collected.findings
    names = [run.name for run in collected.runs] + [item.title for item in collected.findings]
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    write_text(out, to_page(findings, f"bermo: {', '.join(names[:MAX_NAMES])}{more}"))


def check_out(out: Path) -> None:
    """Refuse to write over anything but a page of ours."""
    if out.is_dir():
        raise BermoError(f"{out} is a folder. Give a file with --out, e.g. {out / 'report.html'}.")
    if not out.exists():
        return
    with out.open("rb") as file:
        head = file.read(HEAD_BYTES)
    if GENERATOR.encode() not in head:
        raise BermoError(
            f"{out} exists and was not written by bermo report; it is not overwritten. "
            "Give another file with --out."
        )


def to_page(findings: Sequence[Findings], title: str) -> str:
    """Return the page's HTML."""
    style = colours.style(":root") + (HERE / "page.css").read_text(encoding="utf-8")
    script = (HERE / "page.js").read_text(encoding="utf-8")
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    parts = "".join(_findings(item, f"s{index}") for index, item in enumerate(findings, start=1))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n{GENERATOR}\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<link rel="icon" href="data:,">\n<title>{escape(title)}</title>\n'
        f"<style>{style}</style>\n</head>\n<body>\n<header><h1>{escape(title)}</h1></header>\n"
        f"{_contents(findings)}\n<main>\n{parts}</main>\n<script>{script}</script>\n</body>\n</html>\n"
    )


def _hash(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def _contents(findings: Sequence[Findings]) -> str:
    items = []
    for index, item in enumerate(findings, start=1):
        links = "".join(
            f'<li><a href="#s{index}-{number}">{escape(section.title)}</a></li>'
            for number, section in enumerate(item.sections, start=1)
        )
        items.append(f'<li><a href="#s{index}">{escape(item.title)}</a><ul>{links}</ul></li>')
    return f'<nav aria-label="Contents"><ul>{"".join(items)}</ul></nav>'


def _findings(findings: Findings, name: str) -> str:
    facts = "".join(
        f"<div><dt>{escape(key)}</dt><dd>{escape(value)}</dd></div>" for key, value in findings.facts.items()
    )
    sections = "".join(
        _section(section, f"{name}-{number}") for number, section in enumerate(findings.sections, start=1)
    )
    listed = f"<dl>{facts}</dl>\n" if facts else ""
    return f'<section id="{name}">\n<h2>{escape(findings.title)}</h2>\n{listed}{sections}</section>\n'


def _section(section: Section, name: str) -> str:
    text = "".join(f"<p>{escape(part)}</p>\n" for part in section.text.split("\n\n") if part.strip())
    figures = "".join(map(_figure, section.figures))
    return (
        f'<details class="part" id="{name}" open><summary><h3>{escape(section.title)}</h3></summary>\n'
        f'{text}<div class="grid">\n{figures}</div></details>\n'
    )


def _figure(figure: Figure) -> str:
    """Write a figure with its title, its note, and its numbers below it."""
    title = f"<figcaption>{escape(figure.title)}</figcaption>\n"
    note = f'<p class="note">{escape(figure.note)}</p>\n' if figure.note else ""
    copy = '<button type="button" class="copy">Copy</button>'
    rows = f'<div class="scroll" tabindex="0">{to_html_table(as_table(figure))}</div>\n'
    if isinstance(figure, Table):
        return f'<figure class="table wide">{title}{rows}{note}{copy}</figure>\n'
    width = draw(figure).width
    kind = ' class="wide"' if width > WIDE else ""
    drawing = f'<div class="drawing" tabindex="0">{to_svg(figure)}</div>\n'
    numbers = f'<details class="numbers"><summary>Numbers</summary>{rows}{copy}</details>'
    return f"<figure{kind}>{title}{drawing}{note}{numbers}</figure>\n"
