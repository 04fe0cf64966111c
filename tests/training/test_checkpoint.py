"""A stopped run resumes to the same bits, and a damaged checkpoint is skipped for the last whole one."""

import json
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bermo.files import seal, write_json
from bermo.progress import Quiet
from bermo.runs.rows import read_rows
from bermo.spec import TrainSpec
from bermo.training import checkpoint, loop
from bermo.training.graphs import Decisions
from bermo.training.job import Stopped
from bermo.training.members import Member
from bermo.training.step import Step
from tests.toy import SETTINGS, StopAt, run, toy_job, weights

STOPS = [
    (1, signal.SIGINT),
    (4, signal.SIGTERM),
    (7, signal.SIGUSR2),
    (13, signal.SIGINT),
    (18, signal.SIGINT),
]


@pytest.mark.parametrize(("stop_step", "number"), STOPS)
def test_a_resumed_run_ends_in_the_same_bits(tmp_path: Path, stop_step: int, number: int) -> None:
    whole = toy_job(tmp_path / "whole", SETTINGS)
    ended = run(whole)
    with pytest.raises(Stopped):
        run(toy_job(tmp_path / "parts", SETTINGS, hooks=(StopAt(stop_step, number),)))
    resumed = toy_job(tmp_path / "parts", SETTINGS)
    again = run(resumed)
    assert torch.equal(weights(whole), weights(resumed))
    assert replace(again, seconds=0) == replace(ended, seconds=0)
    rows = [
        [
            {k: v for k, v in json.loads(line).items() if k not in ("seconds", "crc32")}
            for line in path.read_text().splitlines()
        ]
        for path in (tmp_path / "whole" / "metrics.jsonl", tmp_path / "parts" / "metrics.jsonl")
    ]
    assert rows[0] == rows[1]


def test_a_resumed_run_goes_on_with_what_was_decided_about_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Decisions] = []

    def make_step(
        step: Step, settings: TrainSpec, rows: int, tell: Callable[[str], None], decisions: Decisions
    ) -> Any:
        seen.append(dict(decisions))
        decisions["a GPU: 2 x 8"] = False
        return step

    monkeypatch.setattr(loop, "make_step", make_step)
    with pytest.raises(Stopped):
        run(toy_job(tmp_path, SETTINGS, hooks=(StopAt(4),)))
    run(toy_job(tmp_path, SETTINGS))
    assert seen == [{}, {"a GPU: 2 x 8": False}]


def test_a_signal_in_the_last_step_ends_the_command_and_no_step_is_made_again(tmp_path: Path) -> None:
    whole = toy_job(tmp_path / "whole", SETTINGS)
    ended = run(whole)
    # Swallowed, it would let the next seed or the next arm begin.
    with pytest.raises(KeyboardInterrupt):
        run(toy_job(tmp_path / "parts", SETTINGS, hooks=(StopAt(ended.steps - 1, signal.SIGINT),)))
    resumed = toy_job(tmp_path / "parts", SETTINGS, hooks=(StopAt(ended.steps - 1, signal.SIGINT),))
    assert replace(run(resumed), seconds=0) == replace(ended, seconds=0)
    assert torch.equal(weights(whole), weights(resumed))


def test_metrics_after_the_last_checkpoint_and_torn_lines_are_written_again(tmp_path: Path) -> None:
    whole = toy_job(tmp_path / "whole", SETTINGS)
    run(whole)
    with pytest.raises(Stopped):
        run(toy_job(tmp_path / "parts", SETTINGS, hooks=(StopAt(9),)))
    metrics = tmp_path / "parts" / "metrics.jsonl"
    # What a kill after the checkpoint would leave.
    with metrics.open("a") as file:
        file.write('{"step": 12, "loss": 99.0}\n{"step": 13, "lo')
    run(toy_job(tmp_path / "parts", SETTINGS))
    steps = [
        [json.loads(line)["step"] for line in path.read_text().splitlines()]
        for path in (tmp_path / "whole" / "metrics.jsonl", metrics)
    ]
    assert steps[0] == steps[1]


@pytest.mark.parametrize("damage", ["", '{"step": 7', "{]\n", "[" * 100_000, "\0"], ids=str.__len__)
def test_metrics_that_were_damaged_or_emptied_are_written_again(tmp_path: Path, damage: str) -> None:
    whole = toy_job(tmp_path / "whole", SETTINGS)
    run(whole)
    with pytest.raises(Stopped):
        run(toy_job(tmp_path / "parts", SETTINGS, hooks=(StopAt(9),)))
    (tmp_path / "parts" / "metrics.jsonl").write_text(damage)
    run(toy_job(tmp_path / "parts", SETTINGS))
    rows = [
        [
            {k: v for k, v in row.items() if k != "seconds"}
            for row in read_rows(tmp_path / name / "metrics.jsonl")
        ]
        for name in ("whole", "parts")
    ]
    assert rows[0] == rows[1]


@pytest.mark.parametrize("damage", ["torn", "flipped", "foreign", "no manifest", "changed state", "no step"])
def test_a_damaged_checkpoint_is_named_and_skipped_for_the_last_whole_one(
    tmp_path: Path, damage: str
) -> None:
    job = toy_job(tmp_path, SETTINGS)
    optimizer = torch.optim.AdamW(job.groups)
    for step in (3, 6):
        identity = "other" if damage == "foreign" and step == 6 else "toy"
        checkpoint.save(tmp_path, job.model, optimizer, identity=identity, state={"step": step})
    file = tmp_path / "step-00000006" / "model.safetensors"
    content = file.read_bytes()
    if damage == "torn":
        file.write_bytes(content[:-7])
    elif damage == "flipped":
        file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif damage == "no manifest":
        (file.parent / "manifest.json").unlink()
    elif damage == "changed state":
        manifest = (file.parent / "manifest.json").read_text()
        (file.parent / "manifest.json").write_text(manifest.replace('"step": 6', '"step": 5'))
    elif damage == "no step":
        manifest = json.loads((file.parent / "manifest.json").read_text())
        del manifest["crc32"]
        write_json(file.parent / "manifest.json", seal(manifest | {"state": {"step": "six"}}))
    messages: list[str] = []
    last = checkpoint.find_last(tmp_path, "toy", messages.append)
    assert last is not None
    assert last.step == 3
    (message,) = messages
    assert "step-00000006" in message


def test_skipped_checkpoints_are_set_aside_and_do_not_push_new_ones_out(tmp_path: Path) -> None:
    job = toy_job(tmp_path, SETTINGS)
    optimizer = torch.optim.AdamW(job.groups)
    for step in (90, 95):
        checkpoint.save(tmp_path, job.model, optimizer, identity="other", state={"step": step})
    assert checkpoint.find_last(tmp_path, "toy", lambda said: None) is None
    checkpoint.set_aside(tmp_path, None)
    for step in (3, 6):
        checkpoint.save(tmp_path, job.model, optimizer, identity="toy", state={"step": step})
    last = checkpoint.find_last(tmp_path, "toy", lambda said: None)
    assert last is not None
    assert last.step == 6
    names = sorted(path.name for path in tmp_path.glob("*step-*"))
    assert names == ["skipped-step-00000090", "skipped-step-00000095", "step-00000003", "step-00000006"]


def test_a_run_with_damaged_newer_checkpoints_keeps_what_it_saves(tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        run(toy_job(tmp_path, SETTINGS, hooks=(StopAt(4),)))
    folder = tmp_path / "checkpoints"
    for path in folder.glob("step-*"):
        (path / "manifest.json").write_text("{")
        path.rename(path.with_name("step-00000900"))
    with pytest.raises(Stopped):
        run(toy_job(tmp_path, SETTINGS, hooks=(StopAt(2),)))
    assert checkpoint.find_last(folder, "toy", lambda said: None) is not None


def test_only_the_newest_two_checkpoints_stay(tmp_path: Path) -> None:
    job = toy_job(tmp_path, SETTINGS)
    for step in (1, 2, 3):
        checkpoint.save(
            tmp_path / "c",
            job.model,
            torch.optim.AdamW(job.groups),
            identity="x",
            state={"step": step},
        )
    assert [p.name for p in sorted((tmp_path / "c").iterdir())] == [
        "step-00000002",
        "step-00000003",
    ]


def test_a_members_numbers_come_back(tmp_path: Path) -> None:
    member = Member(toy_job(tmp_path, SETTINGS), is_writing=False)
    member.now.stale_evaluations, member.now.dead_evaluations = 2, 1
    again = Member(toy_job(tmp_path, SETTINGS), is_writing=False)
    again.resume(member.state())
    assert again.now == member.now


def test_a_disk_that_is_too_small_is_told_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = toy_job(tmp_path, SETTINGS).model
    assert "This disk has" not in checkpoint.disk_note(tmp_path / "new" / "checkpoints", model)
    monkeypatch.setattr(checkpoint.shutil, "disk_usage", lambda path: SimpleNamespace(free=0))
    assert checkpoint.disk_note(tmp_path, model).endswith(
        "This disk has 0.0 MB left: make room, or the training ends when it is full."
    )


def test_checkpoints_take_no_more_of_the_disk_than_was_said(tmp_path: Path) -> None:
    said: list[str] = []
    most: list[int] = []

    class Watch(Quiet):
        def tell(self, sentence: str) -> None:
            said.append(sentence)

        def step(self, done: int, loss: float | None) -> None:
            most.append(len([*(tmp_path / "checkpoints").glob("*")]))

    settings = replace(SETTINGS, checkpoint_minutes=0.0)
    job = toy_job(tmp_path, settings, display=Watch())
    for step in range(4):
        damaged = tmp_path / "checkpoints" / f"step-{step:08d}"
        damaged.mkdir(parents=True)
    run(job, settings)
    assert said[4] == f"Checkpoints of 0.0 MB in {tmp_path / 'checkpoints'}: 2 are kept, 0.0 MB at most."
    assert max(most) == 4, "two of this run, and the two newest that were skipped"
    assert checkpoint.num_bytes(job.model) == 3 * 4 * weights(job).numel()


def test_metrics_of_a_long_run_are_as_few_as_those_of_a_short_one(tmp_path: Path) -> None:
    settings = replace(SETTINGS, epochs=60, evaluations=None)
    run(toy_job(tmp_path, settings), settings)
    rows = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert json.loads(rows[-1])["step"] == 60 * 7
    assert len(rows) < 130
