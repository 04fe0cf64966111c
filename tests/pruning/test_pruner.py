"""What hooks, losses and callbacks need is the same for pruners of weights and of units."""

from collections.abc import Callable

import pytest
import torch

from bermo.pruning.criteria import L0, Magnitude, Method, Movement, SoftMovement
from bermo.pruning.pruner import Pruner
from bermo.pruning.schedule import CubicSchedule
from bermo.pruning.units import prune_units_
from bermo.pruning.weights import prune_
from tests.small_models import model_of

SCHEDULE = CubicSchedule(total_steps=10, warmup_steps=2)
METHODS: list[Method] = [Movement(density=0.5, rank="score"), SoftMovement(density=0.5), L0(penalty=3.0)]


@pytest.mark.parametrize("method", METHODS, ids=str)
@pytest.mark.parametrize("prune", [prune_, prune_units_])
def test_pruners_of_weights_and_units_answer_alike(prune: Callable[..., Pruner], method: Method) -> None:
    torch.manual_seed(0)
    pruner = prune(model_of("bert").train(), method, SCHEDULE, seed=3)
    for scores in pruner.score_parameters():
        torch.nn.init.normal_(scores, std=3)
    pruner.at(8)
    pruner.step()
    assert pruner.num_steps == 9
    assert 0.1 < pruner.density < 0.95
    densities = pruner.densities()
    assert pruner.density_of(densities) == pytest.approx(pruner.density, abs=1e-6)
    assert pruner.scores().keys() == densities.keys()
    assert [id(p) for p in pruner.scores().values()] == [id(p) for p in pruner.score_parameters()]
    assert pruner.penalty().requires_grad != isinstance(method, Movement)
    assert len(pruner.generators()) == isinstance(method, L0)


@pytest.mark.parametrize("prune", [prune_, prune_units_])
def test_a_planned_and_applied_step_is_the_step(prune: Callable[..., Pruner]) -> None:
    pruners = [prune(model_of("bert"), Movement(density=0.3, rank="score"), SCHEDULE) for _ in range(2)]
    for pruner in pruners:
        for scores in pruner.score_parameters():
            torch.nn.init.normal_(scores, generator=torch.Generator().manual_seed(scores.numel()))
    pruners[0].at(6)
    pruners[1].plan(6)
    dense = pruners[1].densities()
    pruners[1].apply()
    assert pruners[0].densities() == pruners[1].densities() != dense


def test_a_criterion_without_scores_has_none_to_learn() -> None:
    pruner = prune_(model_of("bert"), Magnitude(density=0.5), SCHEDULE)
    assert pruner.scores() == {}
    assert pruner.score_parameters() == []
    assert pruner.penalty().item() == 0
