"""A stand-in for a module becomes the module when something of it is asked for."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bermo.encoders.not_yet import bring_back, is_left_out, leave_out_

ASIDE = "print('seen'); COUNT = []\nclass Thing:\n    def __init__(self, size):\n        self.size = size\n"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = "package_that_is_not_yet"
    (tmp_path / name / "inner").mkdir(parents=True)
    (tmp_path / name / "__init__.py").write_text("")
    (tmp_path / name / "aside.py").write_text(ASIDE)
    (tmp_path / name / "inner" / "__init__.py").write_text("VALUE = 3\n")
    (tmp_path / name / "inner" / "deep.py").write_text(f"from {name}.inner import VALUE\nTWICE = 2 * VALUE\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield name
    for module in [module for module in sys.modules if module.partition(".")[0] == name]:
        del sys.modules[module]


def test_a_class_is_imported_by_name_without_its_module_and_is_the_module_s_own_when_made(
    package: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"{package}.aside"
    leave_out_(name, ("Thing",))
    space: dict[str, type] = {}
    exec(f"import {package}\nfrom {name} import Thing", space)
    assert is_left_out(name)
    assert capsys.readouterr().out == ""
    made = space["Thing"](size=4)
    assert not is_left_out(name)
    assert type(made) is sys.modules[name].Thing
    assert made.size == 4


def test_anything_else_of_it_brings_it_back_once_for_all_threads(
    package: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"{package}.aside"
    leave_out_(name)
    stand_in = sys.modules[name]
    with pytest.raises(AttributeError):
        stand_in.__wrapped__  # noqa: B018
    assert is_left_out(name)
    with ThreadPoolExecutor(4) as threads:
        counts = list(threads.map(lambda _: stand_in.COUNT, range(16)))
    assert all(count is sys.modules[name].COUNT for count in counts)
    assert capsys.readouterr().out == "seen\n"
    assert bring_back(name) is sys.modules[name]


def test_a_module_below_it_brings_back_the_package(package: str) -> None:
    name = f"{package}.inner"
    leave_out_(name)
    space: dict[str, int] = {}
    exec(f"from {name}.deep import TWICE", space)
    assert space["TWICE"] == 6
    assert not is_left_out(name)


def test_only_what_is_there_and_not_imported_is_left_out(package: str) -> None:
    for name in ("no_such_package.part", f"{package}.no_such_part", "torch.export"):
        leave_out_(name)
        assert not is_left_out(name)
