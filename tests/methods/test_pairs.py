"""Pairs from a user's file to an export: how they are read is chosen, trained, taught, pruned and shipped."""

import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import bermo
from bermo.cli import main
from bermo.errors import BermoError
from bermo.methods.assemble import assemble
from bermo.methods.evaluate import predict
from bermo.methods.finetune import finetune
from bermo.methods.head import choose_reading
from bermo.methods.prepare import Prepared, prepare
from bermo.nn.linear_fit import fit_linear
from bermo.progress import Quiet
from bermo.runs.trained import open_trained
from bermo.ship.serve.asked import Asked
from bermo.ship.serve.model import ServedModel
from bermo.ship.serve.spec import ServeSpec
from bermo.spec import DataSpec, RunSpec, TrainSpec, replace_in
from bermo.training.devices import make_accelerator
from bermo.training.job import Stopped

pytestmark = pytest.mark.usefixtures("shallow_box")

WORDS = ["dog", "cat", "horse", "bird", "tree", "house", "river", "road", "king", "queen", "book", "door"]
Row = tuple[str, str, str]


def draw(random: Random) -> list[str]:
    return random.choices(WORDS, k=6)


def same(random: Random) -> Row:
    """Whether both texts say the same: vectors of each text tell it at once."""
    first, label = draw(random), random.choice(["same", "other"])
    return " ".join(first), " ".join(first if label == "same" else draw(random)), label


def either(random: Random) -> Row:
    """A word in one of the texts, whichever: one vector of both has it always at the same place."""
    texts, label = [draw(random), draw(random)], random.choice(["good", "bad"])
    random.choice(texts).insert(3, label)
    return " ".join(texts[0]), " ".join(texts[1]), label


def overlap(random: Random) -> Row:
    """How many words the texts share."""
    first, kept = draw(random), random.randint(0, 6)
    return " ".join(first), " ".join(first[:kept] + draw(random)[kept:]), f"{kept / 2:.1f}"


def write(path: Path, row: Callable[[Random], Row], count: int = 30) -> str:
    random = Random(0)
    path.write_text("a,b,label\n" + "\n".join(",".join(row(random)) for _ in range(count)) + "\n")
    return str(path)


def spec_of(file: str, task: str = "own") -> RunSpec:
    data = DataSpec(task=task, train=file, valid=file, text=("a", "b"), max_length=32, max_unknown=1.0)
    return RunSpec(data=data, train=TrainSpec(epochs=2, batch_size=16, lr=1e-4, device="cpu"))


def read(spec: RunSpec, folder: Path) -> Prepared:
    return choose_reading(prepare(spec, Quiet()), make_accelerator(spec.train, folder))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pairs")
    for row in (same, either, overlap):
        write(root / f"{row.__name__}.csv", row)
    return root


@pytest.fixture
def run(folder: Path) -> Path:
    """A run that reads pairs apart, trained once."""
    if not (folder / "run").exists():
        finetune(spec_of(str(folder / "same.csv")), folder / "run")
    return folder / "run"


def test_the_better_of_two_probes_on_training_rows_decides_how_pairs_are_read(
    folder: Path, tmp_path: Path
) -> None:
    apart, joined = (read(spec_of(str(folder / f"{name}.csv")), tmp_path) for name in ("same", "either"))
    assert (apart.spec.model.pairs, apart.train.num_choices, apart.valid.num_choices) == ("apart", 2, 2)
    assert (joined.spec.model.pairs, joined.train.num_choices) == ("joined", 1)
    assert (apart.spec.train.contrast, joined.spec.train.contrast) == (0.0, 1.0)
    assert (apart.spec.model.mix.kind, joined.spec.model.mix.kind) == ("none", "across")
    said = [next(part for part in one.reasons if "two texts" in part) for one in (apart, joined)]
    assert "read apart (the probe's loss is" in said[0]
    assert said[0].endswith(" joined)")
    assert "read as one (the probe's loss is" in said[1]
    assert said[1].endswith(" apart)")


def test_what_is_asked_for_is_done_and_one_text_cannot_be_read_apart(folder: Path, tmp_path: Path) -> None:
    spec = spec_of(str(folder / "same.csv"))
    either_file = str(folder / "either.csv")
    joined = read(replace_in(spec, model={"pairs": "joined"}), tmp_path)
    assert joined.spec.model.pairs == "joined"
    assert not any("texts" in reason for reason in joined.reasons)
    forced = replace_in(spec, model={"pairs": "apart"}, data={"train": either_file, "valid": either_file})
    assert read(forced, tmp_path).spec.model.pairs == "apart"
    with pytest.raises(BermoError, match="no two texts to be read apart in one text a row"):
        prepare(replace_in(spec, model={"pairs": "apart"}, data={"text": ("a",)}), Quiet())
    assert prepare(replace_in(spec, model={"head": "random"}), Quiet()).spec.model.pairs == "joined"


@pytest.mark.parametrize(("name", "task"), [("same", "own"), ("overlap", "own/regression")])
def test_before_the_first_step_the_answers_are_those_of_the_fitted_probe(
    folder: Path, tmp_path: Path, name: str, task: str
) -> None:
    prepared = read(spec_of(str(folder / f"{name}.csv"), task), tmp_path)
    assert prepared.spec.model.pairs == "apart"
    accelerator = make_accelerator(prepared.spec.train, tmp_path)
    model = assemble(prepared, 1, Quiet(), accelerator).model
    inputs: list[torch.Tensor] = []
    model.head.out.register_forward_pre_hook(lambda module, given: inputs.append(given[0]))
    rows = np.arange(len(prepared.train))
    answers = np.concatenate(
        [predict(model, prepared.train, 1, accelerator, rows=rows[k : k + 1]) for k in rows]
    )
    seen = torch.cat(inputs).double()
    targets = torch.from_numpy(np.array(prepared.train.targets))
    fitted = fit_linear(seen, targets, 2 if name == "same" else None)
    expected = seen @ fitted.weight_CD.T + fitted.bias_C
    assert torch.allclose(torch.from_numpy(answers).double(), expected, atol=1e-3)
    assert expected.std() > 0.1


def test_a_run_keeps_how_it_reads_and_the_command_again_goes_on(run: Path, folder: Path) -> None:
    assert json.loads((run / "spec.json").read_text())["spec"]["model"]["pairs"] == "apart"
    assert open_trained(run).is_apart
    again = finetune(spec_of(str(folder / "same.csv")), run)
    assert again.mean > 90


def test_a_stopped_run_ends_in_the_same_bits(run: Path, folder: Path, tmp_path: Path) -> None:
    class Stop(Quiet):
        def step(self, done: int, loss: float | None) -> None:
            if done == 2 and loss is not None:
                os.kill(os.getpid(), signal.SIGTERM)

    spec = spec_of(str(folder / "same.csv"))
    with pytest.raises(Stopped):
        finetune(spec, tmp_path / "cut", Stop())
    finetune(spec, tmp_path / "cut")
    whole, cut = (
        load_file(path / "seed-1" / "model" / "model.safetensors") for path in (run, tmp_path / "cut")
    )
    assert all(torch.equal(whole[name], cut[name]) for name in whole)


def test_seeds_train_together(folder: Path, tmp_path: Path) -> None:
    spec = replace_in(spec_of(str(folder / "overlap.csv"), "own/regression"), train={"together": 2})
    result = finetune(replace(spec, seeds=(1, 2)), tmp_path / "both")
    assert len({seed.loss for seed in result.seeds}) == 2
    assert open_trained(tmp_path / "both" / "seed-2").is_apart


def test_it_answers_is_evaluated_and_served(
    run: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = [("a dog", "a dog"), ("a dog", "the river road")]
    answers = bermo.predict(run, pairs, device="cpu")
    served = ServedModel(run, ServeSpec(device="cpu"))
    (given,) = served.answer([Asked(rows=tuple(pairs))])
    assert [item["label"] for item in given] == [answer.label for answer in answers]
    assert main(["evaluate", str(run), str(folder / "same.csv"), "--out", str(tmp_path / "e.json")]) == 0
    kept = json.loads((run / "result.json").read_text())["mean"]
    assert json.loads((tmp_path / "e.json").read_text())["score"] == pytest.approx(kept)
    capsys.readouterr()


def test_it_teaches_and_its_student_reads_apart_too(run: Path, folder: Path, tmp_path: Path) -> None:
    spec = spec_of(str(folder / "same.csv"))
    taught = {"teacher": str(run), "student_layers": (1, 2), "hidden": 1.0}
    prune = {"method": "heads-and-neurons", "density": 0.5, "warmup_steps": 1}
    finetune(replace_in(spec, distill=taught, prune=prune), tmp_path / "student")
    assert open_trained(tmp_path / "student").is_apart
    other = replace_in(spec, distill={"teacher": str(run)}, model={"pairs": "joined"})
    with pytest.raises(BermoError, match=r"The teacher reads pairs apart.*but got --pairs joined"):
        finetune(other, tmp_path / "other")
    small = tmp_path / "small"
    assert main(["shrink", str(tmp_path / "student"), "--out", str(small)]) == 0
    pairs = [("a dog", "a dog"), ("a dog", "the river road")]
    before, after = (bermo.predict(path, pairs, device="cpu") for path in (tmp_path / "student", small))
    assert [a.probability for a in after] == pytest.approx([b.probability for b in before], abs=1e-4)
