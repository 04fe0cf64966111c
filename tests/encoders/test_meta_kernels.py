"""Models are built without torch's kernels in Python, and what needs them gets them."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from bermo.encoders import not_yet
from bermo.encoders.failures import loading
from bermo.encoders.meta_kernels import NAME, are_left_out, with_all_kernels
from bermo.encoders.not_yet import NotYet
from bermo.errors import BermoError
from bermo.runs.trained import open_trained
from bermo.ship.runtimes.candidate import open_candidate
from tests import tiny
from tests.ship.folders import make_model, save

FAMILIES = ("bert", "modernbert", "xlnet")
WITHOUT = """
import sys
sys.argv[0] = "bermo"
from pathlib import Path
from bermo.encoders.meta_kernels import are_left_out, with_all_kernels
from bermo.interrupts import own_process_
from bermo.verbs.light import leave_out_
own_process_()
leave_out_("answers")
import numpy as np, torch
from bermo.runs.trained import open_trained
from bermo.ship.runtimes.candidate import open_candidate
for folder in sorted(Path(sys.argv[1]).iterdir()):
    opened = open_trained(folder)
    batch = {"input_ids": np.array([[7, 8, 9]]), "attention_mask": np.ones((1, 3), dtype=np.int64)}
    (logits,) = open_candidate(opened)(batch)
    print(folder.name, *logits[0].tolist())
print(are_left_out())
print(with_all_kernels(lambda: torch.fft.rfft(torch.empty(4, device="meta"))).shape[0], are_left_out())
"""


def test_models_answer_the_same_without_them_and_they_come_where_they_are_needed(tmp_path: Path) -> None:
    for family in FAMILIES:
        save(make_model(family), tmp_path / family)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    *answers, left_out, brought_back = done.stdout.splitlines()
    assert len(answers) == len(FAMILIES)
    assert (left_out, brought_back) == ("True", "3 False")
    batch = {name: value.numpy()[:1, :3] for name, value in tiny.make_batch("bert").items()}
    batch["input_ids"][:] = [[7, 8, 9]]
    for answer in answers:
        name, *logits = answer.split()
        (expected,) = open_candidate(open_trained(tmp_path / name))(batch)
        assert list(map(float, logits)) == expected[0].tolist(), name


def test_a_load_that_lacks_a_kernel_is_done_again_with_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, NAME, NotYet(NAME))
    monkeypatch.setattr(not_yet.importlib, "import_module", lambda name: None)
    tries = []

    def load() -> str:
        with loading("weights", "somewhere"):
            tries.append(are_left_out())
            if tries[-1]:
                raise NotImplementedError("no such kernel")
            return "loaded"

    assert with_all_kernels(load) == "loaded"
    assert tries == [True, False]


def test_what_no_kernel_helps_is_said_as_ever() -> None:
    def load() -> None:
        with loading("weights", "somewhere"):
            raise NotImplementedError("this is not done")

    with pytest.raises(BermoError, match="this is not done"):
        with_all_kernels(load)


def test_the_kernels_are_imported_when_one_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    real = sys.modules[NAME]
    monkeypatch.setitem(sys.modules, NAME, NotYet(NAME))

    def bring(name: str) -> ModuleType:
        sys.modules[name] = real
        return real

    monkeypatch.setattr(not_yet.importlib, "import_module", bring)
    stand_in = sys.modules[NAME]
    with pytest.raises(AttributeError):
        stand_in.__wrapped__  # noqa: B018
    assert stand_in.activate_meta is real.activate_meta
    assert not are_left_out()
