"""torch and transformers are imported with the same result in less time.

While it is imported, transformers reads the sources of all its models twice to learn their public names, and
the list of files of every installed package to learn which distribution a package is of. torch looks up the
line of source at which each of its own operators is defined. Together this is a third of the start of a
command. Here the sources are read once and only their ends are looked at, a package is asked for when its
name is, and a place in the source is known without its text.
"""

import importlib.abc
import importlib.metadata
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, lru_cache, partial
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

PUBLIC = "\n__all__"


@contextmanager
def quick_imports() -> Iterator[None]:
    """Import torch and transformers quickly inside the block, where they are not imported yet."""
    if "transformers" in sys.modules:
        yield
        return
    finder = AfterImport({"transformers.utils.import_utils": read_once_})
    sys.meta_path.insert(0, finder)
    list_all, place = importlib.metadata.packages_distributions, inspect.getframeinfo
    try:
        setattr(importlib.metadata, list_all.__name__, lambda: Distributions(list_all))
        setattr(inspect, place.__name__, partial(place, context=0))
        yield
    finally:
        sys.meta_path.remove(finder)
        setattr(importlib.metadata, list_all.__name__, list_all)
        setattr(inspect, place.__name__, place)


class AfterImport(importlib.abc.MetaPathFinder):
    """Finds some modules as Python does, and changes each once it is executed."""

    def __init__(self, changes: Mapping[str, Callable[[ModuleType], None]]) -> None:
        self.changes = changes

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in self.changes else None
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            self.changes[name](module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def read_once_(module: ModuleType) -> None:
    """Let transformers read each source once, and look for public names at its end alone."""
    scan: Any = getattr(module, "create_import_structure_from_path", None)
    if hasattr(scan, "__wrapped__") and hasattr(module, "fetch__all__"):
        module.create_import_structure_from_path = lru_cache(maxsize=None)(scan.__wrapped__)  # type: ignore[attr-defined]
        module.fetch__all__ = partial(public_names, module.fetch__all__)  # type: ignore[attr-defined]


def public_names(read: Callable[[str], list[str]], source: str) -> list[str]:
    """Return what `read` finds in a source: the names of the last line that begins with `__all__`."""
    return read(source[max(0, source.rfind(PUBLIC) + 1) :])


class Distributions(Mapping[str, list[str]]):
    """Which distributions each package is of; all are read only where the package's own name does not say."""

    def __init__(self, list_all: Callable[[], Mapping[str, list[str]]]) -> None:
        self.list_all = list_all

    @cached_property
    def known(self) -> Mapping[str, list[str]]:
        return self.list_all()

    def get(self, name: str, default: Any = None) -> Any:
        """Return the distributions of a package; the one of its own name where there is one."""
        if importlib.util.find_spec(name) is None:
            return default
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            return self.known.get(name, default)
        return [name.replace("_", "-")]

    def __getitem__(self, name: str) -> list[str]:
        return self.known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.known)

    def __len__(self) -> int:
        return len(self.known)
