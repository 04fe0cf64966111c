"""Folders of sentence-transformers: what is read of them, what is written, and what is refused."""

import json
from pathlib import Path

import pytest

from bermo.encoders.sentence import SentenceSettings, read_settings, write_settings
from bermo.errors import BermoError


def rewrite(path: Path, value: object) -> None:
    path.write_text(json.dumps(value))


@pytest.mark.parametrize(
    "settings",
    [
        SentenceSettings(),
        SentenceSettings(pooling="first", normalise=False, max_length=32),
        SentenceSettings(pooling="last", dimension=8, prompts={"query": "find: "}, default_prompt="query"),
    ],
)
def test_what_is_written_is_read_again(tmp_path: Path, settings: SentenceSettings) -> None:
    write_settings(tmp_path, settings, width=16)
    assert read_settings(tmp_path) == settings


def test_the_names_of_modules_and_poolings_of_version_6_are_read(tmp_path: Path) -> None:
    write_settings(tmp_path, SentenceSettings(), width=16)
    modules = json.loads((tmp_path / "modules.json").read_text())
    modules[1]["type"] = "sentence_transformers.sentence_transformer.modules.pooling.Pooling"
    rewrite(tmp_path / "modules.json", modules)
    rewrite(tmp_path / "1_Pooling" / "config.json", {"embedding_dimension": 16, "pooling_mode": "cls"})
    assert read_settings(tmp_path).pooling == "first"


@pytest.mark.parametrize(
    ("file", "value", "sentence"),
    [
        ("modules.json", [{"type": "models.Dense", "path": "2_Dense"}], "has the module Dense"),
        ("modules.json", [{"type": "models.Pooling", "path": "../x"}], "leads out of its folder"),
        (
            "modules.json",
            [{"type": "models.Pooling", "path": "9" * 300}],
            "no disk can hold",
        ),
        ("modules.json", [{"type": "models.Transformer", "path": ""}], "names no Pooling"),
        ("modules.json", {"type": 3}, "is damaged"),
        ("1_Pooling/config.json", {"pooling_mode_max_tokens": True}, "pools in a way that bermo has not"),
        ("1_Pooling/config.json", [], "is damaged"),
        ("config_sentence_transformers.json", {"prompts": 3}, "is damaged"),
        ("sentence_bert_config.json", {"max_seq_length": -1}, "is damaged"),
    ],
)
def test_what_bermo_cannot_do_is_refused(tmp_path: Path, file: str, value: object, sentence: str) -> None:
    write_settings(tmp_path, SentenceSettings(), width=16)
    rewrite(tmp_path / file, value)
    with pytest.raises(BermoError, match=sentence):
        read_settings(tmp_path)


def test_an_unknown_prompt_is_an_error_and_none_is_the_default() -> None:
    settings = SentenceSettings(prompts={"query": "find: "}, default_prompt="query")
    assert settings.prompt(None) == settings.prompt("query") == "find: "
    with pytest.raises(BermoError, match='Known: "query"'):
        settings.prompt("document")


def test_a_module_whose_folder_is_missing_is_named(tmp_path: Path) -> None:
    write_settings(tmp_path, SentenceSettings(), 8)
    (tmp_path / "1_Pooling" / "config.json").unlink()
    with pytest.raises(BermoError, match=r"config\.json is missing, which modules\.json names"):
        read_settings(tmp_path)
