"""Where the files and folders are that a run was started with, so that it goes on from any folder.

spec.json keeps the paths as they were typed, and beside them where they led to: the absolute path, and the
way from the run's own folder, by which they are found after both were moved together.
"""

import os
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

DATA_PLACES = (
    "data.folder",
    "data.train",
    "data.valid",
    "data.metric",
    "distill.answers",
    "distill.unlabelled",
)
MODEL_PLACES = ("model.backbone", "distill.teacher", "shape.model", "objective.teacher")
Places = Mapping[str, Mapping[str, str]]


def find_places(values: Mapping[str, Any], out: Path) -> dict[str, dict[str, str]]:
    """Return where each path of a spec leads to from here, and from the folder of its run."""
    places: dict[str, dict[str, str]] = {}
    for dotted, typed in _paths(values):
        full = _absolute(typed)
        # "box" is the encoder in the package, and a name on the hub is no path.
        if typed == "box" or not full.exists():
            continue
        places[dotted] = {"absolute": str(full)}
        if full.drive == _absolute(out).drive:
            places[dotted]["from_run"] = Path(os.path.relpath(full, _absolute(out))).as_posix()
    return places


def locate(values: Mapping[str, Any], places: Places, out: Path) -> dict[str, Any]:
    """Return a spec's values with each path in the form in which it is found from here, if it is."""
    located = deepcopy(dict(values))
    for dotted, _ in _paths(values):
        found = _find(places.get(dotted, {}), out)
        if found is not None:
            group, name = dotted.split(".")
            located[group][name] = str(found)
    return located


def with_typed(values: dict[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with the paths of another spec in place of their own."""
    for dotted, _ in _paths(values):
        group, name = dotted.split(".")
        values[group][name] = known.get(group, {}).get(name)
    return values


def is_same_place(dotted: str, before: Any, after: Any) -> bool:
    """Tell whether two paths may lead to the same: data by its name, for its content is compared later."""
    if not isinstance(before, str) or not isinstance(after, str):
        return False
    if dotted in DATA_PLACES:
        return Path(before).name == Path(after).name
    return dotted in MODEL_PLACES and _absolute(before) == _absolute(after)


def _paths(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for dotted in (*DATA_PLACES, *MODEL_PLACES):
        group, name = dotted.split(".")
        typed = values.get(group, {}).get(name)
        if typed:
            yield dotted, typed


def _find(place: Mapping[str, str], out: Path) -> Path | None:
    ways = [Path(place["absolute"])] if "absolute" in place else []
    ways += [_absolute(out / place["from_run"])] if "from_run" in place else []
    return next((way for way in ways if way.exists()), None)


def _absolute(path: str | Path) -> Path:
    """Return the path without "..", but with its links: the name of a link says what kind of file it is."""
    return Path(os.path.normpath(Path.cwd() / Path(path).expanduser()))
