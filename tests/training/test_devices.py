"""Groups of processes: whoever made one ends it, before the interpreter ends, whatever happened."""

from dataclasses import replace
from pathlib import Path

import pytest

from bermo.machine import Processor
from bermo.spec import TrainSpec
from bermo.training import devices
from tests.pairs import Pairs

# What is registered first with atexit runs last: after our own ending of the group.
START = """
import atexit, os, sys
from pathlib import Path
import torch
from torch import distributed
from bermo.spec import TrainSpec
from bermo.training.devices import make_accelerator

def check(wants_group):
    if distributed.is_initialized() != wants_group:
        os._exit(7)
    if wants_group:
        distributed.destroy_process_group()

def make():
    accelerator = make_accelerator(TrainSpec(device="cpu", precision="fp32"), Path(sys.argv[1]))
    assert accelerator.num_processes == 2
    assert accelerator.gather(torch.ones(3)).sum() == 6
    return accelerator
"""
OURS = """
atexit.register(check, False)
make()
assert make().gather(torch.ones(1)).sum() == 2
"""
STOPPED = """
atexit.register(check, False)
make()
try:
    raise KeyboardInterrupt
except KeyboardInterrupt:
    # As the command does.
    sys.exit(75)
"""
FAILED = """
atexit.register(check, False)
accelerator = make()
if os.environ["RANK"] == "1":
    raise ValueError("an error in one process")
accelerator.gather(torch.ones(1))
"""
OF_THE_CALLER = """
atexit.register(check, True)
distributed.init_process_group("gloo")
make()
"""


@pytest.mark.parametrize(
    ("rest", "codes"),
    [(OURS, (0, 0)), (STOPPED, (75, 75)), (FAILED, (1, 1)), (OF_THE_CALLER, (0, 0))],
    ids=["ours", "stopped", "failed", "of the caller"],
)
def test_a_group_is_ended_by_whoever_made_it_before_the_interpreter_ends(
    rest: str, codes: tuple[int, int], tmp_path: Path, pairs: Pairs
) -> None:
    script = tmp_path / "two.py"
    script.write_text(START + rest, encoding="utf-8")
    pairs.run(script, str(tmp_path), codes=codes)


def test_bf16_is_named_where_a_cpu_has_amx_and_the_training_would_run_on_it_in_fp32(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    amx = Processor(
        name="", architecture="x86_64", system="Linux", cores=2, instructions=frozenset({"AMX bf16"})
    )
    monkeypatch.setattr(devices, "_has_bf16", lambda: True)
    monkeypatch.setattr(devices, "processor", lambda: amx)
    assert "--precision bf16" in str(devices.half_hint(TrainSpec(device="cpu")))
    assert devices.half_hint(TrainSpec(device="cpu", precision="bf16")) is None
    monkeypatch.setattr(devices.torch.cuda, "is_available", lambda: True)
    assert devices.half_hint(TrainSpec()) is None
    monkeypatch.setattr(devices, "processor", lambda: replace(amx, instructions=frozenset({"AVX-512 bf16"})))
    assert devices.half_hint(TrainSpec(device="cpu")) is None
