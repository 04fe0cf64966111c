"""Masks in a model that torch.compile has compiled."""

import copy

import pytest
import torch

from bermo.pruning.criteria import L0, Magnitude, Method, Movement, SoftMovement
from bermo.pruning.schedule import CubicSchedule
from bermo.pruning.weights import prune_
from tests.small_models import batch_of, model_of

SCHEDULE = CubicSchedule(total_steps=10, warmup_steps=2)


@pytest.mark.filterwarnings("ignore:The .grad attribute")
@pytest.mark.parametrize(
    "method",
    [Magnitude(density=0.3), Movement(density=0.3, rank="score"), SoftMovement(penalty=5.0), L0(penalty=5.0)],
    ids=str,
)
def test_a_compiled_model_trains_as_the_plain_one_while_masks_move(method: Method) -> None:
    trained = []
    for is_compiled in (False, True):
        torch.manual_seed(3)
        model = model_of("bert", layers=1).eval()  # without dropout
        pruner = prune_(model, method, SCHEDULE)
        run = torch.compile(model, backend="aot_eager") if is_compiled else model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            inputs = batch_of(model)
            (
                run(**inputs, labels=torch.ones(len(inputs["input_ids"]), dtype=torch.long)).loss
                + pruner.penalty()
            ).backward()
            optimizer.step()
            optimizer.zero_grad()
            pruner.step()
        trained.append([p.detach().clone() for p in model.parameters()])
    for plain, compiled in zip(*trained, strict=True):
        torch.testing.assert_close(compiled, plain, rtol=1e-4, atol=1e-6)


@pytest.mark.filterwarnings("ignore:The .grad attribute")
def test_masks_survive_torch_compile() -> None:
    model = model_of("bert", layers=1).train()
    pruner = prune_(model, Movement(density=0.3, rank="score"), SCHEDULE)
    pruner.at(10)
    inputs = batch_of(model)
    model.eval()
    compiled = torch.compile(copy.deepcopy(model), backend="eager")
    torch.testing.assert_close(compiled(**inputs).logits, model(**inputs).logits)
