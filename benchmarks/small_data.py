"""Do the defaults train on little data? bermo's defaults beside a frozen probe and SetFit-like training.

    python benchmarks/small_data_cells.py DATA CELLS
    python benchmarks/small_data.py CELLS OUT ENCODER… [--workers 8] [--only REGEX] [--ways bermo,setfit]
    python benchmarks/small_data.py --compare OUT…
    python benchmarks/small_data.py --gather results/small-data.json OUT…

Every score is of the cell's test rows; the best evaluation is chosen by its validation rows. Where a sample
is drawn three times, the table shows the mean. `--try slow:train.lr=3e-5,train.epochs=77` adds a way: other
settings than the defaults, under a name; `--compare` prints all ways side by side. The same command goes on
where it stopped: OUT holds one JSON file for each encoder, cell and way.
"""

import argparse
import json
import multiprocessing
import re
import statistics
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.few_shot import Linear, apart_vectors, contrast_, mean_vectors
from bermo.data.features import make_features
from bermo.data.load import load_task
from bermo.data.rows import TaggedRows, TextRows
from bermo.data.scoring import score
from bermo.data.tasks import TaskData
from bermo.encoders.backbone import load_encoder, load_tokenizer
from bermo.files import write_json
from bermo.methods.evaluate import predict
from bermo.methods.finetune import finetune
from bermo.progress import Quiet
from bermo.runs.trained import open_trained
from bermo.spec import DataSpec, ModelSpec, RunSpec, TrainSpec
from bermo.training.devices import make_accelerator
from bermo.values import override

METRICS = {"stsb": "mean", "conll": "f1"}
BASELINES = ("frozen", "setfit", "apart")
PAIRS = ("mrpc", "rte", "qnli", "qqp", "mnli", "stsb")


def data_spec(cell: Path, valid: str) -> DataSpec:
    """Return how bermo reads the cell's files; `valid` is "valid" or "test"."""
    if (cell / "train.txt").exists():
        return DataSpec(task="conll2003", folder=str(cell if valid == "valid" else _test_folder(cell)))
    with (cell / "train.jsonl").open(encoding="utf-8") as file:
        first = json.loads(file.readline())
    kind = "own/regression" if isinstance(first["label"], float) else "own/classification"
    columns = tuple(name for name in ("text", "text2") if name in first)
    files = {"train": str(cell / "train.jsonl"), "valid": str(cell / f"{valid}.jsonl")}
    return DataSpec(task=kind, text=columns, label="label", **files)


def _test_folder(cell: Path) -> Path:
    """Return a folder in which the test rows stand where bermo expects the validation rows."""
    folder = cell / "as-valid"
    folder.mkdir(exist_ok=True)
    for name, source in (("train.txt", "train.txt"), ("valid.txt", "test.txt")):
        if not (folder / name).exists():
            (folder / name).symlink_to((cell / source).resolve())
    return folder


def main_score(cell: str, values: dict[str, float]) -> float:
    """Return the score that is reported of a cell."""
    return values[METRICS.get(re.split("[-/]", cell)[0], "accuracy")]


class Said(Quiet):
    """Keeps what a run tells of its choices."""

    def __init__(self) -> None:
        self.choices: list[str] = []

    def tell(self, sentence: str) -> None:
        if sentence.startswith("Chosen"):
            self.choices.append(sentence)


def run_bermo(encoder: str, files: Path, changes: list[str], folder: Path) -> dict[str, Any]:
    """Train by the defaults, but for some changes; score the test rows with the model that is kept."""
    train = TrainSpec(precision="bf16" if torch.cuda.is_available() else "fp32", checkpoint_minutes=60)
    spec = RunSpec(model=ModelSpec(backbone=encoder), data=data_spec(files, "valid"), train=train)
    for change in changes:
        spec = override(spec, *change.split("=", 1))
    run = folder / "run"
    said = Said()
    result = finetune(spec, run, said).seeds[0]
    opened = open_trained(run)
    tested = load_task(data_spec(files, "test"))
    features = make_features(
        tested.valid,
        tested.task,
        opened.trained.labels,
        opened.load_tokenizer(),
        spec.data,
        opened.has_segments,
        is_apart=opened.is_apart,
    )
    accelerator = make_accelerator(train, run)
    model = opened.load_model().to(accelerator.device)
    values = score(features, predict(model, features, 128, accelerator)).values
    # Weights of some hundred trainings would fill the disk.
    for weights in run.rglob("*.safetensors"):
        weights.unlink()
    kept = {name: getattr(result, name) for name in ("score", "last_score", "best_step", "steps", "diverged")}
    valid = kept | {"frozen": getattr(result, "frozen_score", None)}
    return {"values": values, "valid": valid, "choices": said.choices}


def run_baseline(encoder: str, files: Path, way: str) -> dict[str, Any]:
    """Fit a linear head on vectors of the frozen encoder, or of one that was trained by contrast."""
    data = load_task(data_spec(files, "test"))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model, tokenizer = load_encoder(encoder).encoder.float().to(device), load_tokenizer(encoder)
    if isinstance(data.train, TaggedRows):
        return {"values": tag_scores(model, tokenizer, data)}
    assert isinstance(data.train, TextRows)
    assert isinstance(data.valid, TextRows)
    is_number = data.task.kind == "regression"
    train, test = _texts(data.train), _texts(data.valid)
    targets = [float(x) if is_number else data.labels.index(str(x)) for x in data.train.labels or ()]
    if way == "setfit":
        contrast_(model, tokenizer, train, [int(t) for t in targets], seed=1)
    read = apart_vectors if way == "apart" else mean_vectors
    head = Linear(read(model, tokenizer, train), torch.tensor(targets), is_number)
    answers = list(head(read(model, tokenizer, test)))
    spec = data_spec(files, "test")
    features = make_features(data.valid, data.task, data.labels, tokenizer, spec, has_segments=False)
    return {"values": score(features, answers).values}


def tag_scores(model: torch.nn.Module, tokenizer: Any, data: TaskData) -> dict[str, float]:
    """Fit a linear head on the vectors of the first token of every word; score entities."""
    spec = DataSpec(task="conll2003")
    train, test = (
        make_features(rows, data.task, data.labels, tokenizer, spec, has_segments=False)
        for rows in (data.train, data.valid)
    )
    vectors, targets = token_vectors(model, train)
    kept = slice(0, 10_000)
    tags = torch.tensor(targets).long()
    is_word = tags >= 0
    head = Linear(vectors[is_word][kept], tags[is_word][kept])
    answers = head(token_vectors(model, test)[0])
    starts = test.starts
    rows = [answers[starts[i] : starts[i + 1]] for i in range(len(test))]
    return score(test, rows).values


def token_vectors(model: torch.nn.Module, features: Any) -> tuple[torch.Tensor, np.ndarray]:
    """Return the last layer's vector of every token, and the tag of each (negative: none)."""
    model.eval()
    device = next(model.parameters()).device
    found = []
    with torch.inference_mode():
        for index in range(len(features)):
            ids = features.ids[features.starts[index] : features.starts[index + 1]]
            found.append(
                model(input_ids=torch.tensor(ids[None].astype(np.int64), device=device)).last_hidden_state[0]
            )
    return torch.cat(found).cpu(), np.asarray(features.targets)


def _texts(rows: TextRows) -> list[tuple[str, ...]]:
    return list(
        zip(rows.first, rows.second, strict=True) if rows.second else ((text,) for text in rows.first)
    )


def work(job: tuple[str, str, str, argparse.Namespace]) -> str:
    """Do one job and write its result; a failure is told and the others go on."""
    encoder, cell, way, options = job
    files, folder = options.cells / cell, options.out / Path(encoder).name / cell / way
    file = folder / "score.json"
    if file.exists():
        return ""
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    began = time.monotonic()
    try:
        if way in BASELINES:
            result = run_baseline(encoder, files, way)
        else:
            result = run_bermo(encoder, files, options.changes.get(way, []), folder)
    except Exception:
        return f"FAILED {folder}\n{traceback.format_exc()}"
    result |= {"score": main_score(cell, result["values"]), "seconds": round(time.monotonic() - began, 1)}
    result |= {"torch": torch.__version__, "device": _device()}
    write_json(file, result)
    return f"{Path(encoder).name} {cell} {way}: {result['score']:.1f} in {result['seconds']} s"


def jobs(options: argparse.Namespace) -> list[tuple[str, str, str, argparse.Namespace]]:
    """Return what is to be done, the longest first, so that no long one is left at the end."""
    cells = sorted(str(path.relative_to(options.cells)) for path in options.cells.glob("*/*"))
    ways = [*options.ways.split(","), *options.changes] if options.ways else [*options.changes]
    found = [
        (encoder, cell, way, options)
        for cell in cells
        for encoder in options.encoders
        for way in ways
        if re.search(options.only, cell) and has_way(cell, way)
    ]
    return sorted(found, key=lambda job: -_work(options.cells / job[1], job[0], job[2]))


def has_way(cell: str, way: str) -> bool:
    """Tell whether a cell can be done that way: contrast needs classes of whole texts, `apart` two texts."""
    if way == "setfit":
        return not cell.startswith(("stsb", "conll"))
    return way != "apart" or cell.startswith(PAIRS)


def _work(files: Path, encoder: str, way: str) -> float:
    """Guess how long a job takes: bytes of weights times bytes of training rows, 400 steps at least."""
    weights = sum(file.stat().st_size for file in Path(encoder).glob("*.safetensors")) or 1e7
    rows = max(file.stat().st_size for file in files.glob("train.*"))
    return float(weights * max(rows, 2e5)) * (0.01 if way in ("frozen", "apart") else 1)


Scores = dict[tuple[str, str, str], list[float]]


def read_scores(folders: list[Path]) -> Scores:
    """Return the scores of all samples by encoder, cell and way."""
    found: Scores = {}
    for folder in folders:
        for file in sorted(folder.rglob("score.json")):
            encoder, cell, _, way = file.relative_to(folder).parts[:4]
            value = json.loads(file.read_text(encoding="utf-8"))["score"]
            found.setdefault((encoder, cell, way), []).append(value)
    return found


def read_machine(folder: Path) -> dict[str, str]:
    """Return where the scores of a folder were made."""
    first = json.loads(next(folder.rglob("score.json")).read_text(encoding="utf-8"))
    return {name: first[name] for name in ("torch", "device")}


def compare(found: Scores) -> None:
    """Print the mean score of every encoder, cell and way, and each way's mean gain over the defaults."""
    gains: dict[str, list[float]] = {}
    for (encoder, cell, way), scores in found.items():
        mean = statistics.fmean(scores)
        print(f"{encoder:8} {cell:10} {way:12} {mean:6.1f} ({len(scores)})")
        if usual := found.get((encoder, cell, "bermo")):
            gains.setdefault(way, []).append(mean - statistics.fmean(usual))
    for way, differences in gains.items():
        print(f"{way:12} {statistics.fmean(differences):+.2f} over the defaults, in {len(differences)} cells")


def gather(out: Path, found: Scores, machine: dict[str, str]) -> None:
    """Write each sample's score and their mean into one file; what was not found stays in it as it is.

    The file names the machine of its first scores; those that were made elsewhere name theirs.
    """
    known = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {"encoders": {}} | machine
    table = known["encoders"]
    elsewhere = {name: value for name, value in machine.items() if known[name] != value}
    for (encoder, cell, way), scores in found.items():
        entry: dict[str, Any] = {"scores": [round(value, 2) for value in scores]}
        entry |= {"mean": round(statistics.fmean(scores), 2)} | elsewhere
        table.setdefault(encoder, {}).setdefault(cell, {})[way] = entry
    write_json(out, known)


def _device() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("cells", type=Path, nargs="?")
    parser.add_argument("out", type=Path)
    parser.add_argument("encoders", nargs="*")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--only", default=".")
    parser.add_argument("--ways", default="bermo,frozen,setfit")
    parser.add_argument("--try", action="append", default=[], dest="tries", metavar="NAME:FIELD=VALUE,…")
    parser.add_argument("--gather", type=Path)
    parser.add_argument("--compare", action="store_true")
    options = parser.parse_args()
    tries = (tried.split(":", 1) for tried in options.tries)
    options.changes = {name: changes.split(",") for name, changes in tries}
    folders = [path for path in (options.cells, options.out, *map(Path, options.encoders)) if path]
    if options.compare:
        compare(read_scores(folders))
    elif options.gather:
        gather(options.gather, read_scores(folders), read_machine(folders[-1]))
    else:
        train_all(options)


def train_all(options: argparse.Namespace) -> None:
    """Do every job on as many processes as wanted."""
    with multiprocessing.get_context("fork").Pool(options.workers) as pool:
        for said in pool.imap_unordered(work, jobs(options)):
            if said:
                print(said, flush=True)


if __name__ == "__main__":
    main()
