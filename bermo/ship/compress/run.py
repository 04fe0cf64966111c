"""The whole way from a trained model to a small one: prune with a teacher, delete, quantise, measure, choose.

    dense -> int8 -> bench -> plan -> [train or Fisher -> shrink -> int8] each -> bench -> pick

Every stage has its folder under `work/` and is skipped where that is complete, so a stopped command goes on. What is
picked lies in `model/` (for onnxruntime) and `torch/`, with bench.json, figures.json and a card beside it.
"""

import json
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from bermo.data.load import load_task
from bermo.data.rows import TextRows
from bermo.errors import BermoError
from bermo.fields import check
from bermo.files import whole_folder, write_json, write_text
from bermo.methods.finetune import finetune
from bermo.models.encoder import BermoPreTrainedModel
from bermo.progress import Display
from bermo.runs.folder import locked
from bermo.ship.bench.entries import line_up
from bermo.ship.bench.run import Bench, Measured, bench, write_bench
from bermo.ship.bench.spec import BenchSpec
from bermo.ship.compress.goal import Goal, pick
from bermo.ship.compress.plan import Arm, Plan, arm_spec, beside_layers, make_plan, quick_arms, trained_arms
from bermo.ship.compress.spec import CompressSpec
from bermo.ship.export.run import export
from bermo.ship.export.spec import ExportSpec
from bermo.ship.runtimes.folder import find_source, load_torch
from bermo.ship.runtimes.source import with_files
from bermo.ship.shrink.delete import is_shrinkable
from bermo.ship.shrink.run import make_small
from bermo.ship.shrink.spec import FisherSpec
from bermo.spec import DataSpec, RunSpec
from bermo.values import from_dict, to_dict

SMALLEST_SHARE = 0.02
DENSE, DENSE_INT8 = "dense", "dense int8"


@dataclass(frozen=True, kw_only=True)
class Compressed:
    """What was picked, whether it meets the goal, and everything that was measured."""

    picked: Measured
    is_met: bool
    sentence: str
    found: Bench


def compress(spec: CompressSpec, out: Path, display: Display) -> Compressed:
    """Make the smallest loss that meets the goal; the same command goes on where it stopped."""
    source = find_source(spec.run)
    if source.is_export:
        raise BermoError(f"{spec.run} is an export already. Give the run that it was made from.")
    run = _run_spec(spec)
    given = _candidates(spec)
    with locked(out):
        _claim(spec, out)
        work = out / "work"
        measured = replace(spec.bench, data=_valid_file(run.data, work))
        dense = _int8(source.folder, work / "dense-int8", spec, measured, display)
        names = {DENSE: str(source.folder), DENSE_INT8: str(dense)}
        smalls: dict[str, Path] = {DENSE_INT8: source.folder}
        arms = _arms(spec, names, measured, work, display) if spec.with_training else []
        wanted: list[Arm | Path] = [*arms, *given]
        for item in wanted:
            display.tell(f"\n{item.name}")
            if isinstance(item, Arm):
                name, small = item.folder, _small(item, spec, run, source.folder, work, display)
            else:
                name = f"given-{item.name}"
                small = _given_small(item, work / name, spec, display)
            try:
                made = _int8(small, work / f"{name}-int8", spec, measured, display)
            except BermoError as error:  # one arm that int8 spoils does not spoil the others
                display.tell(f"{item.name} is left out. {error}")
                continue
            names[f"{item.name} int8"], smalls[f"{item.name} int8"] = str(made), small
        found = _measure(names, measured, spec, display)
        return _finish(spec, found, names, smalls, out)


def _claim(spec: CompressSpec, out: Path) -> None:
    """Write down what this folder is for, or refuse one that is for something else."""
    wanted = json.loads(json.dumps(asdict(spec), default=str))
    path = out / "compress.json"
    if path.exists():
        if json.loads(path.read_text(encoding="utf-8")) != wanted:
            raise BermoError(f"{out} was started with other options. Give another folder with --out.")
    elif {item.name for item in out.iterdir()} - {".lock"}:
        raise BermoError(f"{out} holds something else and is not overwritten. Give another --out.")
    else:
        write_json(path, wanted)


def _run_spec(spec: CompressSpec) -> RunSpec:
    """Return the spec of the run, with the data that was named; a plain model folder starts from the defaults."""
    path = spec.run / "spec.json"
    run = RunSpec()
    if path.exists():
        run = from_dict(RunSpec, json.loads(path.read_text(encoding="utf-8"))["spec"] | {"seeds": [1]})
    kind = find_source(spec.run).trained.task.kind
    data = with_files(run.data, kind, spec.folder, spec.train, spec.valid)
    if spec.limit is not None:
        data = replace(data, limit=spec.limit)
    if spec.with_training or not spec.valid:
        load_task(data)  # every mistake in the files is said now
    return check(replace(run, data=data, train=replace(run.train, **spec.training)))


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


def _int8(folder: Path, out: Path, spec: CompressSpec, measured: BenchSpec, display: Display) -> Path:
    """Export to int8 for onnxruntime, unless that is done."""
    if not out.exists():
        wanted = ExportSpec(to="onnx-int8", data=measured.data, max_loss=spec.max_loss)
        export(folder, out, wanted, display)
    return out


def _candidates(spec: CompressSpec) -> list[Path]:
    """Check the models that were made elsewhere: torch, of one name each, before any work."""
    for path in spec.candidates:
        if find_source(path).is_export:
            raise BermoError(f"{path} is an export already. Give the torch model that it was made from.")
    names = [path.name for path in spec.candidates]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise BermoError(f'Two candidates are called "{twice[0]}". Rename one of the folders.')
    if not spec.with_training and not names:
        raise BermoError("--no-training leaves nothing to choose from. Name some --candidates.")
    return list(spec.candidates)


def _given_small(folder: Path, out: Path, spec: CompressSpec, display: Display) -> Path:
    """Delete what is dead in a model that was made elsewhere, and words, unless there is nothing to delete."""
    source = find_source(folder)
    if not out.exists():
        model = load_torch(source)
        has_dead = isinstance(model, BermoPreTrainedModel) and is_shrinkable(model)
        if not spec.vocabulary and not has_dead:
            return source.folder
        make_small(folder, out, display, None, spec.vocabulary)
    return out


def _arms(
    spec: CompressSpec, names: dict[str, str], measured: BenchSpec, work: Path, display: Display
) -> list[Arm]:
    """Return what to try, planned once from what the dense int8 model reaches."""
    path = work / "plan.json"
    if not path.exists():
        found = _measure(names, measured, spec, display)
        model = load_torch(find_source(spec.run))
        plan = make_plan(spec.goal, found, model)
        if plan.share <= 0 and not spec.vocabulary:
            display.tell(
                f"What stands beside the layers, above all the table of words, takes {beside_layers(found, model):.1f} MB"
                f" in int8, more than the whole model may ({spec.goal.told()}). --vocabulary FILE keeps only the words of your texts."
            )
        write_json(path, asdict(replace(plan, share=max(plan.share, SMALLEST_SHARE))))
    plan = Plan(**json.loads(path.read_text(encoding="utf-8")))
    if plan.share >= 1:
        display.tell("The int8 model as it is meets the goal: nothing has to go.")
        return []
    return quick_arms(plan) if spec.is_quick else trained_arms(plan)


def _small(arm: Arm, spec: CompressSpec, run: RunSpec, teacher: Path, work: Path, display: Display) -> Path:
    """Make a smaller torch model, unless that is done: by training with a teacher, or by Fisher information."""
    out = work / arm.folder
    if out.exists():
        return out
    if spec.is_quick:
        fisher = FisherSpec(density=arm.density, train=spec.train, valid=spec.valid, folder=spec.folder)
        make_small(spec.run, out, display, fisher, spec.vocabulary)
        return out
    trained = work / f"{arm.folder}-run"
    finetune(arm_spec(arm, run, str(teacher), spec.hard), trained, display)
    if arm.density < 1 or spec.vocabulary:
        make_small(trained, out, display, None, spec.vocabulary)
        return out
    return trained / "model"


def _measure(names: dict[str, str], measured: BenchSpec, spec: CompressSpec, display: Display) -> Bench:
    entries = line_up(list(names.values()), measured, threads=spec.threads)
    shown = [replace(entry, name=name) for entry, name in zip(entries, names, strict=True)]
    return bench(shown, measured, display)


def _finish(
    spec: CompressSpec, found: Bench, names: dict[str, str], smalls: dict[str, Path], out: Path
) -> Compressed:
    """Pick, copy what was picked, and write what was found."""
    picked, is_met = pick(spec.goal, found)
    sentence = _sentence(spec.goal, found, picked, is_met)
    for name, source in (("model", Path(names[picked.name])), ("torch", smalls[picked.name])):
        with whole_folder(out / name) as folder:
            shutil.copytree(source, folder, dirs_exist_ok=True)
    write_bench(out / "bench.json", found)
    write_text(out / "README.md", _card(spec, found, picked, sentence))
    write_json(
        out / "result.json",
        {"picked": picked.name, "is_met": is_met, "sentence": sentence, "goal": to_dict(spec.goal)},
    )
    return Compressed(picked=picked, is_met=is_met, sentence=sentence, found=found)


def _sentence(goal: Goal, found: Bench, picked: Measured, is_met: bool) -> str:
    reached = goal.told(goal.of(found, picked))
    base = found.rows[0].score or 0
    score = picked.score or 0
    kept = f"{found.metric} {score:.2f} of {base:.2f}"
    if is_met:
        return f"{picked.name} meets the goal ({goal.told()}): {reached}, {kept}."
    return f"Nothing met the goal ({goal.told()}). The nearest is {picked.name}: {reached}, {kept}."


def _card(spec: CompressSpec, found: Bench, picked: Measured, sentence: str) -> str:
    rows = [
        f"| {row.name} | {row.megabytes:.1f} | {row.score or 0:.2f} | {row.at(*found.latency_shape).p50:.2f} "
        f"| {found.latency_gain(row):.2f} | {found.speedup(row):.2f} |"
        for row in found.rows
    ]
    (rows_one, length), (many, longer) = found.latency_shape, found.throughput_shape
    lines = [
        f"# {spec.run.name}, made small",
        "",
        sentence,
        "",
        "`model/` is for onnxruntime (int8), `torch/` is the same model before quantisation. Use them with"
        " `bermo predict`.",
        "",
        f"| | MB | {found.metric} | ms (batch {rows_one}, length {length}) | times faster |"
        f" times the rows/s (batch {many}, length {longer}) |",
        "|---|---|---|---|---|---|",
        *rows,
        "",
        f"Measured with {found.threads} thread(s) on {found.machine}, in turns, against {found.rows[0].name}.",
    ]
    return "\n".join(lines) + "\n"
