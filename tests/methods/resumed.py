"""A training that is stopped and goes on ends in the same bits as one that is not."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from bermo.methods.finetune import finetune
from bermo.spec import RunSpec
from bermo.training.job import Stopped
from bermo.training.loop import _Loop


def check_resumes_to_the_bit(spec: RunSpec, folder: Path, step: int) -> dict[str, torch.Tensor]:
    """Train twice, once with a Ctrl-C in a step, which ends it after the next; return the saved weights."""
    finetune(spec, folder / "whole")
    plain = _Loop._prepare

    def stopping(loop: Any) -> None:
        plain(loop)
        if loop.step == step:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Loop, "_prepare", stopping)
        with pytest.raises(Stopped):
            finetune(spec, folder / "parts")
    finetune(spec, folder / "parts")
    saved = [load_file(folder / name / "model" / "model.safetensors") for name in ("whole", "parts")]
    assert saved[0].keys() == saved[1].keys()
    assert all(torch.equal(saved[0][key], saved[1][key]) for key in saved[0])
    return saved[0]
