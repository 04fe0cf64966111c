"""Quick imports find what slow ones find."""

import importlib.metadata
import inspect
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import transformers
from transformers.utils import import_utils

from bermo.encoders.quick_import import (
    AfterImport,
    Distributions,
    public_names,
    quick_imports,
    read_once_,
)

MODELS = Path(transformers.__file__).parent / "models"


def slow_reader() -> Callable[[str], list[str]]:
    """transformers' own function; where bermo was imported first, ours is before it."""
    found = import_utils.fetch__all__
    return found.args[0] if isinstance(found, partial) else found


def test_the_public_names_are_those_that_transformers_finds() -> None:
    sources = [
        path.read_text(encoding="utf-8") for path in (*MODELS.glob("b*/*.py"), *MODELS.glob("a*/*.py"))
    ]
    sources += [
        "",
        '__all__ = ["a"]',
        'x = 1\n__all__ = ["a"]\n__all__ = [\n    "b",\n]\n',
        '"__all__"',
        "a\n__all__",
    ]
    read = slow_reader()
    assert len(sources) > 100
    assert [public_names(read, source) for source in sources] == [read(source) for source in sources]


def test_each_source_is_read_once_and_gives_the_same_structure(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("create_import_structure_from_path", "fetch__all__")
    for name in names:
        monkeypatch.setattr(import_utils, name, getattr(import_utils, name))
    monkeypatch.setattr(import_utils, "fetch__all__", slow_reader())
    expected = import_utils.create_import_structure_from_path.__wrapped__(str(MODELS / "bert"))
    read_once_(import_utils)
    assert import_utils.create_import_structure_from_path(str(MODELS / "bert")) == expected
    assert import_utils.create_import_structure_from_path.cache_parameters()["maxsize"] is None


def test_distributions_are_found_by_the_packages_name_and_else_among_all() -> None:
    real = importlib.metadata.packages_distributions()
    calls = []
    quick = Distributions(lambda: calls.append(1) or real)
    assert quick.get("tokenizers") == ["tokenizers"] == real["tokenizers"]
    assert quick.get("no_such_package", []) == []
    assert not calls
    assert quick.get("yaml") == real["yaml"] == ["PyYAML"]
    assert quick["yaml"] == ["PyYAML"]
    assert dict(quick) == real
    assert len(calls) == 1


def test_a_module_is_changed_after_it_was_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "quick_example.py").write_text("value = 1\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    finder = AfterImport({"quick_example": lambda module: setattr(module, "value", module.value + 1)})
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    import quick_example  # type: ignore[import-not-found]

    assert quick_example.value == 2
    monkeypatch.delitem(sys.modules, "quick_example")


def test_python_is_as_it_was_after_the_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    before = (list(sys.meta_path), importlib.metadata.packages_distributions, inspect.getframeinfo)
    with quick_imports():
        assert inspect.getframeinfo is before[2], "transformers is imported already: nothing is changed"
    monkeypatch.delitem(sys.modules, "transformers")
    with quick_imports():
        assert inspect.getframeinfo(sys._getframe()).filename == __file__
        assert isinstance(importlib.metadata.packages_distributions(), Distributions)
    assert (list(sys.meta_path), importlib.metadata.packages_distributions, inspect.getframeinfo) == before
