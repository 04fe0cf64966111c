"""Which smaller models to try for a goal: how many of the first layers, and which share of their heads and
neurons.

    budget = s · (L − c) + c

    s: the share of the dense model's work, in its best form, that the goal leaves; L: its layers
    c: what is saved of the top layer where only one token of it is read (top.py)

For a budget of so many whole layers: these layers as they are, and 1.6 times as many with the rest of their
units, at three budgets around it. Of gte-small's cost on SST-2, the first layers are worth the most, and
thinner layers let more of them in.
"""

from dataclasses import dataclass, replace
from typing import Any

from bermo.encoders.sites import layers_of
from bermo.models.top import can_cut_top
from bermo.ship.bench.measured import Bench, Measured
from bermo.ship.compress.goal import Goal
from bermo.spec import DistillSpec, PruneSpec, RunSpec, replace_in

AROUND = (0.75, 1.0, 1.3)
"""Budgets tried, as multiples of what the goal asks for: speed is not quite proportional to weights."""
DEEPER = 1.6
SMALLEST_DENSITY = 0.05
SAVED_OF_TOP = 0.75
"""Of a layer's twelve parts (of width × width), queries, output and feed-forward (ten) go, keys and values
stay; measured: 0.75.
"""


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One way to a smaller model: the first so many layers, and the share of their heads and neurons that
    stays.
    """

    layers: int
    density: float = 1.0
    neurons: float = 1.0
    """The share of every layer's neurons, which the config of the family can say (sentence encoders)."""

    @property
    def name(self) -> str:
        layers = f"{self.layers} layer{'s' * (self.layers > 1)}"
        if self.neurons < 1:
            return f"{layers}, {self.neurons:g} of neurons"
        return layers if self.density == 1 else f"{layers} at {self.density:g}"

    @property
    def folder(self) -> str:
        return self.name.replace(",", "").replace(" ", "-")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What was worked out from the first bench, kept in plan.json."""

    share: float
    layers: int
    saved: float

    @property
    def budget(self) -> float:
        """How many whole layers the goal leaves room for."""
        return self.share * (self.layers - self.saved) + self.saved


def make_plan(goal: Goal, dense: Bench, model: Any) -> Plan:
    """Work out the share that may stay from how far the dense model is from the goal in its best form."""
    layers = model.config.num_hidden_layers
    saved = SAVED_OF_TOP if can_cut_top(model) and goal.what != "size" else 0.0
    return Plan(share=needed_share(goal, dense, model), layers=layers, saved=saved)


def needed_share(goal: Goal, dense: Bench, model: Any) -> float:
    """Estimate the share of the encoder that may stay, from what the best form alone reaches."""
    if goal.what != "size":
        return 1 / goal.excess(dense, best_form(goal, dense))
    return (goal.value - beside_layers(goal, dense, model)) / layer_megabytes(model)


def best_form(goal: Goal, dense: Bench) -> Measured:
    """The dense model's export that is nearest to the goal; the first row is the model itself."""
    return min(dense.rows[1:], key=lambda row: goal.excess(dense, row))


def layer_megabytes(model: Any) -> float:
    """The size of the layers in the smallest form, int8: a byte a weight."""
    return sum(p.numel() for layer in layers_of(model) for p in layer.parameters()) / 1e6


def beside_layers(goal: Goal, dense: Bench, model: Any) -> float:
    """Return the megabytes of the smallest form outside its layers: words above all."""
    return max(0.0, best_form(goal, dense).megabytes - layer_megabytes(model))


def quick_arms(plan: Plan) -> list[Arm]:
    """Return what to try without training: all layers, at densities around the goal."""
    tried = {min(0.95, max(SMALLEST_DENSITY, round(plan.share * x, 2))) for x in AROUND}
    return [Arm(layers=plan.layers, density=density) for density in sorted(tried)]


def trained_arms(plan: Plan) -> list[Arm]:
    """Return what to try with training: the first layers whole, and more of them thinner, around the
    budget.
    """
    whole = min(plan.layers, max(1, round(plan.budget)))
    arms = [Arm(layers=whole)] if whole < plan.layers else []
    for times in AROUND:
        budget = plan.budget * times
        depth = min(plan.layers, max(1, round(budget * DEEPER)))
        density = round(budget / depth, 2)
        if density < 1:
            arms.append(Arm(layers=depth, density=max(SMALLEST_DENSITY, density)))
    return list(dict.fromkeys(arms))


def arm_spec(
    arm: Arm, run: RunSpec, teacher: str, hard: float | None, unlabelled: str | None = None
) -> RunSpec:
    """Return the training of an arm: it starts from the run's own layers and learns from its answers."""
    layers = tuple(range(1, arm.layers + 1))
    distill = DistillSpec(teacher=teacher, student_layers=layers, unlabelled=unlabelled)
    if hard is not None:
        distill = replace(distill, hard=hard, soft=1 - hard)
    prune = PruneSpec()
    if arm.density < 1:
        # Ranked by size, since movement alone can kill a plain encoder; over early, to leave time for repair.
        prune = PruneSpec(method="heads-and-neurons", density=arm.density, rank="size", final_warmup=3)
    # What was chosen for the run's own head and layers, a student has from its teacher.
    kept = dict.fromkeys(("head", "pooling", "pairs", "first_layers", "keep_layers", "keep_by"))
    own = replace_in(run, model=kept, train={"contrast": None, "average": None}, method={"theseus": None})
    return replace(own, distill=distill, prune=prune, seeds=(1,))
