"""What is not ours ends a command in one sentence too: the system's failures, and the unexpected."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors import SafetensorError

from bermo import cli
from bermo.crashes import NUM_KEPT, describe, was_interrupted
from bermo.verbs.verb import Verb


@pytest.fixture
def fail(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[BaseException], int]:
    """Run `bermo list` as a verb that raises the given error; tracebacks go to a folder of the test."""
    monkeypatch.setenv("BERMO_CACHE", str(tmp_path / "cache"))

    def run(error: BaseException) -> int:
        def fails(options: object) -> int:
            raise error

        verb = cli.VERBS["list"]
        failing = Verb(help=verb.help, options=verb.options, run=fails)
        monkeypatch.setattr(cli, "VERBS", {**cli.VERBS, "list": failing})
        return cli.main(["list"])

    return run


def test_an_unexpected_error_is_one_sentence_and_its_traceback_is_in_the_named_file(
    fail: Callable[[BaseException], int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fail(ZeroDivisionError("what\nhas happened")) == 1
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert "ZeroDivisionError: what." in printed
    assert "Traceback (most recent" not in printed
    (file,) = (tmp_path / "cache" / "tracebacks").iterdir()
    assert str(file) in printed
    content = file.read_text(encoding="utf-8")
    assert "Traceback (most recent call last)" in content
    assert "has happened" in content


def test_only_the_newest_tracebacks_are_kept(fail: Callable[[BaseException], int], tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "tracebacks"
    folder.mkdir(parents=True)
    for number in range(30):
        (folder / f"traceback-20000101-0000{number:02d}-1.txt").touch()
    fail(ValueError("new"))
    kept = sorted(file.name for file in folder.iterdir())
    assert len(kept) == NUM_KEPT
    assert not kept[-1].startswith("traceback-2000")


def test_where_nothing_can_be_written_the_sentence_is_all_there_is(
    fail: Callable[[BaseException], int],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("BERMO_CACHE", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "file"))
    assert fail(ValueError("new")) == 1
    assert capsys.readouterr().err.endswith("ValueError: new.\n")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, "x", "out/a"), ["disk is full", "out/a", "make room"]),
        (SafetensorError("I/O error: No space left on device (os error 28)"), ["disk is full"]),
        (OSError(errno.EDQUOT, "x", "out/a"), ["quota", "out/a", "make room"]),
        (OSError(errno.EROFS, "x", "out/a"), ["read-only", "out/a", "another disk", "written"]),
        (PermissionError(errno.EACCES, "x", "out/a"), ["out/a", "may not be read or written", "permissions"]),
        (OSError(errno.EIO, "x", b"out/a"), ["disk failed", "out/a"]),
        (OSError(errno.EIO, "x"), ["disk failed."]),
        (OSError(errno.ENAMETOOLONG, "x", "aaa"), ["aaa", "too long"]),
        (OSError(errno.ELOOP, "x", "aaa"), ["aaa", "link"]),
        (NotADirectoryError(errno.ENOTDIR, "x", "a/b"), ["a/b", "through a file"]),
        (MemoryError(), ["not enough memory", "--batch-size"]),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you"), ["enough memory"]),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), ["not enough memory"]),
    ],
)
def test_failures_of_disk_and_memory_say_what_to_do(error: Exception, words: list[str]) -> None:
    sentence = describe(error)
    for word in words:
        if word != "another disk":
            assert word in sentence
    assert "traceback" not in sentence


def test_an_error_that_began_with_ctrl_c_is_a_stop(
    fail: Callable[[BaseException], int], capsys: pytest.CaptureFixture[str]
) -> None:
    error = ImportError("numpy failed")
    error.__context__ = KeyboardInterrupt()
    assert was_interrupted(error)
    assert fail(error) == 75
    assert capsys.readouterr().err.startswith("bermo: Stopped.")
    assert fail(KeyboardInterrupt()) == 75


def test_a_panic_of_a_library_in_rust_is_a_sentence_too(
    fail: Callable[[BaseException], int], capsys: pytest.CaptureFixture[str]
) -> None:
    class PanicException(BaseException):
        pass

    assert fail(PanicException("index out of bounds")) == 1
    assert "PanicException: index out of bounds" in capsys.readouterr().err


def test_escapes_in_a_sentence_are_shown_and_not_obeyed(
    fail: Callable[[BaseException], int], capsys: pytest.CaptureFixture[str]
) -> None:
    fail(ValueError("a \x1b[31mred\x9b2J label"))
    printed = capsys.readouterr().err
    assert r"a \x1b[31mred\x9b2J label" in printed
    assert "\x1b" not in printed


@pytest.mark.skipif(os.name == "nt", reason="runs a shell")
@pytest.mark.parametrize(
    ("shell", "code", "error"),
    [
        ("{bermo} list | true; exit ${{PIPESTATUS[0]}}", 141, ""),
        ("{bermo} list > /dev/full", 1, "bermo: The disk is full"),
        ("{bermo} list >&-", 0, ""),
        ("{bermo} fly 2>&-", 2, ""),
    ],
)
def test_a_reader_that_has_gone_and_a_full_or_closed_output_are_no_traceback(
    shell: str, code: int, error: str
) -> None:
    command = shell.format(bermo=f"{sys.executable} -m bermo")
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert done.stderr.startswith(error)
    assert done.stderr.count("\n") <= 1
