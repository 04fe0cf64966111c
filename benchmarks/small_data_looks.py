"""Which weights of a training on little data are best, and which evaluation? Several of each in one run.

    python benchmarks/small_data_looks.py CELLS OUT ENCODER… [--workers 13] [--only REGEX] [--try …]
        [--weights last,mean,way,refit]
    python benchmarks/small_data_looks.py --report OUT…
    python benchmarks/small_data_looks.py --scores FOLDER OUT…

CELLS are those of small_data_cells.py. At every evaluation the validation and the test rows are scored by the
weights ("last"), by their mean over the steps ("mean": what --average keeps), by three quarters of the way
from the start to the weights ("way"), and by the weights with a new linear probe as the head ("refit", as
SetFit ends); --weights leaves kinds out. Nothing of it changes the training, so one training tells what each
would have kept. --try
NAME:FIELD=VALUE,… adds a way, as in small_data.py. --report prints how much each gives over the last weights
at the evaluation that the validation score chooses, by several rules of that choice; --scores writes what the
mean and the last weights have kept as small_data.py does, for its --gather. The same command goes on where it
stopped.
"""

import argparse
import copy
import json
import multiprocessing
import re
import shutil
import statistics
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.small_data import data_spec
from bermo.data.features import Features, make_features
from bermo.data.load import load_task
from bermo.data.scoring import score
from bermo.files import write_json
from bermo.methods import finetune as training
from bermo.methods.evaluate import predict
from bermo.methods.head import start_head_
from bermo.methods.prepare import Prepared
from bermo.progress import Quiet
from bermo.spec import ModelSpec, RunSpec, TrainSpec
from bermo.training.average import Average
from bermo.values import override

FORGETTING, WAY = 2.0, 0.75
KINDS = LAST, MEAN, PART, REFIT = "last", "mean", "way", "refit"
ERROR = 50 / 200**0.5
"""A standard error of 200 validation rows, by which an evaluation that knows nothing counts less."""
Look = dict[str, dict[str, dict[str, float]]]


class Weights:
    """The start of a model's weights and their running mean, beside a training that does not read them."""

    def __init__(self, model: nn.Module) -> None:
        self.average = Average(model, 1.0, FORGETTING)
        self.start = [weight.detach().clone() for weight in self.average.weights]
        self.is_begun = False

    def begin(self, optimizer: torch.optim.Optimizer) -> None:
        device = self.average.weights[0].device
        self.average.to(device)
        self.start = [weight.to(device) for weight in self.start]
        self.is_begun = True

    def plan(self, step: int) -> None:
        self.average.plan(step)

    def apply(self) -> None:
        self.average.apply()

    def generators(self) -> Sequence[torch.Generator]:
        return ()

    def metrics(self) -> Mapping[str, float]:
        return {}

    def look(self, scores: Callable[[], dict[str, dict[str, float]]], kinds: Sequence[str]) -> Look:
        """Return the scores by each kind of weights; the model has its own again afterwards."""
        found = {LAST: scores()}
        if self.is_begun:
            weights = self.average.weights
            own = [weight.detach().clone() for weight in weights]
            part = [start + WAY * (weight - start) for start, weight in zip(self.start, own, strict=True)]
            for name, values in ((MEAN, self.average.means), (PART, part)):
                if name in kinds:
                    _put_(weights, values)
                    found[name] = scores()
            _put_(weights, own)
        return found


@torch.no_grad()
def _put_(weights: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    for weight, value in zip(weights, values, strict=True):
        weight.copy_(value)


def refitted(seed: Any, model: Any, scores: Callable[[], dict[str, dict[str, float]]]) -> Look:
    """Return the scores with a linear probe of the trained encoder as the head; the model keeps its own."""
    own = model.head
    # A copy: captured steps read the head where it lies, and a head is fitted on the CPU.
    model.head = copy.deepcopy(own).cpu()
    try:
        start_head_(model, seed.prepared.train, 256, seed.accelerator)
        model.head.to(seed.accelerator.device)
        return {REFIT: scores()}
    finally:
        model.head = own


def values_of(features: Features, answers: list[np.ndarray]) -> dict[str, float]:
    """Accuracy, Matthews and the loss of the answers to rows with classes."""
    found = score(features, answers).values
    targets = torch.tensor(np.asarray(features.targets)).long()
    loss = nn.functional.cross_entropy(torch.tensor(np.stack(answers)), targets)
    named = {name: found[name] for name in ("accuracy", "matthews")} | {"loss": float(loss)}
    return {name: round(float(value), 4) for name, value in named.items()}


def run(
    encoder: str, files: Path, changes: list[str], folder: Path, kinds: Sequence[str] = KINDS
) -> dict[str, Any]:
    """Train a cell by the defaults, but for some changes, and return the scores of every evaluation."""
    precision = "bf16" if torch.cuda.is_available() else "fp32"
    train = TrainSpec(precision=precision, checkpoint_minutes=60, keep="none", average="off")
    spec = RunSpec(model=ModelSpec(backbone=encoder), data=data_spec(files, "valid"), train=train)
    for change in changes:
        spec = override(spec, *change.split("=", 1))
    looks: list[Look] = []
    plain_assemble, plain_evaluate = training.assemble, training._Seed.evaluate
    kept: list[Weights] = []

    def assemble(*arguments: Any) -> Any:
        made = plain_assemble(*arguments)
        kept.append(Weights(made.model))
        return replace(made, hooks=(*made.hooks, kept[-1]))

    def evaluate(seed: Any, current: nn.Module) -> dict[str, float]:
        rows = {"valid": seed.prepared.valid, "test": test_rows(files, seed.prepared)}
        ask = lambda part: predict(current, part, 256, seed.accelerator)  # noqa: E731
        scores = lambda: {name: values_of(part, ask(part)) for name, part in rows.items()}  # noqa: E731
        again = refitted(seed, current, scores) if REFIT in kinds else {}
        looks.append(kept[-1].look(scores, kinds) | again)
        return plain_evaluate(seed, current)

    training.assemble, training._Seed.evaluate = assemble, evaluate  # type: ignore[assignment,method-assign]
    try:
        training.finetune(spec, folder / "run", Quiet())
    finally:
        training.assemble, training._Seed.evaluate = plain_assemble, plain_evaluate  # type: ignore[method-assign]
        shutil.rmtree(folder / "run", ignore_errors=True)
    return {"looks": looks, "torch": torch.__version__, "device": _device()}


def test_rows(files: Path, prepared: Prepared) -> Features:
    """Return the cell's test rows as the run reads its own."""
    tested, spec = load_task(data_spec(files, "test")), prepared.spec
    return make_features(
        tested.valid,
        tested.task,
        prepared.data.labels,
        prepared.tokenizer,
        spec.data,
        prepared.has_segments,
        is_apart=spec.model.pairs == "apart",
    )


def work(job: tuple[str, str, str, argparse.Namespace]) -> str:
    """Do one job and write its result; a failure is told and the others go on."""
    encoder, cell, way, options = job
    folder = options.out / Path(encoder).name / cell / way
    if (folder / "looks.json").exists():
        return ""
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    try:
        result = run(encoder, options.cells / cell, options.changes[way], folder, options.weights.split(","))
    except Exception:
        return f"FAILED {folder}\n{traceback.format_exc()}"
    write_json(folder / "looks.json", result)
    return f"{Path(encoder).name} {cell} {way}: {len(result['looks'])} evaluations"


def worth(look: dict[str, dict[str, float]]) -> float:
    """What an evaluation counts: its validation accuracy, less a standard error where it knows nothing."""
    valid = look["valid"]
    return valid["accuracy"] - (ERROR if valid["matthews"] <= 0 else 0)


def smooth(values: Sequence[float]) -> list[float]:
    """The mean of each evaluation and its neighbours; the start stands by itself."""
    inner = [statistics.fmean(values[max(1, i - 1) : i + 2]) for i in range(1, len(values))]
    return [values[0], *inner]


RULES: dict[str, Callable[[list[dict[str, dict[str, float]]]], int]] = {
    "accuracy": lambda looks: _highest([worth(look) for look in looks]),
    "accuracy, the later of equals": lambda looks: _last_highest([worth(look) for look in looks]),
    "mean of three": lambda looks: _highest(smooth([worth(look) for look in looks])),
    "Matthews": lambda looks: _highest([look["valid"]["matthews"] for look in looks]),
    "loss": lambda looks: _highest([-look["valid"]["loss"] for look in looks]),
    "the last": lambda looks: len(looks) - 1,
    "by the test rows": lambda looks: _highest([look["test"]["accuracy"] for look in looks]),
}


def _highest(values: Sequence[float]) -> int:
    return max(range(len(values)), key=lambda index: values[index])


def _last_highest(values: Sequence[float]) -> int:
    return max(range(len(values)), key=lambda index: (values[index], index))


def kept_score(looks: list[Look], weights: str, rule: str = "accuracy") -> float:
    """The test accuracy of the evaluation that a rule chooses, by one kind of weights."""
    own = [look.get(weights, look[LAST]) for look in looks]
    return own[RULES[rule](own)]["test"]["accuracy"]


def read(folders: Sequence[Path]) -> dict[tuple[str, ...], dict[str, Any]]:
    """Return what was found by (encoder, cell, draw, way)."""
    files = [(file, folder) for folder in folders for file in sorted(folder.rglob("looks.json"))]
    return {file.relative_to(folder).parts[:4]: json.loads(file.read_text()) for file, folder in files}


def report(found: dict[tuple[str, ...], dict[str, Any]]) -> None:
    """Print the gain of each way, kind of weights and rule over the last weights of the defaults."""
    for way in sorted({key[3] for key in found}):
        pairs = [
            (looks["looks"], found[*key[:3], "bermo"]["looks"])
            for key, looks in found.items()
            if key[3] == way and (*key[:3], "bermo") in found
        ]
        print(f"{way}: {len(pairs)} trainings" if pairs else f"{way}: nothing to compare with")
        for weights in KINDS if pairs else ():
            gains = {
                rule: statistics.fmean(
                    kept_score(own, weights, rule) - kept_score(usual, LAST) for own, usual in pairs
                )
                for rule in RULES
            }
            print(f"  {weights:5}", ", ".join(f"{rule} {gain:+.2f}" for rule, gain in gains.items()))


def write_scores(folder: Path, found: dict[tuple[str, ...], dict[str, Any]]) -> None:
    """Write what the defaults' last weights ("off") and their mean ("on") have kept, for small_data.py."""
    for (encoder, cell, draw, way), result in found.items():
        for name, weights in (("off", LAST), ("on", MEAN)):
            if way == "bermo":
                place = folder / encoder / cell / f"{int(draw):02}" / name
                place.mkdir(parents=True, exist_ok=True)
                machine = {key: result[key] for key in ("torch", "device")}
                write_json(place / "score.json", {"score": kept_score(result["looks"], weights)} | machine)


def _device() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("cells", type=Path)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("encoders", nargs="*")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--only", default=".")
    parser.add_argument("--try", action="append", default=[], dest="tries", metavar="NAME:FIELD=VALUE,…")
    parser.add_argument("--weights", default=",".join(KINDS))
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--scores", type=Path)
    options = parser.parse_args()
    folders = [path for path in (options.cells, options.out, *map(Path, options.encoders)) if path]
    if options.report:
        report(read(folders))
    elif options.scores:
        write_scores(options.scores, read(folders))
    else:
        train_all(options)


def train_all(options: argparse.Namespace) -> None:
    """Do every job on as many processes as wanted."""
    tries = (tried.split(":", 1) for tried in options.tries)
    options.changes = {"bermo": []} | {name: changes.split(",") for name, changes in tries}
    cells = sorted(str(path.relative_to(options.cells)) for path in options.cells.glob("*/*"))
    jobs = [
        (encoder, cell, way, options)
        for cell in cells
        for encoder in options.encoders
        for way in options.changes
        if re.search(options.only, cell)
    ]
    with multiprocessing.get_context("fork").Pool(options.workers) as pool:
        for said in pool.imap_unordered(work, jobs):
            if said:
                print(said, flush=True)


if __name__ == "__main__":
    main()
