"""The package on macOS and Windows, as far as Linux can stand for them: nothing that they lack is imported
or called.
"""

import ast
import csv
import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bermo import cli, files
from bermo.data.read import read_table

PACKAGE = Path(__file__).parent.parent / "bermo"
LACKING = ("fcntl", "resource", "pwd", "grp", "termios", "pty", "tty", "readline", "triton", "winreg")
POSIX_ONLY = {
    "os": {"fork", "forkpty", "sync", "getuid", "geteuid", "getgid", "getpgid", "killpg", "setsid", "mkfifo"}
    | {"nice", "uname", "statvfs", "getloadavg", "chown", "kill", "symlink", "fchmod"}
    | {"WNOHANG", "WUNTRACED", "wait", "wait3", "wait4", "waitid"},
    "signal": {"SIGHUP", "SIGPIPE", "SIGKILL", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGCHLD", "SIGQUIT"}
    | {"alarm", "pause", "setitimer", "sigwait", "pthread_sigmask"},
}


@cache
def trees() -> dict[Path, ast.Module]:
    """Every file of the package, parsed."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}


# The modules that write kernels need Triton, and are imported only after it was asked for
# (nn/fast/available.py).
@cache
def with_triton() -> set[Path]:
    """The files that import Triton at once, themselves or through others."""
    names = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path for path in trees()}
    needing = {"triton"}
    while True:
        more = {name for name, path in names.items() if needing & set(imported_at_once(trees()[path]))}
        if more <= needing:
            return {names[name] for name in needing - {"triton"}}
        needing |= more


def imported_at_once(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


IMPORT_ALL = """
import builtins, importlib, sys
lacking, modules = sys.argv[1].split(","), sys.argv[2].split(",")
import_it = builtins.__import__

def refuse(name, variables=None, *rest, **named):
    if name.split(".")[0] in lacking and str((variables or {}).get("__name__")).startswith("bermo"):
        raise ImportError(f"this system has no {name}")
    return import_it(name, variables, *rest, **named)

builtins.__import__ = refuse
for module in modules:
    importlib.import_module(module)
"""


def calls(tree: ast.AST) -> Iterator[tuple[ast.Call, str]]:
    """Every call in a file, with the name of the function or method."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            yield node, name


def where(path: Path, node: ast.AST) -> str:
    return f"{path.relative_to(PACKAGE.parent)}:{getattr(node, 'lineno', 0)}"


def test_every_module_is_imported_where_unix_modules_and_triton_are_missing() -> None:
    modules = [
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
        for path in trees()
        if path not in with_triton()
    ]
    assert len(modules) > 150
    assert {path.parent.name for path in with_triton()} == {"fast"}
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, ",".join(LACKING), ",".join(modules)],
        env=os.environ | {"PYTHONPATH": str(PACKAGE.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_nothing_that_only_unix_has_is_asked_for() -> None:
    asked = [
        f"{where(path, node)}: {node.value.id}.{node.attr}"
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.attr in POSIX_ONLY.get(node.value.id, ())
    ]
    assert not asked


def test_text_is_read_and_written_in_utf8_whatever_the_system_prefers() -> None:
    bare = []
    for path, tree in trees().items():
        for node, name in calls(tree):
            given = {keyword.arg for keyword in node.keywords}
            modes = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            is_method = isinstance(node.func, ast.Attribute)
            is_text = (name in ("read_text", "write_text") and is_method) or (
                name == "open" and not any("b" in mode for mode in modes) and _is_file(node)
            )
            if is_text and "encoding" not in given:
                bare.append(where(path, node))
    assert not bare


def _is_file(node: ast.Call) -> bool:
    """Tell whether `open` is Python's own or a path's, not that of another module."""
    return not (
        isinstance(node.func, ast.Attribute) and getattr(node.func.value, "id", "") in ("os", "gzip", "lzma")
    )


def test_lines_end_alike_on_every_system() -> None:
    loose = []
    for path, tree in trees().items():
        for node, name in calls(tree):
            given = {keyword.arg for keyword in node.keywords}
            modes = {a.value for a in node.args if isinstance(a, ast.Constant)}
            is_writing = name == "open" and bool(modes & {"w", "a", "x"})
            is_writing |= name == "write_text" and isinstance(node.func, ast.Attribute)
            # The one text that is no file is the word that Linux's /proc takes.
            if is_writing and "newline" not in given and "/proc" not in ast.unparse(node):
                loose.append(where(path, node))
    assert not loose


def test_processes_are_spawned_and_never_forked() -> None:
    for path, tree in trees().items():
        for node, name in calls(tree):
            if name == "get_context":
                assert ast.unparse(node.args[0]) == "'spawn'", where(path, node)
            assert name not in ("Pool", "set_start_method", "forkserver"), where(path, node)


def test_the_command_is_not_run_again_by_a_spawned_process() -> None:
    last = trees()[PACKAGE / "__main__.py"].body[-1]
    assert ast.unparse(last).startswith("if __name__ == '__main__':")


def test_a_temporary_folder_whose_files_are_still_mapped_is_no_error() -> None:
    for path, tree in trees().items():
        for node, name in calls(tree):
            if name == "TemporaryDirectory":
                given = {keyword.arg for keyword in node.keywords}
                # Windows deletes no file that is mapped or open.
                assert "ignore_cleanup_errors" in given, where(path, node)


def test_long_cells_are_read_where_a_c_long_has_32_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limit = csv.field_size_limit

    def of_windows(limit: int) -> int:
        if limit >= 2**31:
            raise OverflowError("Python int too large to convert to C long")
        return set_limit(limit)

    monkeypatch.setattr(csv, "field_size_limit", of_windows)
    (tmp_path / "long.csv").write_text(f"text,label\n{'word ' * 60_000},1\n", encoding="utf-8")
    assert len(read_table(tmp_path / "long.csv").columns["text"][0]) > 2**17


class Windows:
    """The module os as Windows has it: no folder is opened, and only what was opened for writing is
    flushed.
    """

    name = "nt"

    def __init__(self) -> None:
        self.writable: set[int] = set()
        self.synced = 0

    def __getattr__(self, name: str) -> Any:
        if name == "kill":
            raise AssertionError("os.kill(process, 0) sends Ctrl-C on Windows")
        return getattr(os, name)

    def open(self, path: Path, flags: int) -> int:
        if path.is_dir():
            raise PermissionError(13, "Permission denied", str(path))
        handle = os.open(path, flags)
        if flags & os.O_RDWR:
            self.writable.add(handle)
        return handle

    def fsync(self, handle: int) -> None:
        if handle not in self.writable:
            raise OSError(9, "Bad file descriptor")
        self.synced += 1


def test_files_and_folders_are_written_whole_on_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = Windows()
    monkeypatch.setattr(files, "os", system)
    files.write_text(tmp_path / "a.txt", "one\ntwo\n")
    assert (tmp_path / "a.txt").read_bytes() == b"one\ntwo\n"
    for content in ("old", "new"):
        with files.whole_folder(tmp_path / "model") as temporary:
            (temporary / "inner").mkdir()
            (temporary / "inner" / "b.txt").write_text(content)
    assert (tmp_path / "model" / "inner" / "b.txt").read_text() == "new"
    assert system.synced == 3
    left = tmp_path / f".model.{files._machine()}-999999999-abcdef.tmp"
    left.mkdir()
    files.restore(tmp_path / "model")
    assert not left.exists()


def test_a_process_that_is_alive_keeps_its_temporary_folder(tmp_path: Path) -> None:
    mine = tmp_path / f".model.{files._machine()}-{os.getpid()}-abcdef.tmp"
    mine.mkdir()
    files.restore(tmp_path / "model")
    assert mine.exists()


def test_a_reader_that_has_gone_is_no_error_where_there_is_no_sigpipe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def gone(arguments: list[str]) -> int:
        raise BrokenPipeError

    monkeypatch.delattr(signal, "SIGPIPE")
    monkeypatch.setattr(cli, "_dispatch", gone)
    monkeypatch.setattr(os, "dup2", lambda *_: None)
    assert cli.main(["list"]) == 141


def test_a_terminal_without_our_characters_shows_question_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, encoding="cp1252", write_through=True))
    monkeypatch.setattr(cli, "_dispatch", lambda arguments: print("2 × 3 → 6") or 0)
    assert cli.main([]) == 0
    assert shown.getvalue().decode("cp1252").strip() == "2 × 3 ? 6"
