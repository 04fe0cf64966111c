"""Tied layers as a method: trained as one, gone on with to the bit, refused where they cannot be."""

from pathlib import Path
from typing import Any

import pytest

from bermo.cli import main
from bermo.errors import BermoError
from bermo.methods.checks import check_methods
from bermo.methods.finetune import finetune
from bermo.progress import Quiet
from bermo.ship.shrink.run import make_small
from bermo.spec import replace_in
from tests.methods.resumed import check_resumes_to_the_bit
from tests.specs import TINY

pytestmark = pytest.mark.usefixtures("shallow_box")
SPEC = replace_in(TINY, prune={"method": "none", "density": None}, method={"tie_layers": 1})


def test_a_run_resumes_to_the_bit_and_what_comes_after_it_knows(tmp_path: Path) -> None:
    saved = check_resumes_to_the_bit(SPEC, tmp_path, step=2)
    layers = {name.split(".encoder.layer.")[1].split(".")[0] for name in saved if ".encoder.layer." in name}
    assert layers == {"0"}
    folder = tmp_path / "whole" / "model"
    with pytest.raises(BermoError, match="share their weights"):
        make_small(folder, tmp_path / "small", Quiet())
    later = replace_in(SPEC, method={"tie_layers": None}, model={"backbone": str(folder)})
    with pytest.raises(BermoError, match="cannot be trained with --prune"):
        finetune(replace_in(later, prune={"method": "magnitude", "density": 0.5}), tmp_path / "pruned")
    assert main(["export", str(folder), "--to", "torch-bf16", "--out", str(tmp_path / "bf16")]) == 0


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"prune": {"method": "magnitude", "density": 0.5}}, "--prune"),
        ({"method": {"quantize": "int8"}}, "--quantize"),
        ({"method": {"low_rank": 0.5}}, "--low-rank"),
        ({"method": {"lora": 2}}, "--lora"),
        ({"method": {"mixout": 0.5}}, "--mixout"),
        ({"method": {"keep_tokens": 0.5}}, "--keep-tokens"),
        ({"train": {"together": 2}}, "--together"),
        ({"method": {"theseus": 1}, "distill": {"teacher": "some"}}, "--theseus"),
        ({"data": {"task": "own/embedding"}}, "sentence encoder"),
    ],
)
def test_what_cannot_be_combined_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BermoError, match=sentence):
        check_methods(replace_in(SPEC, **changes))
