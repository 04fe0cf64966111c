"""Every test has its own token cache, and no test reaches the network.

Here `box` means a box without weights, far smaller than the real one (small_box.py): a test that trains wants
a moment, not a score. The `shallow_box` fixture leaves half of its layers, and
`real_box` brings the real one back. `whole_fits` brings back what short_fits.py shortens beside.
"""

import gc
import importlib
import importlib.util
import multiprocessing
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

import pytest

# Kernels run on the CPU, in Triton's interpreter, which cannot read a GPU's memory. Tests of the mark `gpu`
# need the compiler: TRITON_INTERPRET=0 pytest -m gpu. Triton reads this when it is imported.
os.environ.setdefault("TRITON_INTERPRET", "1")

from tests.pairs import Pairs
from tests.warm.start import CAN_FORK, FOLDER, Warm

# A suite that is started in the background ignores Ctrl-C, and so would every process that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
OPENED: list[Warm] = []


def pytest_configure(config: pytest.Config) -> None:
    """Import what is heavy where tests run: not in the process that only hands them to others, which starts
    the server of warm processes for all.
    """
    if "PYTEST_XDIST_WORKER" not in os.environ and CAN_FORK:
        OPENED.append(Warm())
    if not config.getoption("numprocesses", None):
        importlib.import_module("tests.small_box")
        from hypothesis import settings

        # How long an example takes depends on what else the machine does.
        settings.register_profile("any machine", deadline=None)
        settings.load_profile("any machine")


def pytest_collection_finish() -> None:
    """What was imported by now stays: leave it out of every collection of garbage, and collect rarely.
    Exports make millions of objects, and a walk through them frees few.
    """
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests that carry the mark `gpu` where there is none, or where kernels are interpreted on the
    CPU.
    """
    import torch

    if torch.cuda.is_available() and os.environ["TRITON_INTERPRET"] == "0":
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA GPU, and TRITON_INTERPRET=0"))


def pytest_unconfigure() -> None:
    if "tests.small_box" in sys.modules:
        shutil.rmtree(sys.modules["tests.small_box"].SMALL_BOX, ignore_errors=True)
    while OPENED:
        OPENED.pop().close()


@pytest.fixture(autouse=True, scope="module")
def own_garbage() -> Iterator[None]:
    """What a file of tests has left stays, too: a walk through all of it takes a second, and a training walks
    ten times.
    """
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture
def warm_python(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a `python` and a `bermo` whose processes are forked, imports done: what this process
    starts is forked too. They are for tests in which it does not matter how a process begins.
    """
    if not CAN_FORK:
        yield Path(sys.executable).parent
        return
    folder, own = Path(os.environ[FOLDER]), sys.executable
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    multiprocessing.set_executable(sys.executable)
    yield folder
    multiprocessing.set_executable(own)


@pytest.fixture
def real_box(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The box that is in the package."""
    from bermo.encoders import where
    from scripts.make_box import FOLDER

    monkeypatch.setattr(where, "BOX", FOLDER)
    return FOLDER


@pytest.fixture
def whole_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fit as users do, here and in forked processes, where a test is about what is fitted."""
    from bermo.nn import linear_fit
    from tests.short_fits import VARIABLE, WHOLE

    monkeypatch.delenv(VARIABLE, raising=False)
    for name, value in WHOLE.items():
        monkeypatch.setattr(linear_fit, name, value)


@pytest.fixture
def shallow_box(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """The small box with three layers: half the time to train it, and to trace it for an export. In a file
    whose tests all have it, one may ask for the real box instead.
    """
    if "real_box" in request.fixturenames:
        return Path(request.getfixturevalue("real_box"))
    from transformers import AutoConfig

    from bermo.encoders import where
    from tests.small_box import SMALL_BOX

    folder = tmp_path_factory.mktemp("shallow") / "box"
    shutil.copytree(SMALL_BOX, folder)
    config = AutoConfig.from_pretrained(folder)
    config.num_hidden_layers = 3
    config.save_pretrained(folder)
    monkeypatch.setattr(where, "BOX", folder)
    return folder


@pytest.fixture(scope="session")
def small_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small box with random weights as a folder, for tests that start other processes;
    it has no dropout.
    """
    import torch
    from transformers import AutoConfig, AutoModel

    from tests.small_box import SMALL_BOX

    folder = tmp_path_factory.mktemp("encoder")
    shutil.copytree(SMALL_BOX, folder, dirs_exist_ok=True)
    torch.manual_seed(0)
    AutoModel.from_config(AutoConfig.from_pretrained(SMALL_BOX)).save_pretrained(folder)
    return folder


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path_factory.getbasetemp() / "cache"
    monkeypatch.setenv("BERMO_CACHE", str(cache))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="session")
def pairs() -> Pairs:
    """What runs scripts as two processes that train as one."""
    return Pairs()


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a user's files: my.csv, dev.csv, texts.txt and a small SST-2."""
    monkeypatch.chdir(tmp_path)
    good, bad = (
        ["a fine film", "great fun", "I loved it, really"],
        ["a dull film", "no fun", "awful"],
    )
    rows = [f'"{text}",{label}' for label, texts in (("good", good), ("bad", bad)) for text in texts]
    for name in ("my.csv", "dev.csv"):
        (tmp_path / name).write_text("text,label\n" + "\n".join(rows * 4) + "\n")
    (tmp_path / "texts.txt").write_text("a fine film\nno fun at all\n")
    folder = tmp_path / "path" / "to" / "sst2"
    folder.mkdir(parents=True)
    lines = [f"{text}\t{int(text in good)}" for text in (good + bad) * 4]
    for name in ("train.tsv", "dev.tsv"):
        (folder / name).write_text("sentence\tlabel\n" + "\n".join(lines) + "\n")
    return tmp_path


@pytest.fixture(scope="session")
def quick_traces(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Trace each model once for all its exports, read the exporter's tables of operators once, and time signs
    of int8 weights by the fewest calls, not for seconds.
    """
    from torch._export import utils
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    from bermo.ship.export import write
    from tests.traced_once import traced_once

    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "graphs"
    folder.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        read = cache(ONNXRegistry.from_torchlib.__func__)
        patch.setattr(ONNXRegistry, "from_torchlib", classmethod(read))
        patch.setattr(utils, "_materialize_cpp_cia_ops", cache(utils._materialize_cpp_cia_ops))
        patch.setattr(write, "write_onnx", traced_once(write.write_onnx, folder))
        patch.setattr(write, "seconds_of", partial(write.seconds_of, budget=0.0))
        yield


@pytest.fixture(autouse=True, scope="session")
def quick_kernels() -> Iterator[None]:
    """Let Triton's interpreter do with less Python around each operation of a kernel."""
    if importlib.util.find_spec("triton") is None or os.environ["TRITON_INTERPRET"] == "0":
        yield
        return
    from tests.quick_interpreter import make_quick_

    with pytest.MonkeyPatch.context() as patch:
        make_quick_(patch)
        yield


@pytest.fixture(scope="session")
def first_threads() -> int:
    """As many threads as torch begins with."""
    import torch

    return torch.get_num_threads()


@pytest.fixture(autouse=True)
def own_threads(first_threads: int) -> None:
    """Give torch back as many threads as it had: two tests of two threads each on two cores take ten times as
    long as with one.
    """
    import torch

    if torch.get_num_threads() != first_threads:
        torch.set_num_threads(first_threads)


@pytest.fixture
def bench_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure in this process and with few calls, where a test is not about the numbers."""
    from bermo.ship.bench import run
    from tests.bench_here import WorkerHere

    monkeypatch.setattr(run, "Worker", WorkerHere)
    monkeypatch.setattr(run, "MOST_CALLS", 2)
