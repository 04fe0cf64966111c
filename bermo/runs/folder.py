"""The folder of a run: who may write there, what it holds, and the numbers over its seeds.

    runs/mine/ = spec.json, result.json (over all seeds), model/ (the best seed's)
      seed-1/  = metrics.jsonl, result.json, model/, and checkpoints/ while it is under way

A folder belongs to one spec and one content of the data. The same command goes on where it stopped or, when
all is done, does nothing; another command on the same folder is refused, and nothing is overwritten.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from bermo.data.tasks import built_in
from bermo.elmo_spec import ElmoSpec
from bermo.errors import BermoError
from bermo.files import check_place, is_temporary, read_sealed, reading, write_sealed
from bermo.pretrain_spec import PretrainSpec
from bermo.runs.holder import OWN_FILES, held
from bermo.runs.model_files import SPEC_FILE
from bermo.runs.places import (
    DATA_PLACES,
    MODEL_PLACES,
    Places,
    find_places,
    is_same_place,
    locate,
    with_typed,
)
from bermo.spec import RunSpec, replace_in
from bermo.typed import check_fields
from bermo.values import from_dict, to_dict

Spec = RunSpec | PretrainSpec
T = TypeVar("T")

# These do not change what is computed, so a run may go on with others; more seeds may be asked for later.
FREE_FIELDS = (
    "seeds",
    "data.cache",
    "train.checkpoint_minutes",
    "train.tracker",
    "text.cache",
    "pace.checkpoint_minutes",
    "pace.tracker",
)

CHOSEN_FIELDS = (
    "model.head",
    "model.mix.init",
    "model.mix.kind",
    "model.pairs",
    "model.pooling",
    "prune.rank",
    "prune.scope",
    "train.average",
    "train.batch_size",
    "train.contrast",
    "train.epochs",
    "train.evaluations",
    "train.lr",
)
"""Fields that a command may leave open; the folder of its run keeps what was chosen, and goes on with it."""
EARLIER_VALUES = {
    "model.head": "random",
    "model.keep_layers": None,
    "model.keep_by": None,
    "model.pairs": "joined",
    "train.contrast": 0.0,
    "train.average": "off",
    "train.class_weights": None,
    "train.tune_thresholds": False,
    "prune.rewind": None,
    "distill.answers": None,
    "distill.unlabelled": None,
    "distill.named": None,
    "distill.cosine": 0.0,
    "distill.patient": 0.0,
    "distill.attention": 0.0,
    "distill.last_attention": 0.0,
    "distill.student_heads": 1.0,
    "distill.neighbours": 0.0,
    "data.split": None,
    "data.separator": None,
    "data.metric": None,
    "shape.model": None,
    "objective.teacher": None,
    "objective.teach_words": 5.0,
    "objective.teach_rows": 1.0,
    "objective.teach_layers": "all",
    "pace.only_head": False,
    "pace.recompute": False,
    "pace.optimizer": "adamw",
    "pace.lr_batch": None,
    "pace.layer_drop": 0.0,
    "pace.average": 0.0,
    "text.short_length": None,
    "text.short_steps": None,
    "method.tie_layers": None,
    "method.low_rank": None,
    "method.embedding_rank": None,
    "method.keep_tokens": None,
    "method.mix_path": None,
    "elmo": to_dict(ElmoSpec()),
}
"""What was computed before a field existed: a spec without the field means this value."""

READ_BY = {"rank": ("movement", "heads-and-neurons"), "scope": ("movement", "heads-and-neurons", "magnitude")}
"""Fields of pruning, and the methods that read them."""
"""The folder of a model inside the folder of its run or seed."""


@dataclass(frozen=True, kw_only=True)
class SpecFile:
    """What spec.json holds: the fixed part of the spec as plain values, the digest of the data, and where
    the paths of the spec lead to.
    """

    spec: dict[str, Any]
    digest: str
    places: Places


def fixed_part(spec: Spec) -> dict[str, Any]:
    """The spec as plain values without the fields that do not change what is computed."""
    values: dict[str, Any] = to_dict(spec)
    for dotted in FREE_FIELDS:
        *groups, name = dotted.split(".")
        inner = values
        for group in groups:
            inner = inner.get(group, {})
        inner.pop(name, None)
    return values


def identity(spec: Spec, digest: str, seed: int, out: Path | None = None) -> str:
    """A short name of everything that decides a training's numbers; paths are those that began the run."""
    values = fixed_part(spec)
    if out is not None and (out / SPEC_FILE).is_file():
        values = with_typed(values, read_spec_file(out).spec)
    for dotted, earlier in EARLIER_VALUES.items():
        group, _, name = dotted.rpartition(".")
        inner = values.get(group, {}) if group else values
        if name in inner and inner[name] == earlier:
            del inner[name]
    # A spec from before these methods existed has no such group.
    if not any(value is not None for value in values.get("method", {}).values()):
        values.pop("method", None)
    text = json.dumps([values, digest, seed], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def with_choices(out: Path, spec: RunSpec) -> RunSpec:
    """Return the spec with the values that were chosen for it when the run in the folder began."""
    if not (out / SPEC_FILE).is_file():
        return spec
    known = read_spec_file(out).spec
    for dotted in CHOSEN_FIELDS:
        spec = _filled(spec, dotted.split("."), known)
    return spec


def _filled(spec: T, names: Sequence[str], known: Mapping[str, Any]) -> T:
    """Return a spec with one field, of a spec inside it perhaps, as it is known, where it is open."""
    name, *inner = names
    value, there = getattr(spec, name), known.get(name)
    if inner:
        value = _filled(value, inner, there if isinstance(there, Mapping) else {})
    elif value is None:
        value = there
    return replace(spec, **{name: value})  # type: ignore[type-var]


def check_free(out: Path, spec: Spec) -> None:
    """Refuse a folder that holds something else, before any work starts."""
    if out.is_file():
        raise BermoError(f"{out} is a file. Give a folder that is new or empty with --out.")
    check_place(out)
    if not out.exists() or is_empty(out):
        return
    if not (out / SPEC_FILE).exists():
        raise BermoError(
            f"{out} is not empty and holds no run of bermo; nothing there is overwritten. "
            "Give another folder with --out."
        )
    known = read_spec_file(out)
    old = locate(known.spec, known.places, out)
    changes = _differences(old, fixed_part(with_choices(out, spec) if isinstance(spec, RunSpec) else spec))
    if changes:
        raise BermoError(
            f"{out} holds another run; nothing there is overwritten. What differs: "
            f"{'; '.join(changes)}. Give another folder with --out, or the command of that run."
        )


def is_empty(out: Path) -> bool:
    """Tell whether a folder holds nothing but a lock and what a killed write left."""
    return all(item.name in OWN_FILES or is_temporary(item) for item in out.iterdir())


def check_empty(out: Path) -> None:
    """Refuse a folder that holds something, before any work starts."""
    if out.is_file():
        raise BermoError(f"{out} is a file. Give a folder that is new or empty with --out.")
    check_place(out)
    if out.is_dir() and not is_empty(out):
        raise BermoError(
            f"{out} is not empty, and nothing there is overwritten. Give another folder with --out."
        )


def claim(out: Path, spec: Spec, digest: str) -> bool:
    """Write spec.json and return True; in the folder of the same run, check the data and return False."""
    if (out / SPEC_FILE).exists():
        if read_spec_file(out).digest != digest:
            raise BermoError(
                f"The data or the teacher of {out} has changed since it was started, or the metric's"
                " function. Give another folder with --out."
            )
        return False
    values = fixed_part(spec)
    write_sealed(out / SPEC_FILE, {"spec": values, "data": digest, "places": find_places(values, out)})
    return True


def release(out: Path) -> None:
    """Let a claimed folder go in which nothing was made."""
    for folder in filter(Path.is_dir, out.iterdir()):
        if any(folder.iterdir()):
            return
        folder.rmdir()
    (out / SPEC_FILE).unlink()


@contextmanager
def locked(out: Path) -> Iterator[None]:
    """Hold the folder for this process alone; it is free again even after kill -9.

    A new folder in which nothing was made goes again.
    """
    made = [part for part in (out, *out.parents) if not part.exists()]
    out.mkdir(parents=True, exist_ok=True)
    try:
        with held(out):
            yield
    finally:
        _remove_empty(made)


def _remove_empty(folders: Sequence[Path]) -> None:
    """Remove folders, the innermost first, as long as they hold nothing but a lock."""
    for folder in folders:
        if any(item.name not in OWN_FILES for item in folder.iterdir()):
            return
        for name in OWN_FILES:
            (folder / name).unlink(missing_ok=True)
        folder.rmdir()


def read_spec_file(out: Path) -> SpecFile:
    """Read spec.json of a run's folder."""
    path = out / SPEC_FILE
    with reading(path, "Restore this spec of the run, or use another folder."):
        values = read_sealed(path)
        _check_groups(values["spec"])
        known = SpecFile(
            spec=_with_earlier(dict(values["spec"])), digest=values["data"], places=values.get("places", {})
        )
        check_fields(known)
        return known


def _check_groups(values: dict[str, Any]) -> None:
    """Refuse values of a spec in which a group of fields is no object."""
    for dotted in (*FREE_FIELDS, *CHOSEN_FIELDS, *DATA_PLACES, *MODEL_PLACES):
        group, *inner = dotted.split(".")
        if inner and not isinstance(values.get(group, {}), dict):
            raise TypeError(f"{group} is {values[group]!r:.60}")


def _with_earlier(values: dict[str, Any]) -> dict[str, Any]:
    """Add the fields that a spec from before they existed lacks, and forget what its method never read."""
    for dotted, earlier in EARLIER_VALUES.items():
        group, _, name = dotted.rpartition(".")
        if group in values:
            values[group].setdefault(name, earlier)
    if "objective" in values:  # of a pretraining
        values.setdefault("elmo", EARLIER_VALUES["elmo"])
    if isinstance(prune := values.get("prune"), dict):
        # Once every spec held a ranking and a scope.
        for name, methods in READ_BY.items():
            if prune.get("method") not in methods:
                values["prune"] = prune = prune | {name: None}
    return values


def read_run_spec(out: Path) -> RunSpec:
    """Return the spec of a run that trained for a task, its paths as they are found from here; fields that
    change no number have their defaults, and so has a metric that was a function of the user's own.
    """
    known = read_spec_file(out)
    with reading(out / SPEC_FILE, "Restore this spec of the run, or use another folder."):
        spec = from_dict(RunSpec, locate(known.spec, known.places, out))
    # Nothing that a run's folder names is run: a metric of the user's own is typed each time.
    return replace_in(spec, data={"metric": built_in(spec.data.metric)})


def _differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    changes = []
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name), new.get(name)
        if isinstance(before, dict | None) and isinstance(after, dict):
            changes += _differences(before or {}, after, f"{prefix}{name}.")
        elif before != after and not is_same_place(prefix + name, before, after):
            changes.append(f"{prefix}{name} was {before}, now {after}")
    return changes
