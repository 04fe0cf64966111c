"""torch's libraries are loaded, and models summed, while Python imports something else."""

import subprocess
import sys
from pathlib import Path

import pytest

from bermo import sums
from bermo.interrupts import _PROCESS
from bermo.verbs import ahead
from tests.ship.folders import make_model, save

LOADS = """
import sys
sys.argv[0] = "bermo"
from pathlib import Path
from bermo.verbs.ahead import loading_libraries
with loading_libraries():
    pass
print("torch" in sys.modules, "libtorch_cpu.so" in Path("/proc/self/maps").read_text())
import torch
print(torch.ones(2).sum().item())
with loading_libraries():
    print("again")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="libraries are loaded ahead on Linux alone")
def test_libraries_are_there_before_torch_is_imported_and_torch_takes_them() -> None:
    done = subprocess.run([sys.executable, "-c", LOADS], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["False", "True", "2.0", "again"], done.stderr[-2000:]


def test_a_library_that_cannot_be_loaded_is_left_to_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "libtorch_cpu.so"
    broken.write_bytes(b"no library")
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr(ahead, "libraries", lambda: [broken])
    with ahead.loading_libraries():
        seen = True
    assert seen


def test_models_are_summed_ahead_in_a_command_s_own_process_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save(make_model(), tmp_path / "model")
    sums.write_sums(folder)
    monkeypatch.setattr(sums, "AHEAD", {})
    monkeypatch.setitem(_PROCESS, "is_ours", False)
    ahead.sum_models_([folder])
    assert not sums.AHEAD
    monkeypatch.setitem(_PROCESS, "is_ours", True)
    ahead.sum_models_([tmp_path / "nowhere", folder])
    assert list(sums.AHEAD) == [folder / sums.SUMS_FILE]
    sums.check_sums(folder)
    assert not sums.AHEAD
