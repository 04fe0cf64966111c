"""The site builds from the documents without a warning, and holds a page for each of them."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from scripts import make_site
from tests.docs.documents import ROOT, documents, name_of

PROGRAM = Path(sys.executable).parent / "zensical"


@pytest.mark.skipif(not PROGRAM.exists(), reason="the docs extra is not installed")
def test_the_site_builds_strictly_and_holds_every_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(make_site, "SOURCE", tmp_path / "build" / "site-source")
    make_site.stage()
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    done = subprocess.run([PROGRAM, "build", "--strict"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    site = tmp_path / "site"
    for path in documents():
        name = (
            "index.html" if path == ROOT / "README.md" else name_of(path).replace("README.md", "index.html")
        )
        assert (site / name).with_suffix(".html").exists(), name
    start = (site / "index.html").read_text(encoding="utf-8")
    assert "front.svg" in start
    assert "fonts.googleapis" not in start


def in_navigation(item: object) -> list[str]:
    """Return the documents that a part of the navigation leads to."""
    match item:
        case str():
            return [item]
        case dict():
            return [path for part in item.values() for path in in_navigation(part)]
        case list():
            return [path for part in item for path in in_navigation(part)]
    raise TypeError(item)


def test_the_navigation_leads_to_every_document_once() -> None:
    project = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]
    wanted = ["index.md" if path == ROOT / "README.md" else name_of(path) for path in documents()]
    assert sorted(in_navigation(project["nav"])) == sorted(wanted)


def test_lists_and_tables_stand_apart_from_the_text_before_them() -> None:
    assert make_site.apart("a:\n- b\n- c\n") == "a:\n\n- b\n- c\n"
    assert make_site.apart("```text\na\n- b\n```\n") == "```text\na\n- b\n```\n"
