"""The stand-in for torch's compiler gives decorators that change nothing, and else the real one."""

import sys

import pytest
import torch

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


def test_a_process_that_is_not_the_command_s_own_keeps_everything() -> None:
    before = set(sys.modules)
    light.leave_out_()
    assert set(sys.modules) == before
    assert torch.distributed.is_available()
