"""Modules that all who import torch import, and few use: imported when something of them is asked for."""

import importlib
import importlib.util
import sys
from collections.abc import Collection
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import Any

TAKING_OUT = Lock()


class NotYet(ModuleType):
    """Stands for a module until something of it is asked for. Of `classes` it gives stand-ins too, which
    others import by name and seldom make objects of.
    """

    def __init__(self, name: str, classes: Collection[str] = (), is_package: bool = False) -> None:
        super().__init__(name)
        self._is_package = is_package
        for own in classes:
            setattr(self, own, _class_of(self, own))

    def __getattr__(self, name: str) -> Any:
        is_path = name == "__path__" and self._is_package
        if name.startswith("__") and not is_path:  # asked of modules of any kind
            raise AttributeError(name)
        return getattr(bring_back(self.__name__), name)


def _class_of(module: NotYet, name: str) -> type:
    def make(cls: type, *args: Any, **options: Any) -> Any:
        return getattr(bring_back(module.__name__), name)(*args, **options)

    return type(name, (), {"__new__": make})


def leave_out_(name: str, classes: Collection[str] = ()) -> None:
    """Let a module of a package that is not imported yet be imported when something of it is asked for, where
    the package has such a module.
    """
    package, *rest = name.split(".")
    if package in sys.modules:
        return
    found = importlib.util.find_spec(package)
    places = found.submodule_search_locations if found is not None else None
    paths = [Path(place, *rest) for place in places or ()]
    is_package = any((path / "__init__.py").is_file() for path in paths)
    if is_package or any(path.with_suffix(".py").is_file() for path in paths):
        sys.modules.setdefault(name, NotYet(name, classes, is_package))


def is_left_out(name: str) -> bool:
    """Tell whether a stand-in is in a module's place."""
    return isinstance(sys.modules.get(name), NotYet)


def bring_back(name: str) -> ModuleType:
    """Return the module itself, imported if it was not."""
    with TAKING_OUT:
        if is_left_out(name):
            del sys.modules[name]
    return importlib.import_module(name)
