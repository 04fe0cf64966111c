"""The loop is a function of seed, data and settings: splits and several processes change nothing."""

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from torch import nn

from bermo.machine import Processor
from bermo.spec import TrainSpec
from bermo.training import devices
from bermo.training.devices import make_accelerator
from bermo.training.job import Batch
from tests.pairs import Pairs
from tests.toy import SETTINGS, ToyBatches, ToyLoss, run, toy_job, weights


def test_bf16_is_left_for_fp32_on_a_processor_that_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = TrainSpec(precision="bf16", device="cpu")
    for has_it, mixed, told in (
        (False, "no", ["This processor has no bf16: training in fp32."]),
        (True, "bf16", []),
    ):
        monkeypatch.setattr(devices, "_has_bf16", lambda has_it=has_it: has_it)
        said = list[str]()
        assert make_accelerator(settings, tmp_path, said.append).mixed_precision == mixed
        assert said == told
    assert make_accelerator(TrainSpec(device="cpu"), tmp_path).mixed_precision == "no"


@pytest.mark.parametrize(
    ("torch_has_it", "instructions", "unreported", "has_it"),
    [
        (True, {"AVX-512", "AMX bf16"}, {}, True),
        (True, {"AVX-512", "VNNI"}, {}, False),
        (True, {"AVX-512"}, {"AMX bf16"}, True),
        (False, {"AVX2"}, {}, False),
    ],
)
def test_bf16_counts_only_where_the_processor_computes_it_itself(
    torch_has_it: bool,
    instructions: set[str],
    unreported: set[str],
    has_it: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = Processor(
        name="a Xeon",
        architecture="x86_64",
        system="Linux",
        cores=2,
        instructions=frozenset(instructions),
        unreported=frozenset(unreported),
    )
    monkeypatch.setattr(devices, "processor", lambda: own)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: torch_has_it)
    assert devices._has_bf16() == has_it


def test_the_loop_equals_a_slow_obvious_one(tmp_path: Path) -> None:
    job = toy_job(tmp_path, SETTINGS, dropout=0.0)
    twin = toy_job(tmp_path / "twin", SETTINGS, dropout=0.0)
    run(job)
    model, batches = twin.model, ToyBatches(8)
    optimizer = torch.optim.AdamW(
        [
            {"params": model.first.parameters(), "lr": 3e-2, "weight_decay": 0.0},
            {"params": [model.second.weight], "lr": 1e-2, "weight_decay": 0.1},
            {"params": [model.second.bias], "lr": 1e-2, "weight_decay": 0.0},
        ]
    )
    peaks = [group["lr"] for group in optimizer.param_groups]
    total = 3 * 7
    for step in range(total):
        factor = (step + 1) / 3.1 if step < 2.1 else (total - step) / 18.9
        for group, peak in zip(optimizer.param_groups, peaks, strict=True):
            group["lr"] = peak * factor
        batch = batches.collate(batches.epoch(step // 7)[step % 7])
        loss = nn.functional.cross_entropy(model(batch["x"]), batch["labels"], ignore_index=2)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    torch.testing.assert_close(weights(job), weights(twin), rtol=0, atol=1e-6)


def test_dropout_is_really_drawn_anew_at_each_step(tmp_path: Path) -> None:
    seeds = enumerate((1, 1, 2))
    jobs = [toy_job(tmp_path / str(index), SETTINGS, seed=seed) for index, seed in seeds]
    for job in jobs:
        run(job)
    assert torch.equal(weights(jobs[0]), weights(jobs[1]))
    assert not torch.equal(weights(jobs[0]), weights(jobs[2]))


def test_accumulation_changes_nothing_but_rounding(tmp_path: Path) -> None:
    settings = replace(SETTINGS, accumulation=3)
    whole = toy_job(tmp_path / "whole", SETTINGS, dropout=0.0)
    split = toy_job(tmp_path / "split", settings, dropout=0.0)
    run(whole), run(split, settings)
    torch.testing.assert_close(weights(whole), weights(split), rtol=0, atol=1e-5)


def test_the_best_model_is_kept_and_patience_ends_the_run(tmp_path: Path) -> None:
    scores = iter([50.0, 70.0, 60.0, 65.0, 99.0])
    kept = []
    settings = replace(SETTINGS, patience=2, epochs=5)
    job = toy_job(
        tmp_path,
        settings,
        evaluate=lambda model: {"accuracy": next(scores)},
        keep=lambda model: kept.append(1),
    )
    ended = run(job, settings)
    assert (ended.best["accuracy"], ended.best_step, ended.last["accuracy"]) == (70.0, 14, 65.0)
    assert ended.steps == 4 * 7
    assert len(kept) == 2


def test_a_run_that_stays_dead_is_given_up_and_one_that_recovers_is_not(tmp_path: Path) -> None:
    for collapsed, steps in (([1, 1, 0, 1, 0], 35), ([0, 1, 1, 1, 0], 28)):
        answers = iter(collapsed)
        settings = replace(SETTINGS, give_up=3, epochs=5)
        job = toy_job(
            tmp_path / str(steps),
            settings,
            evaluate=lambda model: {"accuracy": 50.0},
            is_collapsed=lambda a=answers: bool(next(a)),
        )
        assert run(job, settings).steps == steps


def test_an_evaluation_with_a_handicap_is_the_best_only_where_it_leads_by_that(tmp_path: Path) -> None:
    for handicap, best in ((0.0, 72.0), (3.0, 70.0), (1.0, 72.0)):
        scores, lost = iter([72.0, 70.0, 71.5, 69.0, 65.0]), iter([1, 0, 1, 0, 0])
        job = toy_job(
            tmp_path / str(handicap),
            replace(SETTINGS, epochs=5),
            evaluate=lambda model, s=scores: {"accuracy": next(s)},
            handicap=lambda n=lost, h=handicap: h * next(n),
        )
        assert run(job, replace(SETTINGS, epochs=5)).best["accuracy"] == best


def test_a_loss_that_is_not_a_number_ends_the_run(tmp_path: Path) -> None:
    class Broken:
        call = ToyLoss.call

        def count(self, batch: Batch) -> int:
            return 1

        def __call__(self, outputs: torch.Tensor, batch: Batch) -> torch.Tensor:
            return outputs.sum() * math.nan

    ended = run(toy_job(tmp_path, SETTINGS, objective=Broken()))
    assert not ended.is_finite
    assert ended.steps < 21


def test_hooks_see_every_step_and_their_values_are_logged(tmp_path: Path) -> None:
    class Recorder:
        seen: list[object] = []  # noqa: RUF012

        def begin(self, optimizer: torch.optim.Optimizer) -> None:
            self.seen.append("begun")

        def plan(self, step: int) -> None:
            self.seen.append(step)

        def apply(self) -> None:
            self.seen.append("applied")

        def generators(self) -> list[torch.Generator]:
            return []

        def metrics(self) -> dict[str, float]:
            return {"density": 0.25}

    def watch(norms: Mapping[str, float]) -> dict[str, float]:
        assert list(norms) == [name for name, _ in job.model.named_parameters()]
        return {"norm": math.hypot(*norms.values())}

    job = replace(toy_job(tmp_path, SETTINGS, hooks=(Recorder(),)), watch=watch)
    run(job)
    assert Recorder.seen[:5] == ["begun", 0, "applied", 1, "applied"]
    assert len(Recorder.seen) == 1 + 2 * 21
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert rows[-2]["density"] == 0.25
    # One step a row here, so the parts make up the whole.
    assert rows[-2]["norm"] == pytest.approx(rows[-2]["gradient_norm"], rel=1e-5)


def test_models_before_the_final_density_are_not_kept(tmp_path: Path) -> None:
    scores = iter([90.0, 70.0, 60.0])
    job = toy_job(tmp_path, SETTINGS, evaluate=lambda model: {"accuracy": next(scores)}, best_from=8)
    ended = run(job)
    assert (ended.best["accuracy"], ended.best_step) == (70.0, 14)


def test_gradient_norms_are_logged(tmp_path: Path) -> None:
    run(toy_job(tmp_path, SETTINGS))
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert all(row["gradient_norm"] > 0 for row in rows if "loss" in row)


TWO_PROCESSES = """
import sys, json, torch
from pathlib import Path
import bermo.training.loop
from bermo.training.devices import make_accelerator
from bermo.training.loop import fit
from tests.toy import SETTINGS, toy_job, weights
folder = Path(sys.argv[1])
accelerator = make_accelerator(SETTINGS, folder)
assert accelerator.num_processes == 2
# By its own clock one process would save at every evaluation, and the other never.
bermo.training.loop.SAVING_SHARE = (1e-9, 1e9)[accelerator.process_index]
job = toy_job(folder, SETTINGS)
fit(job, SETTINGS, accelerator)
everyone = accelerator.gather(weights(job)[None])
assert torch.equal(everyone[0], everyone[1])
if accelerator.is_main_process:
    (folder / "weights.json").write_text(json.dumps(weights(job).tolist()))
accelerator.end_training()
"""


def test_two_processes_with_other_clocks_give_the_loss_and_weights_of_one(
    tmp_path: Path, pairs: Pairs
) -> None:
    one = toy_job(tmp_path / "one", SETTINGS)
    run(one)
    script = tmp_path / "two.py"
    script.write_text(TWO_PROCESSES)
    pairs.run(script, str(tmp_path / "two"))
    both = torch.tensor(json.loads((tmp_path / "two" / "weights.json").read_text()))
    torch.testing.assert_close(both, weights(one), rtol=0, atol=1e-5)
    losses = [
        [
            row["loss"]
            for row in map(json.loads, (tmp_path / name / "metrics.jsonl").read_text().splitlines())
            if "loss" in row
        ]
        for name in ("one", "two")
    ]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)


def test_a_step_asks_accelerate_for_the_model_no_more_than_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time it walks through all modules, which takes as long as a small step."""
    calls: list[int] = []
    unwrap = Accelerator.unwrap_model

    def counted(self: Accelerator, model: nn.Module, *rest: object) -> nn.Module:
        calls.append(1)
        return unwrap(self, model, *rest)

    monkeypatch.setattr(Accelerator, "unwrap_model", counted)
    numbers = []
    for name, epochs in (("short", 1), ("long", 3)):
        calls.clear()
        settings = replace(SETTINGS, epochs=epochs)
        run(toy_job(tmp_path / name, settings), settings)
        numbers.append(len(calls))
    assert numbers[0] == numbers[1]


def test_training_goes_on_in_training_mode_after_every_evaluation(tmp_path: Path) -> None:
    seen: list[bool] = []
    job = toy_job(tmp_path, SETTINGS, evaluate=lambda model: {"accuracy": 50.0})
    job.model.register_forward_hook(lambda module, inputs, output: seen.append(module.training))
    run(job)
    assert len(seen) == 21
    assert all(seen)
