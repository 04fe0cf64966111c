"""Fine-pruning through the command's own path: the wanted density, ordinary models, exact resume."""

import json
import os
import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification

from bermo.errors import BermoError
from bermo.methods.assemble import assemble
from bermo.methods.checks import check_methods, make_method
from bermo.methods.finetune import finetune
from bermo.methods.prepare import prepare
from bermo.methods.prune import PruneHook, make_schedule
from bermo.progress import Quiet
from bermo.pruning.criteria import L0, Magnitude, Movement, SoftMovement
from bermo.pruning.fold import count
from bermo.spec import DistillSpec, PruneSpec, RunSpec, replace_in
from bermo.training.devices import make_accelerator
from bermo.training.job import Stopped
from bermo.values import override
from tests.pairs import Pairs
from tests.specs import TINY

pytestmark = pytest.mark.usefixtures("shallow_box")


def test_a_pruned_run_leaves_an_ordinary_model_of_the_asked_density(tmp_path: Path) -> None:
    result = finetune(TINY, tmp_path)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model")
    counted = count(model)
    assert result.seeds[0].encoder_density == pytest.approx(counted.encoder_density, abs=1e-6)
    assert result.seeds[0].encoder_kept == counted.encoder_kept
    assert result.seeds[0].kept == pytest.approx(0.2, abs=1e-3)
    assert 0.2 < counted.encoder_density < 0.25, "biases and norms stay beside a fifth of the matrices"
    names = load_file(tmp_path / "model" / "model.safetensors").keys()
    assert not any("scores" in name or "parametrizations" in name for name in names)


def test_scores_and_mix_have_their_own_rate_no_decay_and_embeddings_can_be_frozen(
    tmp_path: Path,
) -> None:
    spec = replace_in(TINY, model={"freeze_embeddings": True}, train={"lr": 3e-5, "weight_decay": 0.1})
    parts = assemble(prepare(spec, Quiet()), 9, Quiet(), make_accelerator(spec.train, tmp_path))
    settings = {
        id(p): (group["lr"], group["weight_decay"]) for group in parts.groups for p in group["params"]
    }
    seen = set()
    for name, parameter in parts.model.named_parameters():
        if "embeddings" in name:
            assert id(parameter) not in settings, name
            continue
        is_fast = name.endswith(".scores") or ".layer_mix." in name
        expected = (1e-2, 0.0) if is_fast else (3e-5, 0.1 if parameter.ndim > 1 else 0.0)
        assert settings[id(parameter)] == expected, name
        seen.add(expected)
    assert len(seen) == 3


def test_looks_before_the_final_density_are_never_the_best(tmp_path: Path) -> None:
    result = finetune(replace_in(TINY, train={"evaluations": 3}), tmp_path)
    last = make_schedule(TINY.prune, 12).last_step
    assert result.seeds[0].best_step >= last


def test_a_pruned_run_records_density_kept_shares_scores_and_gradients(tmp_path: Path) -> None:
    finetune(TINY, tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "seed-1" / "metrics.jsonl").read_text().splitlines()]
    rows = [row for row in rows if "loss" in row]
    densities = [row["density"] for row in rows]
    assert densities == sorted(densities, reverse=True)
    assert densities[0] == 1.0
    assert densities[-1] == pytest.approx(0.2, abs=1e-3)
    last = rows[-1]
    assert {0 <= last[key] <= 1 for key in last if key.startswith("kept/")} == {True}
    assert len({last[key] for key in last if key.startswith("kept/")}) > 1, (
        "weights compete over all matrices"
    )
    assert last["score_std/layer.3.output.dense"] > 0
    assert last["gradient/layer.2"] > 0


@pytest.mark.parametrize(
    "prune",
    [
        {"method": "movement"},
        {"method": "l0"},
        {"method": "heads-and-neurons", "by": "l0", "density": 0.5, "rank": None, "scope": None},
    ],
    ids=lambda prune: str(prune["method"]),
)
def test_a_stopped_pruning_run_ends_in_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prune: dict[str, object]
) -> None:
    spec = replace_in(TINY, prune=prune)
    finetune(spec, tmp_path / "whole")

    class StoppingHook(PruneHook):
        def plan(self, step: int) -> None:
            super().plan(step)
            if step == 6:
                os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr("bermo.methods.assemble.PruneHook", StoppingHook)
        with pytest.raises(Stopped):
            finetune(spec, tmp_path / "parts")
    finetune(spec, tmp_path / "parts")
    saved = [load_file(tmp_path / n / "model" / "model.safetensors") for n in ("whole", "parts")]
    assert all(torch.equal(saved[0][key], saved[1][key]) for key in saved[0])


def test_accumulation_prunes_the_same_weights(tmp_path: Path) -> None:
    still = replace_in(TINY, model={"head_dropout": 0.0})
    still = override(override(still, "model.mix.dropout", "0"), "train.lr", "1e-4")
    specs = {"whole": still, "split": replace_in(still, train={"accumulation": 2})}
    zeros = {}
    for name, spec in specs.items():
        finetune(spec, tmp_path / name)
        tensors = load_file(tmp_path / name / "model" / "model.safetensors")
        zeros[name] = torch.cat([t.flatten() == 0 for k, t in tensors.items() if "encoder.layer" in k])
    same = (zeros["whole"] == zeros["split"]).double().mean().item()
    assert same > 0.99


TWO_PROCESSES = """
import hashlib, sys, torch
from pathlib import Path
from accelerate.utils import gather_object
from bermo.methods import assemble
from bermo.methods.finetune import finetune
from bermo.spec import replace_in
from tests.specs import TINY
seen = []
class Hook(assemble.PruneHook):
    def metrics(self):
        masks = torch.cat([m.mask.flatten() for m in self.pruner.masks])
        seen.append(hashlib.sha256(masks.numpy().tobytes()).hexdigest())
        return super().metrics()
assemble.PruneHook = Hook
finetune(replace_in(TINY, model={"backbone": sys.argv[2]}), Path(sys.argv[1]))
both = gather_object([seen])
assert len(both) == 2 and len(both[0]) == 12 and len({*both[0]}) > 6
assert both[0] == both[1]
"""


def test_masks_are_equal_on_two_processes_at_every_step(
    tmp_path: Path, small_encoder: Path, pairs: Pairs
) -> None:
    script = tmp_path / "two.py"
    script.write_text(TWO_PROCESSES)
    pairs.run(script, str(tmp_path / "run"), str(small_encoder))


def test_a_teacher_and_pruning_work_together(tmp_path: Path) -> None:
    dense = replace_in(TINY, prune={"method": "none", "density": None})
    finetune(dense, tmp_path / "dense")
    taught = replace_in(TINY, distill={"teacher": str(tmp_path / "dense")})
    result = finetune(taught, tmp_path / "taught")
    assert result.seeds[0].encoder_density < 0.25


def test_a_student_of_some_layers_is_that_much_smaller(tmp_path: Path) -> None:
    dense = replace_in(TINY, prune={"method": "none", "density": None})
    teacher = finetune(dense, tmp_path / "dense").seeds[0]
    spec = replace_in(dense, distill={"teacher": str(tmp_path / "dense"), "student_layers": (1, 3)})
    student = finetune(spec, tmp_path / "student").seeds[0]
    assert student.mix_layers == [0, 1, 2]
    assert student.num_parameters < teacher.num_parameters


def test_another_teacher_is_another_run(tmp_path: Path) -> None:
    dense = replace_in(TINY, prune={"method": "none", "density": None})
    finetune(dense, tmp_path / "dense")
    taught = replace_in(dense, distill={"teacher": str(tmp_path / "dense")})
    finetune(taught, tmp_path / "taught")
    weights = tmp_path / "dense" / "model" / "model.safetensors"
    content = weights.read_bytes()
    weights.unlink()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    (weights.parent / "checksums.json").unlink()
    with pytest.raises(BermoError, match=r"teacher .* has changed"):
        finetune(taught, tmp_path / "taught")


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (PruneSpec(method="magnitude", density=0.1), Magnitude(density=0.1)),
        (
            PruneSpec(method="movement", density=0.1, scope="global", rank="score"),
            Movement(density=0.1, scope="global", rank="score"),
        ),
        (PruneSpec(method="soft-movement", penalty=150.0), SoftMovement(penalty=150.0)),
        (PruneSpec(method="l0", density=0.1, block=(4, 4)), L0(density=0.1, block=(4, 4))),
    ],
)
def test_a_spec_becomes_its_method(spec: PruneSpec, expected: object) -> None:
    assert make_method(spec) == expected


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (RunSpec(prune=PruneSpec(method="movement", rank="score")), "needs --density"),
        (RunSpec(prune=PruneSpec(density=0.1)), "Choose a method with --prune"),
        (
            RunSpec(prune=PruneSpec(method="movement", density=0.1, penalty=3.0, rank="score")),
            "means nothing",
        ),
        (RunSpec(prune=PruneSpec(method="l0")), "one of the two"),
        (RunSpec(prune=PruneSpec(method="magnitude", density=0.0)), "over 0 and at most 1"),
        (RunSpec(distill=DistillSpec(temperature=3.0)), "need a teacher"),
        (RunSpec(distill=DistillSpec(student_layers=(1, 2))), "--teacher"),
    ],
)
def test_options_that_cannot_work_are_refused_before_any_work(spec: RunSpec, sentence: str) -> None:
    with pytest.raises(BermoError, match=sentence):
        check_methods(spec)


@pytest.mark.parametrize("warmup", [0, 1])
def test_the_last_step_has_the_final_density_with_and_without_a_warm_up(warmup: int) -> None:
    schedule = make_schedule(PruneSpec(method="movement", density=0.1, warmup_steps=warmup, rank="score"), 12)
    assert schedule.value(11, 1.0, 0.1) == 0.1
    assert schedule.value(10 - warmup, 1.0, 0.1) > 0.1


def test_a_density_that_a_penalty_misses_is_told(tmp_path: Path) -> None:
    class Telling(Quiet):
        def __init__(self) -> None:
            self.messages = list[str]()

        def tell(self, sentence: str) -> None:
            self.messages.append(sentence)

    display = Telling()
    finetune(replace_in(TINY, prune={"method": "l0"}), tmp_path, display)
    assert any("of the masked weights where 20.0% was asked for" in text for text in display.messages)


def test_a_run_that_is_refused_while_its_model_is_made_leaves_the_folder_free(
    tmp_path: Path,
) -> None:
    with pytest.raises(BermoError, match="Choose another block"):
        finetune(replace_in(TINY, prune={"block": (3, 5)}), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    finetune(TINY, tmp_path / "run")


def test_a_training_too_short_for_its_schedule_is_refused_before_it_starts(tmp_path: Path) -> None:
    with pytest.raises(BermoError, match="no room"):
        finetune(replace_in(TINY, prune={"warmup_steps": 6}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_pruning_run_that_breaks_down_early_is_diverged_and_leaves_no_model(
    tmp_path: Path,
) -> None:
    result = finetune(replace_in(TINY, train={"lr": 1e30, "clip": 0.0, "warmup": 0.0}), tmp_path)
    assert result.num_diverged == 1
    assert not (tmp_path / "model").exists()
