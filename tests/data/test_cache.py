"""Token caches are whole or rebuilt, and several processes may build one at once."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bermo import files
from bermo.data.cache import Appender, Writer, open_cache, read_cache
from bermo.errors import BermoError
from bermo.files import cache_root

EXPECTED = [0, 1, 2, 3, 1, 2, 3, 4, 2, 3, 4, 5]


def _build(writer: Writer) -> Mapping[str, Any]:
    for part in range(3):
        writer.append({"ids": np.arange(part, part + 4, dtype=np.int32)})
        writer.append({"pairs": np.full((2, 2), part, dtype=np.uint8)})
    return {"share": 0.5}


def _never(writer: Writer) -> Mapping[str, Any]:
    raise AssertionError("the cache was whole and must not be built again")


def test_what_is_appended_is_what_numpy_reads(tmp_path: Path) -> None:
    appender = Appender(tmp_path / "a.npy", np.float32, (3,))
    parts = [np.random.default_rng(n).random((n, 3), dtype=np.float32) for n in (1, 0, 100_000)]
    for part in parts:
        appender.append(part)
    appender.finish()
    read = np.load(tmp_path / "a.npy", mmap_mode="r", allow_pickle=False)
    assert np.array_equal(read, np.concatenate(parts))


def test_a_cache_is_built_once_and_mapped(tmp_path: Path) -> None:
    first = open_cache(tmp_path / "c", _build)
    again = open_cache(tmp_path / "c", _never)
    assert isinstance(again.arrays["ids"], np.memmap)
    assert first.facts["share"] == again.facts["share"] == 0.5
    assert again.arrays["ids"].tolist() == EXPECTED
    assert again.arrays["pairs"].shape == (6, 2)


@pytest.mark.parametrize(
    "damage", ["cut", "gone", "no facts", "torn facts", "other shape", "flipped bit", "other fact"]
)
def test_a_torn_cache_is_built_again(tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "c"
    open_cache(folder, _build)
    file = folder / "ids.npy"
    match damage:
        case "cut":
            file.write_bytes(file.read_bytes()[:-4])
        case "gone":
            file.unlink()
        case "no facts":
            (folder / "facts.json").unlink()
        case "torn facts":
            (folder / "facts.json").write_text('{"share": 0.')
        case "other shape":
            np.save(file, np.zeros(3, dtype=np.int32))
        case "flipped bit":
            content = file.read_bytes()
            file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        case "other fact":
            facts = (folder / "facts.json").read_text()
            (folder / "facts.json").write_text(facts.replace("0.5", "0.6"))
    assert read_cache(folder) is None
    assert len(open_cache(folder, _build).arrays["ids"]) == 12


def test_a_failed_build_leaves_nothing_behind(tmp_path: Path) -> None:
    def fail(writer: Writer) -> Mapping[str, Any]:
        _build(writer)
        raise BermoError("no")

    with pytest.raises(BermoError, match="no"):
        open_cache(tmp_path / "c", fail)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("moment", ["while building", "before the look", "before the rename"])
def test_another_process_may_finish_the_same_cache_at_any_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    folder = tmp_path / "c"
    rename, sync, pid = os.rename, files.sync, os.getpid()
    others: list[int] = []

    def other_process() -> None:
        """Build the whole cache under another process's number, once."""
        if not others:
            others.append(pid + 1)
            monkeypatch.setattr(os, "getpid", lambda: pid + 1)
            open_cache(folder, _build)
            monkeypatch.setattr(os, "getpid", lambda: pid)

    def build(writer: Writer) -> Mapping[str, Any]:
        if moment == "while building":
            other_process()
        return _build(writer)

    def slow_sync(path: Path) -> None:
        if moment == "before the look" and path.name != "facts.json":
            other_process()
        sync(path)

    def slow_rename(source: Path, target: Path) -> None:
        if moment == "before the rename":
            other_process()
        rename(source, target)

    monkeypatch.setattr(files, "sync", slow_sync)
    monkeypatch.setattr(os, "rename", slow_rename)
    assert open_cache(folder, build).arrays["ids"].tolist() == EXPECTED
    assert others == [pid + 1]
    assert [item.name for item in tmp_path.iterdir()] == ["c"]


def test_a_cache_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(BermoError, match=r"could not be written.*--cache"):
        open_cache(tmp_path / "file" / "c", _build)


def test_the_root_is_the_given_folder_then_the_environments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BERMO_CACHE", "/somewhere")
    assert cache_root("/given") == Path("/given")
    assert cache_root(None) == Path("/somewhere")
    monkeypatch.delenv("BERMO_CACHE")
    assert cache_root(None) == Path.home() / ".cache" / "bermo"


# numpy warns of some types that a changed byte makes.
@pytest.mark.filterwarnings("ignore")
def test_every_changed_byte_of_an_array_is_noticed_or_changes_nothing(tmp_path: Path) -> None:
    open_cache(tmp_path / "c", _build)
    path = tmp_path / "c" / "ids.npy"
    content = path.read_bytes()
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1 << 3
        path.write_bytes(changed)
        found = read_cache(tmp_path / "c")
        assert found is None or found.arrays["ids"].tolist() == EXPECTED, place
