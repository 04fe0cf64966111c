"""The gathered JSON of benchmarks/gpu_queue.sh as arms: each run's spec, its seeds and their statistics.

A seed's score is that of its last evaluation, where all have their final density: dense and pruned runs are
read alike, and no epoch is chosen on the set that is reported. Means and intervals (Student) are over the
seeds that survived.
"""

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bermo.errors import BermoError
from bermo.methods.probing.paired import Paired, paired
from bermo.recipes import gpu
from bermo.recipes.core import PAPER_SEEDS
from bermo.runs.results import ONE_ANSWER
from bermo.spec import replace_in

FIVE = PAPER_SEEDS[:5]
GUESSING = {"sst2": 50.92, "rte": 52.71, "mrpc": 73.18}
"""The score of the most common answer on each dev set: accuracy, and for MRPC (the MSR test
file, 1,725 pairs) the mean of accuracy 66.49 and F1 79.87."""
METHODS = ("magnitude", "score", "size", "soft", "l0")
EXPECTED: Mapping[str, Mapping[str, Any]] = {
    "model": {"pooling": None, "freeze_embeddings": True, "untrained": False},
    "data": {"limit": None},
    "train": {"batch_size": 32, "lr": 3e-5, "mix_lr": 0.01, "clip": 1.0},
    "prune": {"density": 0.1, "scope": "matrix", "block": [1, 1], "start": "zeros", "lr": 0.01},
    "distill": {"hidden": 0.0, "relations": 0.0, "embeddings": 0.0, "hard": 0.1, "temperature": 2.0},
}
"""What the recipes gpu/* set: a run that differs is no arm of the tables and is listed by itself."""


@dataclass(frozen=True, kw_only=True)
class Seed:
    """One finished training."""

    seed: int
    score: float
    best: float
    """The best evaluation at the final density, which is what the run itself reports."""
    is_diverged: bool
    matthews: float
    """Matthews' correlation of the best evaluation: 0 for guessing, whatever the classes' shares."""
    density: float
    kept: int | None
    weights: tuple[float, ...]
    """The mix's share of each layer; (1,) for a plain encoder."""
    steps: int
    seconds_per_step: float
    together: int
    curve: tuple[tuple[float | None, ...], ...]
    """(step, training loss, density, gradient norm, valid score)"""


@dataclass(frozen=True, kw_only=True)
class Arm:
    """The seeds of one run, and what the tables know it by."""

    name: str
    task: str
    method: str
    is_mix: bool
    epochs: float
    is_taught: bool
    layers: int | None
    """The first so many layers alone; None for the whole encoder."""
    give_up: int | None
    """Looks in a row at one answer to everything that ended a training."""
    differs: str
    """How its spec differs from the recipe's; empty where it does not."""
    seeds: tuple[Seed, ...]
    unfinished: tuple[str, ...]

    @property
    def kind(self) -> tuple[object, ...]:
        """What the tables know the arm by."""
        return self.task, self.method, self.is_mix, self.is_taught, self.layers, self.epochs

    def at(self, wanted: Sequence[int] | None) -> list[Seed]:
        """Return the seeds of these numbers, in their order; all of them for None."""
        known = {seed.seed: seed for seed in self.seeds}
        return [known[number] for number in (wanted or sorted(known)) if number in known]

    def survivors(self, wanted: Sequence[int] | None = None) -> dict[int, float]:
        """Return the scores of the seeds that did not collapse."""
        return {one.seed: one.score for one in self.at(wanted) if not one.is_diverged}

    def alive(self, wanted: Sequence[int] | None = None) -> float:
        """Return the share of the seeds that did not collapse."""
        return len(self.survivors(wanted)) / max(1, len(self.at(wanted)))

    def spread(self, wanted: Sequence[int] | None = None) -> Paired | None:
        """Return mean and interval over the survivors, or None where there is none."""
        scores = self.survivors(wanted)
        return paired(list(scores.values())) if scores else None

    def matthews(self, wanted: Sequence[int] | None = None) -> float:
        """Return the mean of Matthews' correlation over all seeds, dead ones too."""
        return statistics.fmean(one.matthews for one in self.at(wanted))

    def density(self, wanted: Sequence[int] | None = None) -> float:
        """Return the mean share of the encoder's weights that was kept."""
        densities = [one.density for one in self.at(wanted)]
        return sum(densities) / len(densities)


def read(path: Path) -> list[Arm]:
    """Read what benchmarks/gather.py wrote."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return [_arm(name, run) for name, run in content.items()]
    except FileNotFoundError:
        raise BermoError(f"There is no file {path}. Make it with benchmarks/gather.py.") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BermoError(
            f"{path} is not what benchmarks/gather.py writes: {type(error).__name__} {error}"
        ) from None


def find(
    arms: Iterable[Arm],
    method: str,
    is_mix: bool,
    *,
    task: str = "sst2",
    epochs: float | None = None,
    is_taught: bool = False,
    layers: int | None = None,
) -> Arm | None:
    """Return the finished arm of this kind with most seeds, then most epochs; None if there is none."""
    matching = [
        arm
        for arm in arms
        if arm.kind[:5] == (task, method, is_mix, is_taught, layers)
        and epochs in (None, arm.epochs)
        and arm.seeds
        and not arm.differs
    ]
    return max(matching, key=lambda arm: (len(arm.seeds), arm.epochs), default=None)


def longest(arms: Sequence[Arm], method: str) -> list[Arm | None]:
    """Return a method's plain and mixed arm on SST-2, as long as that with most seeds, then most epochs."""
    known = [arm for is_mix in (False, True) if (arm := find(arms, method, is_mix)) is not None]
    if not known:
        return [None, None]
    epochs = max(known, key=lambda arm: (len(arm.seeds), arm.epochs)).epochs
    return [find(arms, method, is_mix, epochs=epochs) for is_mix in (False, True)]


def difference(one: Arm | None, other: Arm | None, wanted: Sequence[int]) -> Paired | None:
    """Test one arm minus the other over the seeds that survive in both."""
    if one is None or other is None:
        return None
    left, right = one.survivors(wanted), other.survivors(wanted)
    gaps = [left[seed] - right[seed] for seed in wanted if seed in left and seed in right]
    return paired(gaps) if gaps else None


def missing(arms: Sequence[Arm]) -> list[Arm]:
    """Return the arms of gpu/* without a finished run: all on SST-2, methods and dense on the small tasks."""
    experiments = (
        gpu.stability,
        gpu.distillation,
        gpu.pruning_methods,
        gpu.convergence,
        gpu.baselines,
        gpu.dense,
    )
    wanted = [spec for experiment in experiments for spec in experiment().arms.values()]
    wanted += [
        replace_in(spec, data={"task": task}, train={"epochs": 10.0})
        for task in ("rte", "mrpc")
        for experiment in (gpu.pruning_methods, gpu.dense)
        for spec in experiment().arms.values()
    ]
    kinds = {(one := _arm("", {"spec": asdict(spec), "seeds": ()})).kind: one for spec in wanted}
    made = {arm.kind for arm in arms if arm.seeds and not arm.differs}
    return [arm for kind, arm in kinds.items() if kind not in made]


def epochs_of_methods(arms: Iterable[Arm], task: str) -> float | None:
    """Return the length of training at which most methods were run on a task."""
    kinds: dict[float, set[tuple[str, bool]]] = {}
    for arm in arms:
        if arm.task == task and arm.method in METHODS and arm.seeds and not arm.is_taught:
            kinds.setdefault(arm.epochs, set()).add((arm.method, arm.is_mix))
    return max(kinds, key=lambda epochs: len(kinds[epochs]), default=None)


def num_layers(arms: Iterable[Arm]) -> int | None:
    """Return how many layers the encoder has: a mix of the whole has one weight more than it."""
    widths = [len(s.weights) - 1 for a in arms if a.is_mix and not a.layers for s in a.seeds]
    return max(widths, default=None)


def _arm(name: str, run: Mapping[str, Any]) -> Arm:
    spec = run["spec"]
    student = spec["distill"]["student_layers"]
    task = spec["data"]["task"]
    return Arm(
        name=name,
        task=task,
        method=_method(spec["prune"]),
        is_mix=spec["model"]["mix"]["kind"] != "none",
        epochs=float(spec["train"]["epochs"]),
        is_taught=spec["distill"]["teacher"] is not None,
        layers=len(student) if student else spec["model"]["first_layers"],
        give_up=spec["train"].get("give_up"),
        differs=_differences(spec),
        seeds=tuple(_seed(one) for one in run["seeds"] if "score" in one),
        unfinished=tuple(one["name"] for one in run["seeds"] if "score" not in one),
    )


def _method(prune: Mapping[str, Any]) -> str:
    if prune["method"] == "movement":
        return str(prune["rank"])
    return {"none": "dense", "soft-movement": "soft"}.get(prune["method"], prune["method"])


def _differences(spec: Mapping[str, Any]) -> str:
    parts = dict(EXPECTED)
    if spec["prune"]["method"] == "none":
        del parts["prune"]
    if spec["distill"]["teacher"] is None:
        del parts["distill"]
    differences = [
        f"{part}.{name}={spec[part][name]}"
        for part, values in parts.items()
        for name, value in values.items()
        if spec[part][name] not in (value, None)
    ]
    if spec["model"]["mix"]["kind"] not in ("none", "across"):
        differences.append(f"mix {spec['model']['mix']['kind']}")
    return ", ".join(differences)


def _seed(one: Mapping[str, Any]) -> Seed:
    score = math.nan if one["last_score"] is None else float(one["last_score"])
    return Seed(
        seed=one["seed"],
        score=score,
        best=score if one["score"] is None else float(one["score"]),
        # Whatever else a run says of itself: the same rule for every method.
        is_diverged=math.isnan(score) or (one["diverged"] or "").startswith(ONE_ANSWER),
        matthews=one["values"].get("matthews", math.nan),
        density=one["encoder_density"],
        kept=one.get("encoder_kept") or None,
        weights=tuple(one["mix_weights"]),
        steps=one["steps"],
        seconds_per_step=one["seconds"] / one["steps"],
        together=one["together"],
        curve=tuple(tuple(row) for row in one.get("curve", ())),
    )
