"""Experiments: functions that return a whole spec for each arm. A variant is two lines of `replace_in`.

`RECIPES` is the list that `bermo list` shows; a recipe's docstring gives question, source, cost and
expected score. `tiny` turns any of them into a form that ends in seconds, offline, with the box as encoder.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bermo.errors import BermoError, nearest
from bermo.recipes import core, gpu, paper, probing
from bermo.spec import DistillSpec, Experiment, MixSpec, PruneSpec, RunSpec, replace_in
from bermo.values import override

RECIPES: Mapping[str, Callable[[], Experiment]] = {
    "demo": core.demo,
    "sst2": core.sst2,
    "squad": core.squad,
    "conll2003": core.conll2003,
    "readings": core.readings,
    "ways": core.ways,
    "paper/standalone": paper.standalone,
    "paper/stability": paper.stability,
    "paper/pruning-methods": paper.pruning_methods,
    "paper/convergence": paper.convergence,
    "paper/distillation": paper.distillation,
    "paper/probing": probing.probing,
    "gpu/dense": gpu.dense,
    "gpu/stability": gpu.stability,
    "gpu/distillation": gpu.distillation,
    "gpu/pruning-methods": gpu.pruning_methods,
    "gpu/convergence": gpu.convergence,
    "gpu/gradual-mix": gpu.gradual_mix,
    "gpu/baselines": gpu.baselines,
    **{f"glue/{name}": core.glue(name) for name in core.GLUE},
}


RENAMED = {"here/": "gpu/"}
"""Earlier beginnings of names, which still work, and those of today."""


def current_name(name: str) -> str:
    """Return the name of today for an earlier name of a recipe, and any other name as it is."""
    for old, new in RENAMED.items():
        if name.startswith(old):
            return new + name.removeprefix(old)
    return name


def find(name: str) -> Callable[[], Experiment]:
    """Return the recipe of that name, or of that earlier name."""
    current = current_name(name)
    if current not in RECIPES:
        raise BermoError(f'There is no recipe "{name}".{nearest(current, RECIPES)}')
    return RECIPES[current]


def tiny(experiment: Experiment, out: Path) -> Experiment:
    """The same experiment in seconds: the box, generated data of the same kind, 48 rows, an epoch or two.

    Where an arm has a teacher, an arm before it trains a tiny one in `out`.
    """
    arms: dict[str, RunSpec] = {}
    for name, spec in experiment.arms.items():
        small = _tiny(spec)
        if spec.distill.teacher is not None:
            teacher = f"teacher-{small.data.task.removeprefix('box/')}"
            dense = replace(small, prune=PruneSpec(), distill=DistillSpec())
            arms.setdefault(teacher, replace_in(dense, model={"mix": MixSpec(kind="none")}))
            small = replace_in(small, distill={"teacher": str(out / teacher)})
        arms[name] = small
    return Experiment(arms=arms)


def _tiny(spec: RunSpec) -> RunSpec:
    generated = {"squad": "box/answer", "conll2003": "box/arguments"}
    task = spec.data.task
    is_pruned = spec.prune.method != "none"
    # Tasks of the box and probing tasks are generated without a folder.
    if not task.startswith(("box/", "probe/")):
        task = generated.get(task, "box/tense")
    small = replace_in(
        spec,
        model={"backbone": "box"},
        data={"task": task, "folder": None, "limit": 48, "max_length": 64, "stride": 16},
        train={
            "epochs": 2.0 if is_pruned else 1.0,
            "batch_size": 16,
            "precision": "fp32",
            "together": 1,
        },
        prune={"warmup_steps": None, "initial_warmup": 1, "final_warmup": 1},
    )
    return replace(small, seeds=spec.seeds[:1])


def choose(experiment: Experiment, names: Sequence[str]) -> Experiment:
    """Keep only the named arms."""
    for name in names:
        if name not in experiment.arms:
            raise BermoError(f'There is no arm "{name}".{nearest(name, experiment.arms)}')
    return Experiment(arms={name: experiment.arms[name] for name in names})


def change(experiment: Experiment, dotted: str, text: str) -> Experiment:
    """Set one field, named by its dotted path, in every arm."""
    arms = {name: override(spec, dotted, text) for name, spec in experiment.arms.items()}
    return Experiment(arms=arms)
