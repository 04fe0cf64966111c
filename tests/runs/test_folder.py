"""A run's folder belongs to one run; seeds are put together with Student's interval."""

import hashlib
import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bermo.errors import BermoError
from bermo.methods.checks import check_methods
from bermo.pretrain_spec import PretrainSpec
from bermo.runs.folder import (
    EARLIER_VALUES,
    check_free,
    claim,
    fixed_part,
    identity,
    locked,
    read_run_spec,
    read_spec_file,
    with_choices,
)
from bermo.runs.results import read_seed, write_result
from bermo.runs.statistics import student_t, summarise
from bermo.spec import MixSpec, RunSpec, replace_in
from bermo.values import override
from tests.results import seed_result

SPEC = RunSpec()
ROOT = str(Path(__file__).parents[2])


@pytest.mark.parametrize(
    ("freedom", "expected"),
    [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (9, 2.2622), (10, 2.2281), (30, 2.0423)],
)
def test_students_t_equals_the_printed_table(freedom: int, expected: float) -> None:
    assert student_t(freedom) == pytest.approx(expected, abs=5e-5)


def test_seeds_that_diverged_are_counted_and_left_out_of_the_mean() -> None:
    seeds = [
        seed_result(1, 90.0),
        seed_result(2, 92.0),
        seed_result(3, 50.9, "every prediction is 1"),
    ]
    result = summarise(seeds)
    assert (result.mean, result.num_diverged) == (91.0, 1)
    assert result.deviation == pytest.approx(math.sqrt(2))
    assert result.interval == pytest.approx((91 - 12.7062, 100), abs=1e-3)


def test_one_seed_has_no_interval_and_none_at_all_no_mean() -> None:
    assert summarise([seed_result(1, 90.0)]).interval is None
    assert math.isnan(summarise([seed_result(1, 50.0, "collapsed")]).mean)


def test_a_result_survives_the_disk(tmp_path: Path) -> None:
    write_result(tmp_path / "result.json", seed_result(3, 91.25))
    found = read_seed(tmp_path)
    assert found is not None
    assert math.isnan(found.loss)
    assert replace(found, loss=0.0) == replace(seed_result(3, 91.25), loss=0.0)


def test_a_result_from_before_padding_was_measured_is_still_read(tmp_path: Path) -> None:
    write_result(tmp_path / "result.json", seed_result(3, 91.25))
    values = json.loads((tmp_path / "result.json").read_text())
    del values["padding_share"], values["crc32"]
    (tmp_path / "result.json").write_text(json.dumps(values))
    found = read_seed(tmp_path)
    assert found is not None
    assert math.isnan(found.padding_share)
    assert found.score == 91.25


def test_the_folder_of_another_run_is_refused_and_the_difference_named(tmp_path: Path) -> None:
    claim(tmp_path / "run", override(SPEC, "train.lr", "3e-5"), "digest")
    check_free(tmp_path / "run", SPEC)
    with pytest.raises(BermoError, match=r"holds another run.*train\.lr was 3e-05, now 0\.0001"):
        check_free(tmp_path / "run", override(SPEC, "train.lr", "1e-4"))


def test_more_seeds_or_another_cache_are_the_same_run(tmp_path: Path) -> None:
    claim(tmp_path, SPEC, "digest")
    other = override(override(SPEC, "seeds", "5"), "data.cache", "elsewhere")
    check_free(tmp_path, other)
    assert identity(SPEC, "digest", 1) == identity(other, "digest", 1)
    assert identity(SPEC, "digest", 1) != identity(SPEC, "digest", 2)


def test_a_folder_with_other_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("all my work")
    with pytest.raises(BermoError, match="not empty and holds no run"):
        check_free(tmp_path, SPEC)
    with pytest.raises(BermoError, match="is a file"):
        check_free(tmp_path / "thesis.tex", SPEC)


def test_a_folder_whose_spec_was_never_finished_is_as_good_as_empty(tmp_path: Path) -> None:
    (tmp_path / ".spec.json.00000000-1-abcdef.tmp").write_text('{"spec": {"mod')
    (tmp_path / ".lock").touch()
    check_free(tmp_path, SPEC)
    assert claim(tmp_path, SPEC, "digest")


def test_changed_data_is_refused(tmp_path: Path) -> None:
    claim(tmp_path, SPEC, "old")
    with pytest.raises(BermoError, match=r"data .* has changed"):
        claim(tmp_path, SPEC, "new")


# The name "bermo" makes the import of the package a light one.
HOLD = """
import sys, time
sys.argv[0] = "bermo"
from pathlib import Path
from bermo.errors import BermoError
from bermo.runs.folder import locked
try:
    with locked(Path(sys.argv[1])):
        print("held", flush=True)
        time.sleep(float(sys.argv[2]))
except BermoError as error:
    print(error, flush=True)
"""


def hold(folder: Path, seconds: float) -> subprocess.Popen[str]:
    """Start a process that asks for the folder, and says whether it has it."""
    words = [sys.executable, "-c", HOLD, str(folder), str(seconds)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": ROOT})


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.usefixtures("warm_python")
def test_a_second_process_is_refused_until_the_first_is_killed(tmp_path: Path) -> None:
    refusal = f"Another bermo is at work in {tmp_path}. Wait for it, or stop it."
    with hold(tmp_path, 600) as first:
        try:
            assert first_line(first) == "held"
            with hold(tmp_path, 0) as second:
                assert first_line(second) == refusal
            with pytest.raises(BermoError, match="Another bermo is at work"), locked(tmp_path):
                pass
        finally:
            first.kill()
            first_line(first)  # the end of its output: a forked one is gone a moment later than its client
    with hold(tmp_path, 0) as third:
        assert first_line(third) == "held"


def test_a_lock_falls_with_its_block_and_its_file_is_no_content(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="inside"), locked(tmp_path / "run"):
        raise ValueError("inside")
    with locked(tmp_path / "run"):
        check_free(tmp_path / "run", SPEC)
    check_free(tmp_path / "run", SPEC)


def test_what_was_chosen_for_a_command_is_kept_by_its_folder(tmp_path: Path) -> None:
    claim(tmp_path, override(override(SPEC, "train.lr", "1e-4"), "model.pooling", "mean"), "digest")
    check_free(tmp_path, SPEC)
    again = with_choices(tmp_path, SPEC)
    assert (again.train.lr, again.model.pooling, again.train.epochs) == (1e-4, "mean", None)
    with pytest.raises(BermoError, match=r"train\.lr was 0\.0001, now 0\.1"):
        check_free(tmp_path, override(SPEC, "train.lr", "0.1"))


def test_a_run_from_before_heads_were_fitted_goes_on_with_its_random_one(tmp_path: Path) -> None:
    began = replace_in(
        SPEC, train={"lr": 3e-5, "epochs": 3.0, "batch_size": 32, "evaluations": 1, "contrast": 0.0}
    )
    values = fixed_part(began)
    for dotted in EARLIER_VALUES:
        group, _, name = dotted.rpartition(".")
        values.get(group, {}).pop(name, None)
    del values["method"]
    (tmp_path / "spec.json").write_text(json.dumps({"spec": values, "data": "digest"}))
    check_free(tmp_path, SPEC)
    again = with_choices(tmp_path, SPEC)
    kept = {"head": "random", "pairs": "joined"}
    assert again == replace_in(began, model=kept, train={"average": "off"})
    earlier = hashlib.sha256(json.dumps([values, "digest", 1], sort_keys=True).encode()).hexdigest()[:16]
    assert identity(again, "digest", 1) == earlier, "its checkpoints are found"


def test_a_field_that_is_added_leaves_runs_that_began_before_it_their_names(tmp_path: Path) -> None:
    # A new field of a spec gets its earlier value in EARLIER_VALUES, or no run goes on that began before it.
    chosen = {"pairs": "joined", "mix": MixSpec(kind="across")}
    joined = replace_in(RunSpec(), model=chosen, train={"average": "off"})
    assert identity(joined, "x", 1) == "8caf556b0bd9d961"
    assert identity(PretrainSpec(), "x", 1) == "501eff386d79e400"
    values = fixed_part(PretrainSpec())
    for dotted in EARLIER_VALUES:
        group, _, name = dotted.rpartition(".")
        (values.get(group, {}) if group else values).pop(name, None)
    (tmp_path / "spec.json").write_text(json.dumps({"spec": values, "data": "digest"}))
    check_free(tmp_path, PretrainSpec())


@pytest.mark.parametrize(
    "changes",
    [{"places": "here"}, {"places": {"data.train": 3}}, {"spec": {"data": [1]}}, {"spec": 3}, {"data": None}],
)
def test_a_spec_file_with_other_values_is_one_sentence(changes: dict[str, Any], tmp_path: Path) -> None:
    claim(tmp_path, RunSpec(), "digest")
    values = json.loads((tmp_path / "spec.json").read_text(encoding="utf-8"))
    (tmp_path / "spec.json").write_text(json.dumps(values | changes), encoding="utf-8")
    with pytest.raises(BermoError, match=r"spec\.json is damaged"):
        check_free(tmp_path, RunSpec())


def test_a_changed_value_of_a_spec_is_noticed(tmp_path: Path) -> None:
    claim(tmp_path, RunSpec(), "digest")
    path = tmp_path / "spec.json"
    path.write_text(path.read_text().replace('"stride": 128', '"stride": 129'))
    with pytest.raises(BermoError, match=r"spec\.json is damaged .* not the one that was written"):
        read_spec_file(tmp_path)


@pytest.mark.parametrize("method", ["none", "soft-movement", "layers", "magnitude", "movement"])
def test_a_folder_from_when_every_method_had_a_ranking_is_read_as_what_it_did(
    tmp_path: Path, method: str
) -> None:
    spec = replace_in(SPEC, prune={"method": method, "density": None if method == "none" else 0.5})
    values = fixed_part(spec)
    values["prune"] |= {"rank": "size", "scope": "matrix"}
    (tmp_path / "spec.json").write_text(json.dumps({"spec": values, "data": "digest"}), encoding="utf-8")
    check_free(tmp_path, spec)
    old = read_run_spec(tmp_path)
    check_methods(old)
    assert (old.prune.rank == "size") == (method == "movement")
    assert with_choices(tmp_path, spec).prune == old.prune
