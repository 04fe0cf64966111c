"""What `import bermo` offers: each name has an example that runs, and type checkers know it."""

import ast
import doctest
import inspect
import re
from pathlib import Path

import pytest
import torch

import bermo

NEEDS_FILES = {
    "import_elmo": "a released ELMo",
    "load_sparse": "an export",
    "finetune": "a table",
    "pretrain": "a text",
    "export_module": "a model of one's own",
}
"""Shown in the how-to of what they do, and run there."""


def examples_of(name: str) -> list[doctest.Example]:
    return doctest.DocTestParser().get_examples(inspect.getdoc(getattr(bermo, name)) or "")


def test_every_public_name_has_an_example_or_stands_in_anothers() -> None:
    code = {name: "".join(example.source for example in examples_of(name)) for name in bermo.__all__}
    shown = {name for name in code if code[name]} | set(re.findall(r"bermo\.(\w+)", "".join(code.values())))
    assert set(bermo.__all__) - shown == set(NEEDS_FILES)


@pytest.mark.usefixtures("real_box")
def test_the_examples_run_as_they_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shared = {"bermo": bermo, "torch": torch}
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    told: list[str] = []
    runner = doctest.DocTestRunner(optionflags=flags)
    for name in bermo.__all__:
        shown = doctest.DocTest(examples_of(name), shared, name, None, 0, None)
        runner.run(shown, out=told.append, clear_globs=False)
        shared = shown.globs
    assert not runner.failures, "".join(told)


def test_type_checkers_know_every_name() -> None:
    stub = ast.parse(Path(bermo.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    known = {
        alias.asname: node.module
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert known == bermo._PUBLIC


def test_the_first_screen_of_help_names_all_that_there_is() -> None:
    lines = (bermo.__doc__ or "").splitlines()
    assert len(lines) <= 24
    assert all(re.search(rf"\b{name}\b", bermo.__doc__ or "") for name in bermo.__all__)
