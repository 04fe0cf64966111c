"""What a page is made of: run folders, read back as records, and files of figures.

A folder may be a run, hold a `figures.json`, or hold such folders (the arms of a recipe); a path may also be
the file itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bermo.errors import BermoError, nearest
from bermo.figures.data import Findings, Number, read_findings
from bermo.files import DAMAGED, read_sealed, reading
from bermo.report.overlay import told_apart
from bermo.runs.folder import SPEC_FILE, read_spec_file
from bermo.runs.results import RunResult, SeedResult, read_seed
from bermo.runs.rows import METRICS_FILE, read_all_rows, read_rows
from bermo.runs.statistics import summarise

FIGURES = "figures.json"
# Known names that an error about an unknown one lists.
MAX_LISTED = 30
# More runs than these are a table: their curves are not read.
MANY = 200


@dataclass(frozen=True, kw_only=True)
class SeedRecord:
    """One training: its result, if it has ended, and the rows of its metrics."""

    seed: int
    result: SeedResult | None
    rows: tuple[Mapping[str, Number], ...]

    def curve(self, name: str) -> dict[int, float]:
        """Return a metric's value at each step that has one."""
        return {int(row["step"] or 0): value for row in self.rows if (value := row.get(name)) is not None}


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """A run's folder: its spec as plain values and its seeds."""

    name: str
    spec: Mapping[str, Any]
    seeds: tuple[SeedRecord, ...]

    @property
    def result(self) -> RunResult | None:
        """The seeds that have ended, together."""
        done = [seed.result for seed in self.seeds if seed.result is not None]
        return summarise(done) if done else None

    def metrics(self) -> list[str]:
        """Name the metrics of all seeds, in the order they were first written."""
        names = (name for seed in self.seeds for row in seed.rows for name in row)
        return [name for name in dict.fromkeys(names) if name not in ("step", "seconds")]


@dataclass(frozen=True, kw_only=True)
class Collected:
    """All that the given paths hold, and the paths that hold nothing for a page."""

    runs: tuple[RunRecord, ...]
    findings: tuple[Findings, ...]
    places: tuple[str, ...] = ()
    """The folders of the findings, by as many of their last names as tell them apart."""
    left_out: tuple[Path, ...] = ()


def collect(sources: Sequence[Path]) -> Collected:
    """Read every path; where none holds anything for a page, that is an error.

    Exports and models stand beside runs, so that `runs/*` names them too: they are left out.
    """
    folders: dict[Path, Mapping[str, Any]] = {}
    files: list[Path] = []
    left_out: list[Path] = []
    for source in dict.fromkeys(sources):
        found_folders, found_files = _look(source)
        folders |= found_folders
        files += found_files
        if not found_folders and not found_files:
            left_out.append(source)
    findings = [read_findings(file) for file in dict.fromkeys(files)]
    if not folders and not findings:
        raise BermoError(
            f"{left_out[0]} holds neither a training ({SPEC_FILE}) nor {FIGURES}, and no folder in it does."
            " Give run folders, or folders that a verb of bermo wrote."
        )
    has_rows = len(folders) <= MANY
    names = _names(list(folders))
    runs = [
        _read_run(folder, name, spec, has_rows)
        for (folder, spec), name in zip(folders.items(), names, strict=True)
    ]
    places = tuple(_names([file.parent for file in dict.fromkeys(files)]))
    return Collected(
        runs=tuple(runs),
        findings=tuple(told_apart(findings, places)),
        places=places,
        left_out=tuple(left_out),
    )


def _look(source: Path) -> tuple[dict[Path, Mapping[str, Any]], list[Path]]:
    """Return the run folders with their specs, and the files of figures, that a path stands for."""
    if not source.exists():
        beside = [item.name for item in source.parent.iterdir()] if source.parent.is_dir() else []
        hint = nearest(source.name, beside) if 0 < len(beside) <= MAX_LISTED else ""
        raise BermoError(f"There is no {source}.{hint} Give run folders, or folders with {FIGURES}.")
    if source.is_file():
        return {}, [source] if source.name == FIGURES else []
    inner = [source, *sorted(item for item in source.iterdir() if item.is_dir())]
    folders = {folder: spec for folder in inner if (spec := _training_spec(folder)) is not None}
    files = [folder / FIGURES for folder in inner if (folder / FIGURES).is_file()]
    # A run's own subfolders are its seeds and its model.
    if source in folders:
        folders = {source: folders[source]}
    return folders, files


def _names(folders: list[Path]) -> list[str]:
    """Name each run by as many of its last folders as tell it from the others."""
    parts = [folder.resolve().parts for folder in folders]
    for depth in range(1, max(map(len, parts), default=1) + 1):
        names = ["/".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return [str(folder) for folder in folders]


def _training_spec(folder: Path) -> Mapping[str, Any] | None:
    """Return the spec of a run that trained for a task; other runs are described by their figures."""
    if not (folder / SPEC_FILE).is_file():
        return None
    spec = read_spec_file(folder).spec
    try:
        named = (spec["data"]["task"], spec["model"]["backbone"], spec["model"]["mix"]["kind"])
    except (KeyError, TypeError):
        return None
    return spec if all(isinstance(value, str | None) for value in named) else None


def _read_run(folder: Path, name: str, spec: Mapping[str, Any], has_rows: bool) -> RunRecord:
    try:
        numbers = sorted(int(item.name.removeprefix("seed-")) for item in folder.glob("seed-*"))
        seeds = tuple(_read_seed(folder / f"seed-{number}", number, has_rows) for number in numbers)
        _check_ended(folder, seeds)
    except DAMAGED as error:
        raise BermoError(f"{folder} cannot be read as a run: {error}.") from error
    return RunRecord(name=name, spec=spec, seeds=seeds)


def _read_seed(folder: Path, number: int, has_rows: bool) -> SeedRecord:
    result, metrics = read_seed(folder), folder / METRICS_FILE
    if not has_rows:
        return SeedRecord(seed=number, result=result, rows=())
    rows = read_rows(metrics) if result is None else read_all_rows(metrics, result.steps)
    return SeedRecord(seed=number, result=result, rows=tuple(rows))


def _check_ended(folder: Path, seeds: Sequence[SeedRecord]) -> None:
    """Refuse a seed without a result, neither under way nor stopped, of a run that has ended with one."""
    done = folder / "result.json"
    if not done.exists():
        return
    with reading(done, "Run the command of the run again, which writes it."):
        ended = {one["seed"] for one in read_sealed(done)["seeds"]}
    for seed in seeds:
        own = folder / f"seed-{seed.seed}"
        if seed.result is None and seed.seed in ended and not (own / "checkpoints").exists():
            raise BermoError(
                f"{own / 'result.json'} is gone, and {done} says that the seed has ended. Restore it, or run"
                " the command of the run again, which trains this seed."
            )
