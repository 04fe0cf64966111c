"""The packages that bermo is installed with, as their own metadata describe them."""

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from packaging.requirements import Requirement

from scripts.make_lock import ROOT, normal

LONGEST_LICENCE = 60
"""Letters of a licence's name; what is longer is the licence itself."""
CLASSIFIER = "License :: OSI Approved :: "
EXTRAS = ("parquet", "xlsx", "onnx", "openvino", "nncf", "slurm", "search", "serve")
"""What users install; the tools of developers are no part of the wheel's list of parts."""


@dataclass(frozen=True, kw_only=True)
class Package:
    """A package that is installed: its version without the mark of a build, its licence, what it requires."""

    name: str
    version: str
    licence: str
    requires: tuple[str, ...] = ()


def installed(name: str) -> Package | None:
    """Return what a package says of itself, or None where it is not installed."""
    try:
        found = distribution(name)
    except PackageNotFoundError:
        return None
    version = found.version.partition("+")[0]  # torch marks builds for the CPU
    return Package(
        name=normal(name),
        version=version,
        licence=_licence(found),
        requires=tuple(sorted(_required(found.requires or ()))),
    )


def own() -> Package:
    """Return bermo itself as pyproject.toml describes it, with what it and its extras require."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional = project["optional-dependencies"]
    texts = [*project["dependencies"], *(text for extra in EXTRAS for text in optional[extra])]
    return Package(
        name=project["name"],
        version=project["version"],
        licence=project["license"],
        requires=tuple(sorted(_required(texts) - {project["name"]})),
    )


def parts_of_bermo() -> list[Package]:
    """Return every package that bermo and its extras need here, and what those need."""
    waiting = set(own().requires)
    known: dict[str, Package] = {}
    while waiting:
        name = waiting.pop()
        package = installed(name)
        if name not in known and package is not None:
            known[name] = package
            waiting |= set(package.requires)
    return sorted(known.values(), key=lambda package: package.name)


def _required(texts: Iterable[str]) -> set[str]:
    """Return the names of the requirements that count on this system, without extras."""
    wanted = [Requirement(text) for text in texts]
    return {
        normal(item.name) for item in wanted if item.marker is None or item.marker.evaluate({"extra": ""})
    }


def _licence(found: Distribution) -> str:
    """Return the expression of a licence, or its name in an older field, or in a classifier."""
    facts = found.metadata
    known = facts.get("License-Expression")
    named = (facts.get("License") or "").strip()
    classifiers = facts.get_all("Classifier") or ()
    classes = [item.removeprefix(CLASSIFIER) for item in classifiers if item.startswith(CLASSIFIER)]
    if known:
        return str(known)
    if named and len(named) <= LONGEST_LICENCE and "\n" not in named:
        return named
    return " AND ".join(classes) or "not stated"
