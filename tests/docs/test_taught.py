"""The table of what may be taught by what asks about every option that changes how a model is trained."""

from dataclasses import fields
from typing import get_args

import pytest

from bermo.distill_spec import PAPERS
from bermo.method_spec import MethodSpec
from bermo.spec import PruneSpec
from scripts.tables.taught import TEACHERS, WAYS, refusal


def test_every_method_of_a_training_is_in_the_table() -> None:
    words = " ".join(WAYS)
    # Of these two, each belongs to the option that is named before it.
    own = {item.name for item in fields(MethodSpec)} - {"quantize_from", "lora_lr"}
    flags = {"--" + name.replace("_", "-") for name in own}
    flags |= {f"--distill-as {paper}" for paper in PAPERS}
    kinds = get_args(next(item.type for item in fields(PruneSpec) if item.name == "method"))
    flags |= {f"--prune {name}" for name in kinds if name != "none"}
    assert [flag for flag in flags if flag not in words] == []


@pytest.mark.parametrize("way", WAYS)
def test_every_way_goes_with_a_model_that_teaches(way: str) -> None:
    assert refusal(way, TEACHERS["a model"]) == ""
