"""Proximal pruning as a method: an exact density, and a run that goes on to the bit."""

from pathlib import Path

import pytest

from bermo.spec import replace_in
from tests.methods.resumed import check_resumes_to_the_bit
from tests.specs import TINY

pytestmark = pytest.mark.usefixtures("shallow_box")


@pytest.mark.parametrize(("aim", "step"), [({"density": 0.4}, 3), ({"penalty": 0.05}, 2)])
def test_a_run_resumes_to_the_bit_at_the_wanted_density(
    aim: dict[str, float], step: int, tmp_path: Path
) -> None:
    spec = replace_in(
        TINY, prune={"method": "proximal", "density": None, "warmup_steps": 1} | aim, train={"epochs": 3}
    )
    saved = check_resumes_to_the_bit(spec, tmp_path, step=step)
    matrices = [tensor for name, tensor in saved.items() if ".encoder.layer." in name and tensor.ndim == 2]
    kept = sum(int(tensor.count_nonzero()) for tensor in matrices) / sum(t.numel() for t in matrices)
    assert kept == pytest.approx(0.4, abs=1e-3) if "density" in aim else 0 < kept < 1
