"""A run's spec refuses what makes no sense, and its fields are the options of the command."""

import subprocess
import sys

import pytest

from bermo.errors import BermoError
from bermo.fields import check, leaves
from bermo.spec import RunSpec
from bermo.values import override


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
        ("seeds", "-5,3"),
        ("seeds", "4294967296,1"),
        ("train.epochs", "inf"),
        ("train.epochs", "1e300"),
        ("train.lr", "nan"),
        ("train.mix_lr", "inf"),
        ("train.weight_decay", "-1"),
        ("train.checkpoint_minutes", "nan"),
        ("train.accumulation", "1000000"),
        ("model.head_dropout", "1.5"),
        ("data.stride", "-1"),
        ("prune.initial_warmup", "-1"),
        ("distill.temperature", "inf"),
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
