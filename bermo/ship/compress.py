"""The whole way from a trained model to a small one: prune with a teacher, delete, quantise, measure, choose.

    dense -> int8 -> bench -> densities around the wish -> [train or Fisher -> shrink -> int8] each -> bench -> pick

Every stage has its folder under `work/` and is skipped where that is complete, so a stopped command goes on. What is
picked lies in `model/` (for onnxruntime) and `torch/`, with bench.json, figures.json and a card beside it.
"""

import json
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bermo.data.load import load_task
from bermo.data.rows import TextRows
from bermo.encoder import BermoPreTrainedModel
from bermo.errors import BermoError
from bermo.families import num_layers
from bermo.files import whole_folder, write_json, write_text
from bermo.job import Display
from bermo.methods.finetune import finetune
from bermo.runs import locked
from bermo.ship.bench import Bench, BenchSpec, Measured, bench, write_bench
from bermo.ship.export import ExportSpec, export
from bermo.ship.folder import find_source, load_torch
from bermo.ship.line_up import line_up
from bermo.ship.small import FisherSpec, make_small
from bermo.ship.wish import Wish, pick
from bermo.sites import encoder_of, layers_of
from bermo.spec import DataSpec, DistillSpec, PruneSpec, RunSpec, from_dict, to_dict

AROUND = (0.7, 1.0, 1.3)
"""Densities tried, as multiples of what the wish asks for: speed is not quite proportional to weights."""
SMALLEST_DENSITY = 0.05
DENSE, DENSE_INT8 = "dense", "dense int8"


@dataclass(frozen=True, kw_only=True)
class CompressSpec:
    """What is wanted, from which data, and by which way."""

    run: Path
    wish: Wish
    train: str | None = None
    valid: str | None = None
    folder: str | None = None
    vocabulary: tuple[Path, ...] = ()
    is_quick: bool = False
    epochs: float | None = None
    max_loss: float = 1.0
    bench: BenchSpec = BenchSpec(rounds=3)
    threads: int | None = None


@dataclass(frozen=True, kw_only=True)
class Compressed:
    """What was picked, whether it meets the wish, and everything that was measured."""

    picked: Measured
    is_met: bool
    sentence: str
    found: Bench


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One way to a smaller model: a share of heads and neurons, or of the first layers."""

    kind: str
    amount: float

    @property
    def name(self) -> str:
        return f"{self.kind} {self.amount:g}"

    @property
    def folder(self) -> str:
        return self.name.replace(" ", "-")


def compress(spec: CompressSpec, out: Path, display: Display) -> Compressed:
    """Make the smallest loss that meets the wish; the same command goes on where it stopped."""
    source = find_source(spec.run)
    if source.form != "torch":
        raise BermoError(f"{spec.run} is an export already. Give the run that it was made from.")
    run = _run_spec(spec)
    with locked(out):
        _claim(spec, out)
        work = out / "work"
        measured = replace(spec.bench, data=_valid_file(run.data, work))
        dense = _int8(source.folder, work / "dense-int8", spec, measured, display)
        names = {DENSE: str(source.folder), DENSE_INT8: str(dense)}
        smalls: dict[str, Path] = {DENSE_INT8: source.folder}
        for arm in _arms(spec, names, measured, work, display):
            display.tell(f"\n{arm.name}")
            small = _small(arm, spec, run, source.folder, work, display)
            try:
                made = _int8(small, work / f"{arm.folder}-int8", spec, measured, display)
            except BermoError as error:  # one arm that int8 spoils does not spoil the others
                display.tell(f"{arm.name} is left out. {error}")
                continue
            names[f"{arm.name} int8"], smalls[f"{arm.name} int8"] = str(made), small
        found = _measure(names, measured, spec, display)
        return _finish(spec, found, names, smalls, out)


def _claim(spec: CompressSpec, out: Path) -> None:
    """Write down what this folder is for, or refuse one that is for something else."""
    wanted = json.loads(json.dumps(asdict(spec), default=str))
    path = out / "compress.json"
    if path.exists():
        if json.loads(path.read_text(encoding="utf-8")) != wanted:
            raise BermoError(
                f"{out} was started with other options. Give another folder with --out."
            )
    elif {item.name for item in out.iterdir()} - {".lock"}:
        raise BermoError(f"{out} holds something else and is not overwritten. Give another --out.")
    else:
        write_json(path, wanted)


def _run_spec(spec: CompressSpec) -> RunSpec:
    """Return the spec of the run, with the data that was named; a plain model folder starts from the defaults."""
    path = spec.run / "spec.json"
    run = RunSpec()
    if path.exists():
        run = from_dict(
            RunSpec, json.loads(path.read_text(encoding="utf-8"))["spec"] | {"seeds": [1]}
        )
    given = {"train": spec.train, "valid": spec.valid, "folder": spec.folder}
    data = replace(run.data, **{k: v for k, v in given.items() if v is not None})  # type: ignore[arg-type]
    load_task(data)  # every mistake in the files is said now
    epochs = run.train.epochs if spec.epochs is None else spec.epochs
    return replace(run, data=data, train=replace(run.train, epochs=epochs))


def _valid_file(data: DataSpec, work: Path) -> Path:
    """Return the validation rows as a file: the user's own, or those of the named task, written out."""
    if data.valid is not None:
        return Path(data.valid)
    task = load_task(data)
    if not isinstance(task.valid, TextRows):
        raise BermoError(
            f"bermo compress takes texts or pairs with a label, but {task.task.name} is {task.task.kind}."
            " Use bermo train, shrink, export and bench one after the other."
        )
    path = work / "valid.jsonl"
    columns = [task.valid.first, *([task.valid.second] if task.valid.second else [])]
    names = [*(task.text or ("text_a", "text_b"))[: len(columns)], "label"]
    rows = zip(*columns, task.valid.labels or (), strict=True)
    lines = [json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) for row in rows]
    write_text(path, "\n".join(lines) + "\n")
    return path


def _int8(
    folder: Path, out: Path, spec: CompressSpec, measured: BenchSpec, display: Display
) -> Path:
    """Export to int8 for onnxruntime, unless that is done."""
    if not out.exists():
        wanted = ExportSpec(to="onnx-int8", data=measured.data, max_loss=spec.max_loss)
        export(folder, out, wanted, display)
    return out


def _arms(
    spec: CompressSpec, names: dict[str, str], measured: BenchSpec, work: Path, display: Display
) -> list[Arm]:
    """Return what to try: densities around the one that the dense int8 model's distance to the wish asks for."""
    path = work / "plan.json"
    if not path.exists():
        found = _measure(names, measured, spec, display)
        model = load_torch(find_source(spec.run))
        density = _needed_density(spec.wish, found, model)
        write_json(path, {"density": density, "layers": num_layers(encoder_of(model).config) - 1})
    plan = json.loads(path.read_text(encoding="utf-8"))
    if plan["density"] >= 1:
        display.tell("The int8 model as it is meets the wish: nothing has to go.")
        return []
    tried = {min(0.95, max(SMALLEST_DENSITY, round(plan["density"] * x, 2))) for x in AROUND}
    arms = [Arm(kind="density", amount=density) for density in sorted(tried)]
    if not spec.is_quick:
        layers = max(1, round(plan["density"] * plan["layers"]))
        arms += [Arm(kind="layers", amount=layers)] if layers < plan["layers"] else []
    return arms


def _needed_density(wish: Wish, found: Bench, model: Any) -> float:
    """Estimate the share of the encoder that may stay, from what int8 alone reaches."""
    if wish.what != "size":
        return 1 / wish.excess(found, found.rows[1])
    encoder = sum(p.numel() for layer in layers_of(model) for p in layer.parameters()) / 1e6
    others = found.rows[1].megabytes - encoder  # a byte a weight
    return max(SMALLEST_DENSITY, (wish.value - others) / encoder)


def _small(
    arm: Arm, spec: CompressSpec, run: RunSpec, teacher: Path, work: Path, display: Display
) -> Path:
    """Make a smaller torch model, unless that is done: by training with a teacher, or by Fisher information."""
    out = work / arm.folder
    if out.exists():
        return out
    if spec.is_quick:
        fisher = FisherSpec(
            density=arm.amount, train=spec.train, valid=spec.valid, folder=spec.folder
        )
        make_small(spec.run, out, display, fisher, spec.vocabulary)
        return out
    trained = work / f"{arm.folder}-run"
    finetune(_arm_spec(arm, run, teacher), trained, display)
    if arm.kind == "density" or spec.vocabulary:
        make_small(trained, out, display, None, spec.vocabulary)
        return out
    return trained / "model"


def _arm_spec(arm: Arm, run: RunSpec, teacher: Path) -> RunSpec:
    """Return the training of an arm: it starts from the run's own layers and learns from its answers."""
    model = load_torch(find_source(teacher))
    assert isinstance(model, BermoPreTrainedModel)
    total = num_layers(encoder_of(model).config) - 1
    last = total if arm.kind == "density" else int(arm.amount)
    distill = DistillSpec(teacher=str(teacher), student_layers=tuple(range(1, last + 1)))
    prune = PruneSpec()
    if arm.kind == "density":
        prune = PruneSpec(method="heads-and-neurons", density=arm.amount)
    return replace(run, distill=distill, prune=prune, seeds=(1,))


def _measure(
    names: dict[str, str], measured: BenchSpec, spec: CompressSpec, display: Display
) -> Bench:
    entries = line_up(list(names.values()), measured, threads=spec.threads)
    shown = [replace(entry, name=name) for entry, name in zip(entries, names, strict=True)]
    return bench(shown, measured, display)


def _finish(
    spec: CompressSpec, found: Bench, names: dict[str, str], smalls: dict[str, Path], out: Path
) -> Compressed:
    """Pick, copy what was picked, and write what was found."""
    picked, is_met = pick(spec.wish, found)
    sentence = _sentence(spec.wish, found, picked, is_met)
    for name, source in (("model", Path(names[picked.name])), ("torch", smalls[picked.name])):
        with whole_folder(out / name) as folder:
            shutil.copytree(source, folder, dirs_exist_ok=True)
    write_bench(out / "bench.json", found)
    write_text(out / "README.md", _card(spec, found, picked, sentence))
    write_json(
        out / "result.json",
        {"picked": picked.name, "is_met": is_met, "sentence": sentence, "wish": to_dict(spec.wish)},
    )
    return Compressed(picked=picked, is_met=is_met, sentence=sentence, found=found)


def _sentence(wish: Wish, found: Bench, picked: Measured, is_met: bool) -> str:
    reached = wish.told(wish.of(found, picked))
    base = found.rows[0].score or 0
    score = picked.score or 0
    kept = f"{found.metric} {score:.2f} of {base:.2f}"
    if is_met:
        return f"{picked.name} meets the wish ({wish.told()}): {reached}, {kept}."
    return f"Nothing met the wish ({wish.told()}). The nearest is {picked.name}: {reached}, {kept}."


def _card(spec: CompressSpec, found: Bench, picked: Measured, sentence: str) -> str:
    rows = [
        f"| {row.name} | {row.megabytes:.1f} | {row.score or 0:.2f} | {row.at(*found.latency_shape).p50:.2f} "
        f"| {found.latency_gain(row):.2f} | {found.speedup(row):.2f} |"
        for row in found.rows
    ]
    (rows_one, length), (many, longer) = found.latency_shape, found.throughput_shape
    lines = [
        f"# {spec.run.name}, made small", "", sentence, "",
        "`model/` is for onnxruntime (int8), `torch/` is the same model before quantisation. Use them with"
        " `bermo predict`.", "",
        f"| | MB | {found.metric} | ms (batch {rows_one}, length {length}) | times faster |"
        f" times the rows/s (batch {many}, length {longer}) |",
        "|---|---|---|---|---|---|", *rows, "",
        f"Measured with {found.threads} thread(s) on {found.machine}, in turns, against {found.rows[0].name}.",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"
