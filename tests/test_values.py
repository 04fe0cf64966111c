"""A value is read from its text or from JSON by the type of its field, and an unknown name is an error."""

import json
from pathlib import Path
from typing import Any, Literal

import pytest

from bermo.errors import BermoError
from bermo.spec import DataSpec, MixSpec, ModelSpec, RunSpec, TrainSpec
from bermo.values import from_dict, normal, override, parse, parse_seeds, to_dict


def test_a_spec_survives_a_round_trip_through_json() -> None:
    spec = override(override(RunSpec(), "model.mix.layers", "0,4,-1"), "data.text", "a,b")
    assert from_dict(RunSpec, json.loads(json.dumps(to_dict(spec)))) == spec


def test_a_spec_built_in_python_is_read_as_from_the_command_line() -> None:
    loose: Any = RunSpec(
        model=ModelSpec(backbone=Path("my") / "encoder", mix=MixSpec(layers=[0, -1])),  # type: ignore[arg-type]
        data=DataSpec(train=Path("my.csv"), text="review"),  # type: ignore[arg-type]
        train=TrainSpec(epochs=2),
        seeds=[3, 5],  # type: ignore[arg-type]
    )
    assert normal(loose) == RunSpec(
        model=ModelSpec(backbone=str(Path("my") / "encoder"), mix=MixSpec(layers=(0, -1))),
        data=DataSpec(train="my.csv", text=("review",)),
        train=TrainSpec(epochs=2.0),
        seeds=(3, 5),
    )
    with pytest.raises(BermoError, match='epochs must be a number, but got "many"'):
        normal(RunSpec(train=TrainSpec(epochs="many")))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("dotted", "text", "expected"),
    [
        ("train.lr", "1e-4", 1e-4),
        ("train.patience", "none", None),
        ("train.patience", "3", 3),
        ("model.mix.kind", "none", "none"),
        ("model.mix.layers", "-4,-3", (-4, -3)),
        ("train.group_lengths", "false", False),
        ("seeds", "3", (1, 2, 3)),
        ("seeds", "9,25", (9, 25)),
        ("seeds", "9,", (9,)),
    ],
)
def test_an_override_is_read_as_the_type_of_its_field(dotted: str, text: str, expected: object) -> None:
    value: object = override(RunSpec(), dotted, text)
    for name in dotted.split("."):
        value = getattr(value, name)
    assert value == expected


def test_more_seeds_than_a_recipe_names_go_on_with_free_numbers() -> None:
    assert parse_seeds("4", (9, 1)) == (9, 1, 2, 3)


@pytest.mark.parametrize(
    ("dotted", "text", "sentence"),
    [
        ("train.lrr", "1", 'TrainSpec has no field "lrr". Did you mean "lr"?'),
        ("modl.mix", "1", 'RunSpec has no field "modl". Did you mean "model"?'),
        ("model.mix.kind", "acros", 'model.mix.kind cannot be "acros". Did you mean "across"?'),
        ("train.lr", "fast", 'train.lr must be a number, but got "fast".'),
        ("train.give_up", "no", 'train.give_up must be a whole number, but got "no".'),
        ("train.group_lengths", "maybe", 'must be true or false, but got "maybe"'),
        ("model", "x", '"model" is a group of fields. Set one of them: model.backbone'),
        ("seeds", "0", "seeds must be 1 to 1000"),
    ],
)
def test_a_wrong_override_names_the_nearest_right_one(dotted: str, text: str, sentence: str) -> None:
    with pytest.raises(BermoError) as caught:
        override(RunSpec(), dotted, text)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("hint", "text", "expected"),
    [
        (Literal["all"] | tuple[int, ...] | None, "all", "all"),
        (Literal["all"] | tuple[int, ...] | None, "0,6,-1", (0, 6, -1)),
        (Literal["all"] | tuple[int, ...] | None, "none", None),
        (tuple[Literal["fp32", "bf16"], ...], "fp32,bf16", ("fp32", "bf16")),
        (tuple[Path, ...], ["a,b", "c"], (Path("a,b"), Path("c"))),
        (bool | None, "no", False),
    ],
)
def test_a_text_is_read_as_its_type(hint: Any, text: Any, expected: object) -> None:
    assert parse(hint, text, "--x") == expected


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"train": 3}, "TrainSpec must be an object with the fields"),
        ({"train": [3]}, "TrainSpec must be an object with the fields"),
        ({"seeds": None}, "seeds has no value"),
        ({"train": {"lr": [1, 2]}}, "lr must be one value, but got a list of 2"),
    ],
)
def test_a_value_of_another_shape_is_a_sentence(values: Any, sentence: str) -> None:
    with pytest.raises(BermoError, match=sentence):
        from_dict(RunSpec, values)


def test_a_name_of_any_length_is_compared_in_a_moment() -> None:
    with pytest.raises(BermoError, match="has no field"):
        override(RunSpec(), "x" * 1_000_000, "1")
