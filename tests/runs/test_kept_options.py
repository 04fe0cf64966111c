"""A folder goes on with the options that it was started with, also those of an earlier bermo."""

import json
from pathlib import Path
from typing import Any

import pytest

from bermo.errors import BermoError
from bermo.fields import leaves
from bermo.runs.folder import EARLIER_VALUES, fixed_part
from bermo.runs.kept_options import locked_for
from bermo.spec import RunSpec
from bermo.values import override

FILE = "options.json"


def kept(folder: Path, changes: dict[str, Any] | None = None, missing: tuple[str, ...] = ()) -> None:
    """Write the file of an earlier bermo: the default spec with changes, some fields missing."""
    values = fixed_part(RunSpec())
    for dotted, value in (changes or {}).items():
        group, name = dotted.split(".")
        values[group][name] = value
    for dotted in missing:
        group, name = dotted.split(".")
        del values[group][name]
    folder.mkdir()
    (folder / FILE).write_text(json.dumps(values))


def start(folder: Path, spec: RunSpec, **more: Any) -> None:
    with locked_for(folder, FILE, fixed_part(spec) | more, leaves(RunSpec)):
        pass


def test_options_that_did_not_exist_have_their_earlier_value(tmp_path: Path) -> None:
    out = tmp_path / "out"
    kept(out, missing=("method.low_rank", "model.head", "train.clip"))
    assert EARLIER_VALUES["model.head"] == "random"
    with pytest.raises(BermoError, match=r"other options: --head was random, now not given\. Give"):
        start(out, RunSpec())
    start(out, override(RunSpec(), "model.head", "random"))
    assert json.loads((out / FILE).read_text())["method"]["low_rank"] is None


def test_a_whole_group_may_be_missing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    kept(out)
    values = json.loads((out / FILE).read_text())
    del values["method"]
    (out / FILE).write_text(json.dumps(values))
    start(out, RunSpec())


def test_an_option_that_need_not_be_the_same_any_more_is_no_difference(tmp_path: Path) -> None:
    kept(tmp_path / "out", {"train.checkpoint_minutes": 3.0})
    start(tmp_path / "out", RunSpec())


def test_what_differs_is_named_as_it_is_typed_with_both_values(tmp_path: Path) -> None:
    out = tmp_path / "out"
    kept(out, {"train.lr": 3e-5, "prune.block": [2, 2], "train.gone": 1})
    expected = (
        "--block was 2,2, now 1,1; train.gone was 1, now not given; --lr was 3e-05, now 0.5. Give another"
    )
    with pytest.raises(BermoError, match=expected):
        start(out, override(RunSpec(), "train.lr", "0.5"))


def test_other_data_is_named_without_its_checksum(tmp_path: Path) -> None:
    start(tmp_path, RunSpec(), rows="a" * 64)
    with pytest.raises(BermoError, match=r"other options: other rows\. Give"):
        start(tmp_path, RunSpec(), rows="b" * 64)


def test_a_file_of_something_else_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("[1]")
    with pytest.raises(BermoError, match="damaged"):
        start(tmp_path, RunSpec())
