"""torch's libraries are loaded, and models summed, while Python imports something else."""

import os
import shutil
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


DRIVER = """
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
int cuInit(unsigned flags) { printf("init %u %s\\n", flags, getenv("CUDA_MODULE_LOADING")); return 0; }
int cuDeviceGet(int *device, int number) { *device = 7 + number; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) {
    *context = NULL;
    printf("retain %d\\n", device);
    return 0;
}
"""
WAKES = """
import sys
sys.argv[0] = "bermo"
from bermo.interrupts import own_process_
from bermo.verbs import ahead
own_process_()
ahead.DRIVER = sys.argv[1]
ahead.wake_gpu_()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a GPU is made ready on Linux alone")
def test_the_driver_makes_the_first_gpu_ready_in_a_command_s_own_process(tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    (tmp_path / "driver.c").write_text(DRIVER)
    library = tmp_path / "driver.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(tmp_path / "driver.c")], check=True)
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_MODULE_LOADING"}
    for driver, said in ((str(library), ["init 0 LAZY", "retain 7"]), (str(tmp_path / "none.so"), [])):
        done = subprocess.run(
            [sys.executable, "-c", WAKES, driver],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
        )
        assert done.stdout.splitlines() == said, done.stderr
        assert done.stderr == ""


def test_no_gpu_is_made_ready_in_a_process_of_someone_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_PROCESS, "is_ours", False)
    monkeypatch.setattr(ahead, "_make_ready", pytest.fail)
    ahead.wake_gpu_()
