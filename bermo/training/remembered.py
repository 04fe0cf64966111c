"""Which fused kernels earlier runs on this machine found right: a file in the cache.

A finding holds for what it may depend on: the GPU, the versions of torch, Triton and transformers, our
kernels, the structure of the model, and the shape of the batch. What was found wrong is compared again, and
told again.
"""

import hashlib
import importlib.metadata
import json
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

from torch import nn

from bermo.errors import BermoError
from bermo.files import cache_root, write_json

PACKAGE = Path(__file__).parents[1]
SOURCES = ("nn/fast", "training")
VERSIONS = ("torch", "triton", "transformers")
MOST = 10_000


class Remembered:
    """The findings about one model on one GPU."""

    def __init__(self, model: nn.Module, gpu: str) -> None:
        self.path = cache_root(None) / "kernels.json"
        self.model, self.gpu = model, gpu

    @cached_property
    def digest(self) -> str:
        """What all findings about this model on this GPU have in common."""
        sizes = (
            (name, tuple(value.shape), str(value.dtype)) for name, value in self.model.named_parameters()
        )
        parts = [self.gpu, *map(_version, VERSIONS), repr(self.model), *map(str, sizes), *_sources()]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def has(self, shapes: str) -> bool:
        """Tell whether the kernels were found right for batches of these shapes."""
        return f"{self.digest}: {shapes}" in self._read()

    def add(self, shapes: str) -> None:
        """Remember that the kernels are right; a cache that cannot be written is left alone."""
        known = [*self._read(), f"{self.digest}: {shapes}"]
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_json(self.path, known[-MOST:])
        except (OSError, BermoError):
            return

    def _read(self) -> list[str]:
        try:
            known = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return []
        return [name for name in known if isinstance(name, str)] if isinstance(known, list) else []


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def _sources() -> Iterable[str]:
    for folder in SOURCES:
        for path in sorted((PACKAGE / folder).glob("*.py")):
            yield path.read_text(encoding="utf-8")
