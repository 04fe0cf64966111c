"""A task before the task: the second training starts from the encoder that the first one left."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from bermo.methods.finetune import finetune
from bermo.spec import PruneSpec, replace_in
from tests.specs import TINY

PLAIN = replace_in(replace(TINY, prune=PruneSpec()), train={"epochs": 1})


@pytest.mark.usefixtures("shallow_box")
@pytest.mark.parametrize("method", [{}, {"low_rank": 8.0, "embedding_rank": 8.0}])
def test_the_second_task_starts_from_the_first_ones_encoder(
    method: dict[str, object], tmp_path: Path
) -> None:
    first = replace_in(PLAIN, data={"task": "box/arguments"}, method=method)
    finetune(first, tmp_path / "first")
    second = replace_in(PLAIN, model={"backbone": str(tmp_path / "first" / "model")}, train={"lr": 0.0})
    finetune(second, tmp_path / "second")
    saved = [load_file(tmp_path / name / "model" / "model.safetensors") for name in ("first", "second")]
    names = [name for name in saved[0] if ".backbone." in name]
    assert len(names) > 20
    assert all(torch.equal(saved[0][name], saved[1][name]) for name in names)
