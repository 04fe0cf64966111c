"""The trainings that methods of the atlas are made of, by what they change of the dense one."""

from dataclasses import replace
from typing import Literal

from bermo.atlas.steps import Train
from bermo.distill_spec import Paper
from bermo.spec import KeepBy

KEPT = 0.1
"""The share of the weights that pruning without structure leaves."""


def pruned(method: str, **more: object) -> Train:
    """Prune single weights."""
    return Train(changes={"prune": {"method": method, "density": KEPT} | more}, cost=1.4)


def units(density: float, layers: float = 1.0, by: Literal["size", "l0"] = "size") -> Train:
    """Prune heads and neurons by size, or by gates, while the dense model teaches; over early, to leave time
    for repair.
    """
    chosen = {"rank": "size"} if by == "size" else {"by": by}
    prune = {"method": "heads-and-neurons", "density": density, "final_warmup": 3} | chosen
    return Train(changes={"prune": prune}, is_taught=True, layers=layers, cost=0.4 + 1.4 * layers)


def taught(layers: float, which: Literal["first", "even"] = "first", neurons: float = 1.0) -> Train:
    """Some of the dense model's layers, taught by it."""
    changes = {"distill": {"student_neurons": neurons}} if neurons < 1 else {}
    return Train(changes=changes, is_taught=True, layers=layers, which=which, cost=0.4 + layers)


def named(paper: Paper, layers: float = 0.5, neurons: float = 1.0) -> Train:
    """Every k-th layer of the dense model, taught by the loss of a paper."""
    step = taught(layers, "even", neurons)
    distill = {**step.changes.get("distill", {}), "named": paper}
    return replace(step, changes={**step.changes, "distill": distill}, cost=1.0 + layers)


def answered(layers: float) -> Train:
    """Every k-th layer of the dense model, taught by its answers and by no label (Turc et al.)."""
    step = taught(layers, "even")
    return replace(step, changes={"distill": {"hard": 0.0, "soft": 1.0, "temperature": 1.0}})


def kept(which: KeepBy) -> Train:
    """Half of the encoder's layers, fine-tuned by labels alone."""
    return Train(layers=0.5, which=which, cost=0.5)


def for_int8(step: Train) -> Train:
    """The same, with int8 numbers in the last third."""
    return replace(step, changes={**step.changes, "method": {"quantize": "int8"}})
