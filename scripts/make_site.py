"""Build the site from the Markdown of the repository, into site/.

    python scripts/make_site.py

README.md becomes the start page; docs/, results/ and the logs keep their folders, so that every link between
them holds as it does in the repository. Needs the docs extra (zensical). Nothing is fetched: the pages load
no font and no script from elsewhere.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "build" / "site-source"
LOOSE = ("SECURITY.md", "CHANGELOG.md", "LOG.md", "CONTRIBUTING.md", "AGENTS.md", "CITATION.cff")
FOLDERS = ("docs", "results")
START = "index.md"


def stage() -> None:
    """Copy what the site is made of into one folder."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    SOURCE.mkdir(parents=True)
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, SOURCE / folder)
    for name in LOOSE:
        shutil.copy(ROOT / name, SOURCE / name)
    shutil.copy(ROOT / "README.md", SOURCE / START)
    for path in SOURCE.rglob("*.md"):
        path.write_text(for_site(path), encoding="utf-8")


def for_site(path: Path) -> str:
    """Return a document whose README links lead to the start page, with an empty line before its lists."""
    text = path.read_text(encoding="utf-8")
    up = "../" * (len(path.relative_to(SOURCE).parts) - 1)
    text = text.replace(f"]({up}README.md", f"]({up}{START}") if path.name != START else text
    return apart(text)


def apart(text: str) -> str:
    """Put an empty line before every list and table that follows text: Python's Markdown needs it."""
    lines: list[str] = []
    is_code = False
    for line in text.splitlines():
        before = lines[-1] if lines else ""
        opens = re.match(r"(- |\d+\. |\||```)", line) is not None
        goes_on = before == "" or re.match(r"(- |\d+\. |\||  )", before) is not None
        if opens and not is_code and not goes_on:
            lines.append("")
        if line.startswith("```"):
            is_code = not is_code
        lines.append(line)
    return "\n".join(lines) + "\n"


def main() -> int:
    stage()
    program = Path(sys.executable).parent / "zensical"
    if not program.exists():
        print('The site needs zensical: pip install -c constraints.txt -e ".[docs]"', file=sys.stderr)
        return 2
    done = subprocess.run([program, "build", "--clean", "--config-file", ROOT / "zensical.toml"], cwd=ROOT)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
