"""python scripts/make_licences.py: docs/licences.md, the licence of every package of constraints.txt."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from scripts.dependencies import Package, installed, parts_of_bermo  # noqa: E402
from scripts.make_lock import pinned  # noqa: E402

PAGE = ROOT / "docs" / "licences.md"
HEAD = (
    "# Licences of the packages\n\n"
    "bermo is under Apache-2.0. These are the packages that it is tested with (`constraints.txt`), and the"
    " licence that each\nnames in its own metadata. Those for users come with `pip install bermo` or one of"
    " its extras; the others are tools of\nthose who work on it. The page is made by `python"
    " scripts/make_licences.py`.\n\n"
    "| package | version | licence | for |\n| --- | --- | --- | --- |\n"
)


def page() -> str:
    """Return the page; a package that is not installed here, or in another version, keeps its line."""
    users, before = {package.name for package in parts_of_bermo()}, lines()
    rows = []
    for name, version in sorted(pinned().items()):
        package = installed(name)
        is_here = package is not None and package.version == version
        rows.append(row(package, name in users) if package and is_here else before.get(name, ""))
    return HEAD + "".join(rows)


def row(package: Package, is_for_users: bool) -> str:
    """Return the line of a package."""
    who = "users" if is_for_users else "developers"
    return f"| {package.name} | {package.version} | {package.licence} | {who} |\n"


def lines() -> dict[str, str]:
    """Return the lines of the page as it is, by the package's name."""
    text = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    found = [line + "\n" for line in text.splitlines() if line.startswith("| ")]
    # After the head of the table and the line below it.
    return {line[2:].partition(" ")[0]: line for line in found[2:]}


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
