"""A changed, cut or missing file of a model's folder is named; a folder without sums is not checked."""

import json
from pathlib import Path

import pytest

from bermo import sums
from bermo.errors import BermoError
from bermo.files import checksum, write_sealed
from bermo.sums import SUMS_FILE, check_sums, sum_ahead_, write_sums


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("config.json", "model.safetensors", "README.md"):
        (tmp_path / name).write_text(f'{{"name": "{name}"}}')
    write_sums(tmp_path)
    return tmp_path


def test_files_as_they_were_written_are_accepted_and_the_card_may_change(folder: Path) -> None:
    (folder / "README.md").write_text("mine")
    (folder / "notes.txt").write_text("mine")
    check_sums(folder)


@pytest.mark.parametrize("content", [b'{"name": "config.jsom"}', b"", b'{"name"'])
def test_a_file_with_other_bytes_is_named(folder: Path, content: bytes) -> None:
    (folder / "config.json").write_bytes(content)
    with pytest.raises(BermoError, match=r"config\.json is damaged, or was changed"):
        check_sums(folder)


def test_a_missing_file_is_named(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(BermoError, match=r"model\.safetensors is missing"):
        check_sums(folder)


@pytest.mark.parametrize("content", ["", "[]", "{", '{"files": {}}'])
def test_damaged_sums_are_named(folder: Path, content: str) -> None:
    (folder / SUMS_FILE).write_text(content)
    with pytest.raises(BermoError, match=r"checksums\.json is damaged"):
        check_sums(folder)


def test_every_flipped_bit_of_the_sums_is_noticed_or_changes_nothing(folder: Path) -> None:
    good = (folder / SUMS_FILE).read_bytes()
    for at in range(len(good)):
        content = bytearray(good)
        content[at] ^= 1
        (folder / SUMS_FILE).write_bytes(content)
        try:
            check_sums(folder)
        except BermoError:
            continue
        assert json.loads(content) == json.loads(good)


def test_a_folder_without_sums_is_not_checked(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    check_sums(tmp_path)


def test_files_of_folders_below_are_summed_too(folder: Path) -> None:
    pooling = folder / "1_Pooling" / "config.json"
    pooling.parent.mkdir()
    pooling.write_text('{"pooling_mode": "mean"}')
    write_sums(folder)
    check_sums(folder)
    pooling.write_text('{"pooling_mode": "cls"}')
    with pytest.raises(BermoError, match=r"1_Pooling.config\.json is damaged, or was changed"):
        check_sums(folder)


@pytest.mark.parametrize("name", ["/etc/passwd", "../other", "a/../../other"])
def test_sums_name_no_file_outside_of_their_folder(folder: Path, name: str) -> None:
    write_sealed(folder / SUMS_FILE, {"files": {name: {"bytes": 1, "crc32": 1}}})
    with pytest.raises(BermoError, match="names a file outside of its folder"):
        check_sums(folder)


def test_sums_begun_ahead_count_once_and_only_of_files_that_are_not_touched_since(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summed: list[Path] = []

    def counted(file: Path) -> dict[str, int]:
        summed.append(file)
        return checksum(file)

    monkeypatch.setattr(sums, "checksum", counted)
    sum_ahead_(folder)
    check_sums(folder)
    assert sorted(file.name for file in summed) == ["config.json", "model.safetensors"]
    check_sums(folder)
    assert len(summed) == 4
    sum_ahead_(folder)
    sums.AHEAD[folder / SUMS_FILE].join()
    (folder / "config.json").write_text('{"name": "config.jsom"}')
    with pytest.raises(BermoError, match=r"config\.json is damaged, or was changed"):
        check_sums(folder)


def test_what_cannot_be_summed_ahead_is_said_as_ever(folder: Path, tmp_path: Path) -> None:
    (folder / "model.safetensors").unlink()
    sum_ahead_(folder)
    with pytest.raises(BermoError, match=r"model\.safetensors is missing"):
        check_sums(folder)
    (folder / SUMS_FILE).write_text("{")
    sum_ahead_(folder)
    with pytest.raises(BermoError, match=SUMS_FILE):
        check_sums(folder)
    sum_ahead_(tmp_path / "nowhere")
    assert not sums.AHEAD
