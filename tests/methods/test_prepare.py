"""What is prepared before a training: texts no longer than the encoder has positions for."""

import json
from pathlib import Path

import pytest

from bermo.data.rows import TextRows
from bermo.files import write_json
from bermo.methods.prepare import notes, prepare
from bermo.progress import Quiet
from bermo.runs.trained import open_trained
from bermo.ship.runtimes.predict import Predictor
from bermo.ship.runtimes.texts import features_of
from bermo.spec import DataSpec, ModelSpec, RunSpec
from tests.ship.folders import make_model, save
from tests.tiny import save_backbone

LONG = " ".join(["the good cat"] * 40)


def spec_of(folder: Path, family: str, **data: int) -> RunSpec:
    (folder / "my.csv").write_text(f"text,label\n{LONG},good\na bad film,bad\n", encoding="utf-8")
    path = str(folder / "my.csv")
    return RunSpec(
        data=DataSpec(train=path, valid=path, cache=folder / "cache", **data),  # type: ignore[arg-type]
        model=ModelSpec(backbone=str(save_backbone(family, folder / family))),
    )


@pytest.mark.parametrize(("family", "positions"), [("bert", 64), ("roberta", 63), ("mpnet", 62)])
def test_texts_are_cut_at_the_encoders_positions_and_it_is_said(
    tmp_path: Path, family: str, positions: int
) -> None:
    prepared = prepare(spec_of(tmp_path, family), Quiet())
    assert prepared.train.lengths.max() == positions
    assert f"The encoder reads {positions} tokens at most, not 128." in notes(prepared)
    assert any(f"longer than {positions} tokens and are cut" in note for note in notes(prepared))


@pytest.mark.parametrize(("family", "length"), [("bert", 32), ("modernbert", 100)])
def test_where_no_position_is_missing_the_length_is_the_one_asked_for(
    tmp_path: Path, family: str, length: int
) -> None:
    prepared = prepare(spec_of(tmp_path, family, max_length=length), Quiet())
    assert prepared.train.lengths.max() == length
    assert not [note for note in notes(prepared) if "at most" in note]


def test_a_trained_model_is_asked_no_more_tokens_than_it_has_positions(tmp_path: Path) -> None:
    folder = save(make_model(), tmp_path / "model")
    task = json.loads((folder / "task.json").read_text(encoding="utf-8"))
    write_json(folder / "task.json", task | {"max_length": 512})
    opened = open_trained(folder)
    assert features_of(opened, TextRows([LONG, "a cat"])).lengths.tolist() == [64, 4]
    assert len(Predictor(opened).answers(TextRows([LONG]))) == 1
