"""Seeds trained together: each learns what it would learn alone on the same batches."""

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from torch import nn

from bermo.data.batches import BatchPlan
from bermo.errors import BermoError
from bermo.methods.assemble import TaskBatches, assemble
from bermo.methods.checks import check_together
from bermo.methods.finetune import _clear, _groups, finetune
from bermo.methods.prepare import Prepared, prepare
from bermo.methods.together import JoinedBatches, join_jobs
from bermo.progress import Quiet
from bermo.spec import DataSpec, MixSpec, ModelSpec, PruneSpec, RunSpec, TrainSpec, replace_in
from bermo.training.devices import make_accelerator
from bermo.training.job import Batch, Batches, Job, Stopped
from bermo.training.loop import fit, fit_members
from tests.toy import toy_job

pytestmark = pytest.mark.usefixtures("shallow_box")

SEEDS = (1, 2, 3)
METHODS = {
    "dense": PruneSpec(),
    "magnitude": PruneSpec(method="magnitude", density=0.3),
    "movement": PruneSpec(method="movement", density=0.3, rank="score"),
    "sensitivity": PruneSpec(method="movement", density=0.3),
    "size": PruneSpec(method="movement", density=0.3, rank="size"),
    "global": PruneSpec(method="movement", density=0.3, scope="global", rank="score"),
    "soft": PruneSpec(method="soft-movement", penalty=50.0),
    "soft to a density": PruneSpec(method="soft-movement", density=0.5),
}


def _spec(small_encoder: Path, prune: PruneSpec, mix: str = "across", **train: object) -> RunSpec:
    spec = RunSpec(
        model=ModelSpec(
            backbone=str(small_encoder),
            mix=MixSpec(kind=mix, dropout=0.0),
            head_dropout=0.0,
            freeze_embeddings=prune.method != "none",
        ),
        data=DataSpec(task="box/tense", limit=44),
        train=TrainSpec(epochs=1.0, batch_size=8, device="cpu", lr=1e-3, contrast=0.0),
        prune=prune,
        seeds=SEEDS,
    )
    return replace_in(spec, train=dict(train))


def _without_dropout_(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "dropout_prob", None), float):
            module.dropout_prob = 0.0


class _Given:
    """Batches in an order that was chosen elsewhere."""

    def __init__(self, batches: Batches, index: int, joined: JoinedBatches) -> None:
        self.batches, self.index, self.joined = batches, index, joined

    def epoch(self, epoch: int) -> list[np.ndarray]:
        return [rows.reshape(len(SEEDS), -1)[self.index] for rows in self.joined.epoch(epoch)]

    def collate(self, rows: np.ndarray) -> Batch:
        return self.batches.collate(rows)


def _jobs(prepared: Prepared, folder: Path, accelerator: Accelerator) -> list[Job]:
    jobs = []
    for seed in SEEDS:
        parts = assemble(prepared, seed, Quiet(), accelerator)
        _without_dropout_(parts.model)
        (folder / str(seed)).mkdir(parents=True)
        jobs.append(
            Job(
                model=parts.model,
                batches=parts.batches,
                objective=parts.objective,
                groups=parts.groups,
                hooks=parts.hooks,
                masked=parts.masked,
                best_from=parts.best_from,
                evaluate=lambda model: {"accuracy": 50.0},
                keep=lambda model: None,
                folder=folder / str(seed),
                seed=seed,
                identity=str(seed),
            )
        )
    return jobs


@pytest.mark.parametrize("name", METHODS)
def test_each_seed_learns_what_it_would_learn_alone(name: str, small_encoder: Path, tmp_path: Path) -> None:
    # Rounding differs with the number of threads, and moves weights in and out of a mask.
    torch.set_num_threads(1)
    mix = "none" if name == "magnitude" else "across"
    spec = _spec(small_encoder, METHODS[name], mix)
    accelerator = make_accelerator(spec.train, tmp_path)
    prepared = prepare(spec, Quiet())
    together = _jobs(prepared, tmp_path / "together", accelerator)
    alone = _jobs(prepared, tmp_path / "alone", accelerator)
    joined = JoinedBatches([job.batches for job in alone], prepared.train.lengths)
    fits = fit_members(join_jobs(together, prepared.train.lengths, tmp_path), spec.train, accelerator)
    for index, job in enumerate(alone):
        one = fit(replace(job, batches=_Given(job.batches, index, joined)), spec.train, accelerator)
        assert fits[index].last_loss == pytest.approx(one.last_loss, rel=2e-4)
        for (key, mine), (_, other) in zip(
            together[index].model.state_dict().items(), job.model.state_dict().items(), strict=True
        ):
            # On average, since Adam makes a whole step of a gradient that is 0 but for rounding.
            gap = (mine.double() - other.double()).abs().mean().item()
            assert gap < (3e-3 if mine.dtype == torch.bool else 1e-4), key


def test_l0_through_copies_trains_all_seeds_as_without_them(small_encoder: Path, tmp_path: Path) -> None:
    losses = []
    for fast in ("off", "auto"):
        spec = _spec(small_encoder, PruneSpec(method="l0", density=0.3), "across")
        spec = replace_in(spec, train={"fast": fast})
        accelerator = make_accelerator(spec.train, tmp_path)
        prepared = prepare(spec, Quiet())
        jobs = _jobs(prepared, tmp_path / fast, accelerator)
        joint = join_jobs(jobs, prepared.train.lengths, tmp_path / f"{fast}-joint")
        assert len(joint.masked) > 0
        losses.append([one.last_loss for one in fit_members(joint, spec.train, accelerator)])
    assert losses[1] == pytest.approx(losses[0], rel=2e-4)
    assert losses[0][0] != losses[0][1]


def test_the_texts_of_a_step_are_alike_in_length_and_each_seed_reads_all_of_them() -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(3, 60, 203).astype(np.int32)
    plans = [BatchPlan(lengths, 8, seed) for seed in SEEDS]
    joined = JoinedBatches([TaskBatches(None, plan) for plan in plans], lengths)  # type: ignore[arg-type]
    for epoch in (0, 1):
        steps = joined.epoch(epoch)
        parts = [rows.reshape(len(SEEDS), -1) for rows in steps]
        assert {part.shape[1] for part in parts} == {8, 203 % 8}
        for index, plan in enumerate(plans):
            mine = [part[index] for part in parts]
            assert sorted(np.concatenate(mine)) == list(range(203))
            assert {tuple(rows) for rows in mine} == {tuple(rows) for rows in plan.epoch(epoch)}
        spread = [np.ptp([lengths[rows].max() for rows in part]) for part in parts]
        assert np.mean(spread) < 6
    assert not np.array_equal(joined.epoch(0)[0], joined.epoch(1)[0])


def test_the_command_leaves_a_folder_a_seed_and_goes_on_where_it_was(
    small_encoder: Path, tmp_path: Path
) -> None:
    spec = _spec(small_encoder, METHODS["size"], together=3)
    first = finetune(spec, tmp_path / "run")
    assert [seed.together for seed in first.seeds] == [3, 3, 3]
    for seed in first.seeds:
        folder = tmp_path / "run" / f"seed-{seed.seed}"
        assert (folder / "model" / "model.safetensors").exists()
        assert seed.kept == pytest.approx(0.3, abs=0.01)
        rows = _rows(folder)
        assert rows[-2]["density"] == pytest.approx(0.3, abs=0.01)
    assert not list((tmp_path / "run").glob("together-*"))
    losses = {seed.loss for seed in first.seeds}
    assert len(losses) == 3
    more = finetune(replace(spec, seeds=(*SEEDS, 4)), tmp_path / "run")
    assert [seed.loss for seed in more.seeds[:3]] == [seed.loss for seed in first.seeds]


@pytest.mark.parametrize("method", ["sensitivity", "soft to a density"])
def test_a_stopped_group_ends_in_the_same_bits(small_encoder: Path, tmp_path: Path, method: str) -> None:
    spec = _spec(small_encoder, METHODS[method], together=3)
    whole = finetune(spec, tmp_path / "whole")

    class Stop(Quiet):
        def step(self, done: int, loss: float | None) -> None:
            if done == 4:
                os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Stopped):
        finetune(spec, tmp_path / "cut", Stop())
    again = finetune(spec, tmp_path / "cut")
    assert [seed.loss for seed in again.seeds] == [seed.loss for seed in whole.seeds]
    for seed in SEEDS:
        whole_rows, cut_rows = (_rows(tmp_path / name / f"seed-{seed}") for name in ("whole", "cut"))
        assert whole_rows == cut_rows


def _rows(folder: Path) -> list[dict[str, float]]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k not in ("seconds", "crc32")} for line in lines]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"train": {"accumulation": 2}}, "accumulation"),
        ({"train": {"patience": 2}}, "patience"),
        ({"prune": {"method": "heads-and-neurons", "density": 0.5}}, "whole units"),
        ({"prune": {"method": "movement", "density": 0.5, "block": (4, 4)}}, "blocks"),
        ({"model": {"mix": MixSpec(kind="tensor")}}, "tensor"),
    ],
)
def test_what_cannot_be_done_together_is_refused(change: dict, word: str) -> None:
    spec = replace_in(RunSpec(train=TrainSpec(together=2)), **change)
    with pytest.raises(BermoError, match=word):
        check_together(spec)


def test_a_group_whose_results_were_half_written_is_finished_as_that_group(tmp_path: Path) -> None:
    (tmp_path / "together-1-2-3").mkdir()
    assert _groups(tmp_path, (1, 2, 3, 4, 5), [2, 3, 4, 5], 3) == [[1, 2, 3], [4, 5]]
    assert _groups(tmp_path / "new", (1, 2, 3, 4), [1, 2, 3, 4], 3) == [[1, 2, 3], [4]]


def test_what_a_command_killed_after_its_results_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    kept = ["seed-3/checkpoints", "together-3-4", "together-2-3"]
    for name in (*kept, "seed-1/checkpoints", "seed-1/model", "seed-1/.model.old", "together-1-2"):
        (tmp_path / name).mkdir(parents=True)
    _clear(tmp_path, {1, 2})
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == sorted(
        ["seed-1", "seed-1/model", "seed-3", *kept]
    )


def test_projections_of_a_wider_teacher_are_refused_since_they_would_not_learn(
    tmp_path: Path,
) -> None:
    jobs = [toy_job(tmp_path / str(seed), TrainSpec(lr=1e-3, batch_size=4, epochs=1.0)) for seed in SEEDS]
    for job in jobs:
        job.model.add_module("distillation", nn.Linear(2, 2))
    with pytest.raises(BermoError, match="projections"):
        join_jobs(jobs, np.zeros(4), tmp_path)
