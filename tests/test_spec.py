"""A spec survives JSON, reads options as typed values, and refuses what makes no sense."""

import json
import subprocess
import sys

import pytest

from bermo.errors import BermoError
from bermo.fields import check, leaves
from bermo.spec import RunSpec
from bermo.values import from_dict, override, parse_seeds, to_dict


def test_a_spec_survives_a_round_trip_through_json() -> None:
    spec = override(override(RunSpec(), "model.mix.layers", "0,4,-1"), "data.text", "a,b")
    assert from_dict(RunSpec, json.loads(json.dumps(to_dict(spec)))) == spec


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
    ("dotted", "text"),
    [
        ("train.epochs", "0"),
        ("train.batch_size", "0"),
        ("train.accumulation", "0"),
        ("train.lr", "-1"),
        ("train.warmup", "2"),
        ("train.clip", "-1"),
        ("train.evaluations", "0"),
        ("train.patience", "0"),
        ("train.give_up", "0"),
        ("data.max_length", "4"),
        ("data.limit", "0"),
        ("data.max_unknown", "2"),
        ("model.mix.dropout", "1"),
        ("seeds", "9,9"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(dotted: str, text: str) -> None:
    with pytest.raises(BermoError):
        check(override(RunSpec(), dotted, text))


def test_no_two_fields_share_a_flag() -> None:
    flags = [leaf.flag for leaf in leaves(RunSpec())]
    assert len(flags) == len(set(flags))


def test_specs_and_the_command_line_import_no_torch() -> None:
    code = "import sys; sys.argv = ['bermo']; import bermo.cli; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
