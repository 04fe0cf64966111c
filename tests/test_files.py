"""Files appear whole or not at all."""

import errno
import json
import math
import os
import shutil
import time
from pathlib import Path

import pytest

from bermo import files
from bermo.errors import BermoError
from bermo.files import (
    copy_folder,
    passing_folder,
    restore,
    whole_bytes,
    whole_folder,
    write_json,
    write_text,
)


def test_a_failed_write_leaves_the_old_file_and_no_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "a.json"
    write_text(target, "old")

    def full_disk(path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("bermo.files.sync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_text(target, "new")
    assert target.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_json_has_null_where_a_number_is_missing(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"x": math.nan, "y": [math.inf, 1.5], "z": (1, "ä")})
    assert json.loads((tmp_path / "a.json").read_text()) == {
        "x": None,
        "y": [None, 1.5],
        "z": [1, "ä"],
    }


def test_a_folder_is_replaced_whole(tmp_path: Path) -> None:
    target = tmp_path / "model"
    for content in ("one", "two"):
        with whole_folder(target) as temporary:
            (temporary / "a").write_text(content)
    assert (target / "a").read_text() == "two"
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_an_error_while_writing_leaves_the_old_folder(tmp_path: Path) -> None:
    target = tmp_path / "model"
    with whole_folder(target) as temporary:
        (temporary / "a").write_text("one")
    with pytest.raises(FileNotFoundError), whole_folder(target) as temporary:
        (temporary / "missing" / "a").write_text("half")
    assert (target / "a").read_text() == "one"
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def _left_by(folder: Path, name: str, process: int = 999999999, machine: str | None = None) -> Path:
    """Return the temporary name that a killed process of this or another machine left."""
    return folder / f".{name}.{machine or files._machine()}-{process}-abcdef.tmp"


def test_a_kill_while_a_text_was_written_leaves_nothing_for_long(tmp_path: Path) -> None:
    _left_by(tmp_path, "a.json").write_text('{"half')
    write_text(tmp_path / "a.json", "whole")
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_a_write_of_another_machine_that_shares_the_disk_is_left_alone_for_a_day(tmp_path: Path) -> None:
    other = _left_by(tmp_path, "a.json", process=1, machine="00000000")
    other.write_text("under way")
    write_text(tmp_path / "a.json", "whole")
    assert other.exists()
    yesterday = time.time() - 2 * files.SECONDS_OF_A_DAY
    os.utime(other, (yesterday, yesterday))
    write_text(tmp_path / "a.json", "again")
    assert not other.exists()


def test_a_changed_number_in_sealed_values_is_noticed(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", files.seal({"step": 12, "best": {"score": 0.1}, "x": math.nan}))
    text = (tmp_path / "a.json").read_text()
    assert files.is_sealed(json.loads(text))
    assert not files.is_sealed(json.loads(text.replace("12", "13")))


def test_a_sealed_file_is_read_without_its_seal_and_one_from_before_seals_as_it_is(tmp_path: Path) -> None:
    values = {"step": 12, "names": {"a": [0.1, None]}}
    files.write_sealed(tmp_path / "a.json", values)
    assert files.read_sealed(tmp_path / "a.json") == values
    write_json(tmp_path / "b.json", values)
    assert files.read_sealed(tmp_path / "b.json") == values


def test_every_changed_bit_of_a_sealed_file_is_noticed_or_changes_nothing(tmp_path: Path) -> None:
    path, values = tmp_path / "a.json", {"step": 12, "share": 0.1}
    files.write_sealed(path, values)
    content = path.read_bytes()
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1 << place % 7
        path.write_bytes(changed)
        try:
            read = files.read_sealed(path)
        except files.DAMAGED:
            continue
        assert values.items() <= read.items(), (place, read)


def test_a_kill_between_the_two_renames_is_undone(tmp_path: Path) -> None:
    target = tmp_path / "model"
    with whole_folder(target) as temporary:
        (temporary / "a").write_text("one")
    target.rename(tmp_path / ".model.old")
    _left_by(tmp_path, "model").mkdir()
    restore(target)
    assert (target / "a").read_text() == "one"
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_a_place_that_can_be_written_is_fine(tmp_path: Path) -> None:
    files.check_place(tmp_path)
    files.check_place(tmp_path / "new" / "below")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder in which nothing can be made")
def test_a_place_where_nothing_can_be_made_is_refused_even_for_the_superuser() -> None:
    with pytest.raises(BermoError, match="/proc cannot be written"):
        files.check_place(Path("/proc/bermo-run"))


def test_a_full_disk_is_not_called_a_place_that_may_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "mkdir", full)
    files.check_place(tmp_path / "new")


def test_a_place_below_a_file_and_a_link_to_nowhere_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BermoError, match="file is a file"):
        files.check_place(tmp_path / "file" / "below" / "it")
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(BermoError, match="link to a place that does not exist"):
        files.check_place(tmp_path / "link")


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="becomes another user for a moment"
)
def test_a_place_that_this_user_may_not_write_to_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents[:-2]):
        folder.chmod(0o755)
    os.seteuid(65534)
    try:
        with pytest.raises(BermoError, match="cannot be written"):
            files.check_place(tmp_path / "new")
    finally:
        os.seteuid(0)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such rights")
def test_tensors_in_a_whole_folder_have_the_rights_of_the_umask(tmp_path: Path) -> None:
    with files.whole_folder(tmp_path / "model") as folder:
        (folder / "model.safetensors").touch(mode=0o600)
    rights = (tmp_path / "model").stat().st_mode & 0o666
    assert (tmp_path / "model" / "model.safetensors").stat().st_mode & 0o777 == rights


def test_a_folder_is_copied_whole_and_a_full_disk_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "from" / "inner").mkdir(parents=True)
    (tmp_path / "from" / "a.txt").write_text("a")
    (tmp_path / "from" / "inner" / "b.txt").write_text("b")
    (tmp_path / "to").mkdir()
    copy_folder(tmp_path / "from", tmp_path / "to")
    assert (tmp_path / "to" / "inner" / "b.txt").read_text() == "b"

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copy2", full)
    with pytest.raises(OSError, match="No space left") as caught:
        copy_folder(tmp_path / "from", tmp_path / "to")
    assert caught.value.errno == errno.ENOSPC, "a list of errors would be no sentence for the user"


def test_a_passing_folder_goes_and_so_does_one_that_a_kill_left(tmp_path: Path) -> None:
    left = _left_by(tmp_path, "traced")
    left.mkdir()
    with passing_folder(tmp_path / "traced") as folder:
        (folder / "graph").write_text("here")
        assert not left.exists()
    assert list(tmp_path.iterdir()) == []


def test_bytes_become_a_file_only_when_all_are_there(tmp_path: Path) -> None:
    with pytest.raises(TypeError), whole_bytes(tmp_path / "a.npy") as file:
        file.write("no bytes")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
    with whole_bytes(tmp_path / "a.npy") as file:
        file.write(b"00le")
        file.seek(0)
        file.write(b"wh")
    assert (tmp_path / "a.npy").read_bytes() == b"whle"
