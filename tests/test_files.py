"""Files appear whole or not at all."""

import json
import math
from pathlib import Path

import pytest

from bermo.files import restore, whole_folder, write_json, write_text


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


def test_a_kill_between_the_two_renames_is_undone(tmp_path: Path) -> None:
    target = tmp_path / "model"
    with whole_folder(target) as temporary:
        (temporary / "a").write_text("one")
    target.rename(tmp_path / ".model.old")
    (tmp_path / ".model.999999999.tmp").mkdir()
    restore(target)
    assert (target / "a").read_text() == "one"
    assert [p.name for p in tmp_path.iterdir()] == ["model"]
