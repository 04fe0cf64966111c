"""The pooling that sentence-transformers wrote beside an encoder is read; nothing else is taken for one."""

import json
from pathlib import Path

import pytest

from bermo.encoders.pooling import trained_pooling


def write(folder: Path, place: str, **modes: bool) -> str:
    (folder / place).mkdir(parents=True)
    (folder / place / "config.json").write_text(json.dumps({"word_embedding_dimension": 8, **modes}))
    return str(folder)


@pytest.mark.parametrize(
    ("mode", "pooling"),
    [
        ("pooling_mode_mean_tokens", "mean"),
        ("pooling_mode_cls_token", "first"),
        ("pooling_mode_lasttoken", "last"),
        ("pooling_mode_max_tokens", None),
    ],
)
def test_the_pooling_of_the_folder_is_read(tmp_path: Path, mode: str, pooling: str | None) -> None:
    modes = {"pooling_mode_cls_token": False, mode: True}
    assert trained_pooling(write(tmp_path, "1_Pooling", **modes)) == pooling


def test_modules_json_names_the_folder(tmp_path: Path) -> None:
    name = write(tmp_path, "2_Pooling", pooling_mode_mean_tokens=True)
    assert trained_pooling(name) is None
    module = {"idx": 2, "path": "2_Pooling", "type": "sentence_transformers.models.Pooling"}
    (tmp_path / "modules.json").write_text(json.dumps([{"path": "", "type": "Transformer"}, module]))
    assert trained_pooling(name) == "mean"


def test_two_modes_at_once_a_broken_file_and_no_file_name_none(tmp_path: Path) -> None:
    both = {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}
    assert trained_pooling(write(tmp_path / "both", "1_Pooling", **both)) is None
    broken = write(tmp_path / "broken", "1_Pooling")
    (tmp_path / "broken" / "1_Pooling" / "config.json").write_text("{")
    assert trained_pooling(broken) is None
    assert trained_pooling("box") is None
