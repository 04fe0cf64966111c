"""Results on disk: what is no number comes back as NaN, and a damaged file is one sentence."""

import json
import math
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from bermo.errors import BermoError
from bermo.runs.results import read_seed, write_result
from tests.results import seed_result


def test_a_training_without_numbers_is_read_as_it_was_written(tmp_path: Path) -> None:
    result = replace(
        seed_result(1, 50.0),
        score=math.nan,
        values={"accuracy": math.nan},
        mix_layers=[0, 1],
        mix_weights=[math.nan, math.nan],
    )
    write_result(tmp_path / "result.json", result)
    again = read_seed(tmp_path)
    assert again is not None
    assert math.isnan(again.score)
    assert math.isnan(again.values["accuracy"])
    assert all(map(math.isnan, again.mix_weights))
    assert not again.has_shares
    assert again.diverged is None


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "[" * 100_000,
        "{}",
        json.dumps(asdict(seed_result(1, 50.0)) | {"score": "high"}),
        json.dumps(asdict(seed_result(1, 50.0)) | {"values": [1]}),
        json.dumps(asdict(seed_result(1, 50.0)) | {"unknown": 1}),
        json.dumps(asdict(seed_result(1, 50.0)) | {"mix_weights": ["a"]}),
        json.dumps(asdict(seed_result(1, 50.0)) | {"mix_layers": [1, 2, 3], "mix_weights": [1.0, 0.0]}),
        json.dumps(asdict(seed_result(1, 50.0)) | {"device": None}),
        json.dumps(asdict(seed_result(1, 50.0)) | {"seed": 10**400}),
    ],
)
def test_a_damaged_result_is_one_sentence(content: str, tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text(content)
    with pytest.raises(BermoError, match=r"result\.json is damaged .* trains this seed again"):
        read_seed(tmp_path)


def test_a_changed_number_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    write_result(path, seed_result(1, 50.0))
    path.write_text(path.read_text().replace("50.0", "58.0"))
    with pytest.raises(BermoError, match=r"result\.json is damaged .* not the one that was written"):
        read_seed(tmp_path)
