"""The stand-in for torch's compiler gives decorators that change nothing, and else the real one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bermo.interrupts import _PROCESS
from bermo.verbs import light


def plain() -> int:
    return 3


def test_decorators_change_nothing_with_and_without_arguments() -> None:
    compiler = light.DecoratorsOnly(light.COMPILER)
    assert compiler.disable(plain) is plain
    assert compiler.disable(recursive=False)(plain) is plain
    with pytest.raises(AttributeError):
        compiler.__wrapped__  # noqa: B018


def test_anything_else_is_the_real_compiler_s(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._dynamo

    monkeypatch.setitem(sys.modules, light.COMPILER, torch._dynamo)
    compiler = light.DecoratorsOnly(light.COMPILER)
    assert compiler.is_compiling is torch._dynamo.is_compiling


def test_nothing_is_compiled_until_the_compiler_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._dynamo

    monkeypatch.setitem(sys.modules, light.COMPILER, torch._dynamo)
    part = light.DecoratorsOnly(light.COMPILER).eval_frame
    assert not isinstance(torch.nn.Linear(1, 1), part.OptimizedModule)
    assert part.innermost_fn is torch._dynamo.eval_frame.innermost_fn


COMPILES = """
from bermo.interrupts import own_process_
from bermo.verbs import light
own_process_()
light.leave_out_("training")
import torch, sys, transformers
assert isinstance(sys.modules["torch._dynamo"], light.DecoratorsOnly)
double = torch.compile(lambda x: 2 * x, backend="eager")
print(double(torch.ones(2)).tolist(), type(sys.modules["torch._dynamo"]).__name__)
"""


def test_a_model_can_still_be_compiled(tmp_path: Path) -> None:
    script = tmp_path / "bermo"  # named so, the process is the command's own
    script.write_text(COMPILES)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["[2.0,", "2.0]", "module"], done.stderr[-2000:]


@pytest.mark.parametrize(
    ("name", "is_one"),
    [("LOCAL_RANK", True), ("OMPI_COMM_WORLD_SIZE", True), ("ACCELERATE_USE_FSDP", True), ("HOME", False)],
)
def test_processes_know_that_they_are_several(
    name: str, is_one: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.environ", {name: "2"})
    assert light.is_of_several() is is_one


def test_a_process_that_is_not_the_command_s_own_keeps_everything() -> None:
    before = set(sys.modules)
    light.leave_out_("answers")
    assert set(sys.modules) == before
    assert torch.distributed.is_available()


def test_a_command_s_own_process_alone_keeps_its_memory_unless_the_user_says_how(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[int, int]] = []

    class Library:
        def mallopt(self, option: int, value: int) -> int:
            asked.append((option, value))
            return 1

    monkeypatch.setattr(light.ctypes, "CDLL", lambda name: Library())
    monkeypatch.setattr(light.sys, "platform", "linux")
    for name in [name for name in os.environ if name.startswith("MALLOC_") or name == "GLIBC_TUNABLES"]:
        monkeypatch.delenv(name)
    monkeypatch.setitem(_PROCESS, "is_ours", False)
    light.keep_memory_()
    monkeypatch.setitem(_PROCESS, "is_ours", True)
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "1000")
    light.keep_memory_()
    assert asked == []
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_")
    light.keep_memory_()
    assert asked == [(light.MMAP_THRESHOLD, light.LARGEST), (light.TRIM_THRESHOLD, light.LARGEST)]
    monkeypatch.setattr(light.ctypes, "CDLL", lambda name: object())  # musl
    light.keep_memory_()
    assert len(asked) == 2
