"""The model's call is made of what the objective says that it needs."""

from typing import Any

import pytest
import torch
from torch import Tensor

from bermo.training.job import Batch, ModelCall, compute_loss

BATCH = {"x": torch.ones(2, 3), "labels": torch.zeros(2)}


class Recorder:
    """A model that keeps the arguments of each call and returns the sum of x."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    def __call__(self, **arguments: Any) -> Tensor:
        self.calls.append(arguments)
        return arguments["x"].sum()


class Difference:
    """|outputs − labels| as an objective."""

    def __init__(self, call: ModelCall) -> None:
        self.call = call

    def count(self, batch: Batch) -> int:
        return len(batch["labels"])

    def __call__(self, outputs: Tensor, batch: Batch) -> Tensor:
        return outputs - batch["labels"].sum()


@pytest.mark.parametrize("hidden_states", [False, True])
def test_the_model_is_called_once_with_all_that_is_not_for_the_loss_alone(hidden_states: bool) -> None:
    model = Recorder()
    call = ModelCall(only_for_loss=frozenset({"labels", "absent"}), hidden_states=hidden_states)
    assert compute_loss(model, Difference(call), BATCH) == 6
    (arguments,) = model.calls
    assert arguments.keys() == ({"x", "output_hidden_states"} if hidden_states else {"x"})
    assert arguments["x"] is BATCH["x"]
    assert arguments.get("output_hidden_states") is (True if hidden_states else None)
