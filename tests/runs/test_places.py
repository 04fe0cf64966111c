"""A run goes on from any folder, also after it was moved with its data; other files are refused."""

import json
import shutil
from pathlib import Path

import pytest

from bermo.errors import BermoError
from bermo.runs.folder import check_free, claim, identity, read_run_spec
from bermo.spec import RunSpec, replace_in


def _spec(train: str, backbone: str = "box") -> RunSpec:
    return replace_in(RunSpec(), data={"train": train}, model={"backbone": backbone})


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder in which a run was started by `--train data/my.csv --model encoder --out runs/mine`."""
    folder = tmp_path / "project"
    (folder / "data").mkdir(parents=True)
    (folder / "encoder").mkdir()
    (folder / "data" / "my.csv").write_text("text,label\n")
    monkeypatch.chdir(folder)
    claim(Path("runs/mine"), _spec("data/my.csv", "encoder"), "digest")
    return folder


def test_the_paths_of_a_run_lead_to_its_files_from_another_folder(
    project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    spec = read_run_spec(Path("project/runs/mine"))
    assert spec.data.train == str(project / "data" / "my.csv")
    assert spec.model.backbone == str(project / "encoder")


def test_a_run_that_was_moved_with_its_data_finds_them(
    project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    moved = project.rename(tmp_path / "moved")
    assert read_run_spec(moved / "runs" / "mine").data.train == str(moved / "data" / "my.csv")
    monkeypatch.chdir(moved)
    check_free(Path("runs/mine"), _spec("data/my.csv", "encoder"))


def test_a_run_whose_data_is_gone_says_what_was_typed(project: Path) -> None:
    shutil.rmtree(project / "data")
    assert read_run_spec(Path("runs/mine")).data.train == "data/my.csv"


def test_the_same_files_typed_in_another_way_are_the_same_run(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = _spec("data/my.csv", "encoder")
    begun = identity(typed, "digest", 1, Path("runs/mine"))
    assert begun == identity(typed, "digest", 1)
    monkeypatch.chdir(project / "data")
    for other in (
        _spec("my.csv", "../encoder"),
        _spec(str(project / "data" / "my.csv"), str(project / "encoder")),
    ):
        out = Path("../runs/mine")
        check_free(out, other)
        assert identity(other, "digest", 1, out) == begun


def test_other_files_are_another_run(project: Path) -> None:
    out = Path("runs/mine")
    (project / "other").mkdir()
    with pytest.raises(BermoError, match=r"data\.train was .*my\.csv, now data/your\.csv"):
        check_free(out, _spec("data/your.csv", "encoder"))
    with pytest.raises(BermoError, match=r"model\.backbone was .*encoder, now other"):
        check_free(out, _spec("data/my.csv", "other"))
    with pytest.raises(BermoError, match=r"model\.backbone was .*encoder, now box"):
        check_free(out, _spec("data/my.csv"))
    with pytest.raises(BermoError, match="has changed since it was started"):
        claim(out, _spec("other/my.csv", "encoder"), "another digest")


def test_a_run_from_before_places_were_kept_is_read(project: Path) -> None:
    path = Path("runs/mine/spec.json")
    values = json.loads(path.read_text())
    assert values["spec"]["data"]["train"] == "data/my.csv"
    del values["places"], values["crc32"]
    path.write_text(json.dumps(values))
    check_free(Path("runs/mine"), _spec("data/my.csv", "encoder"))
    assert read_run_spec(Path("runs/mine")).data.train == "data/my.csv"
