"""Links and anchors lead somewhere, lines are short, and the text is about encoders."""

import re
from pathlib import Path

import pytest

from tests.docs.documents import FENCE, ROOT, documents, name_of, prose, slug

LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
WORK = re.compile(
    r"\b([Ss]ession|[Ll]ease|[Ss]trangers?|issue [0-9]+|prototype|[Ss]tretch|20\d\d-\d\d-\d\d)\b"
)
"""Words about how and when the work was done, or about goals that no reader knows."""
SOURCES = ("*.md", "*.py", "*.sh")


def anchors(path: Path) -> set[str]:
    """Return the anchors of a document's headings."""
    known: dict[str, int] = {}
    for line in prose(path).splitlines():
        if line.startswith("#"):
            name = slug(line.lstrip("#"))
            known[name] = known.get(name, -1) + 1
    return {name if not k else f"{name}_{k}" for name, count in known.items() for k in range(count + 1)}


@pytest.mark.parametrize("path", documents(), ids=name_of)
def test_every_link_leads_to_a_file_and_to_a_heading_in_it(path: Path) -> None:
    for link in LINK.finditer(prose(path)):
        target, _, anchor = link["target"].partition("#")
        if target.startswith(("http:", "https:")):
            continue
        to = (path.parent / target).resolve() if target else path
        assert to.exists(), f"{name_of(path)} links to {target}"
        assert to.is_relative_to(ROOT), f"{name_of(path)} links out of the repository: {target}"
        assert to.is_file(), f"{name_of(path)} links to a folder, which no site shows: {target}"
        if anchor:
            assert anchor in anchors(to), f"{name_of(path)} links to #{anchor} of {name_of(to)}"


@pytest.mark.parametrize("path", documents(), ids=name_of)
def test_lines_have_at_most_120_characters(path: Path) -> None:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        is_unbroken = line.startswith("|") or line.lstrip().startswith(("![", "http"))
        assert is_unbroken or len(line) <= 120, f"{name_of(path)}:{number} has {len(line)} characters"


@pytest.mark.parametrize("path", documents(), ids=name_of)
def test_a_document_says_nothing_about_how_the_work_went(path: Path) -> None:
    match = WORK.search(path.read_text(encoding="utf-8"))
    assert match is None, f"{name_of(path)} says {match[0] if match else ''}"


@pytest.mark.parametrize("path", documents(), ids=name_of)
def test_every_fence_names_its_language_and_closes(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    kinds = {block["kind"] for block in FENCE.finditer(text)}
    assert kinds <= {"bash", "console", "python", "text"}, f"{name_of(path)} has a fence of kind {kinds}"
    assert len(re.findall(r"^```", text, flags=re.M)) == 2 * len(FENCE.findall(text)), name_of(path)
