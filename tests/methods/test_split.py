"""A run with three values becomes one with sums of two: split where it starts, gone on with to the bit."""

import json
from pathlib import Path

import pytest

from bermo.methods.finetune import finetune
from bermo.methods.quantize import is_split
from bermo.spec import replace_in
from tests.methods.resumed import check_resumes_to_the_bit
from tests.specs import TINY

pytestmark = pytest.mark.usefixtures("shallow_box")
TERNARY = replace_in(TINY, prune={"method": "none", "density": None}, method={"quantize": "ternary"})


def test_a_binary_run_from_a_ternary_one_is_its_split_and_resumes_to_the_bit(tmp_path: Path) -> None:
    finetune(TERNARY, tmp_path / "ternary")
    folder = tmp_path / "ternary" / "model"
    assert json.loads((folder / "config.json").read_text())["quantized"] == "ternary"
    binary = replace_in(TERNARY, method={"quantize": "binary"}, model={"backbone": str(folder)})
    assert is_split(binary)
    assert not is_split(replace_in(binary, method={"quantize": "ternary"}))
    assert not is_split(replace_in(binary, model={"backbone": "box"}))
    saved = check_resumes_to_the_bit(binary, tmp_path, step=1)
    matrices = [tensor for name, tensor in saved.items() if ".encoder.layer." in name and tensor.ndim == 2]
    assert {len(matrix.unique()) for matrix in matrices} <= {2, 3, 4}
