"""The whole way from a trained model to a small one: prune with a teacher, delete, export, measure, choose.

    dense -> every form -> bench -> plan -> [train or Fisher -> shrink -> leading forms] each -> bench -> pick

A form is a runtime with a precision: onnxruntime in int8, OpenVINO in bf16 and so on. Smaller models are
tried in the forms that lead for the dense one on this machine.

Every stage has its folder under `work/` and is skipped where that is complete, so a stopped command goes
on. What is picked lies in `model/` and, before its export, in `torch/`, with bench.json, figures.json and a
card beside it.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from bermo.data.load import load_task
from bermo.data.tasks import Kind
from bermo.data.unlabelled import read_unlabelled
from bermo.encoders.card import Evaluated, with_header
from bermo.errors import BermoError
from bermo.fields import check, leaves
from bermo.files import copy_folder, read_sealed, reading, whole_folder, write_json, write_sealed, write_text
from bermo.machine import processor
from bermo.methods.finetune import finetune
from bermo.models.encoder import BermoPreTrainedModel
from bermo.printing import number_of
from bermo.progress import Display
from bermo.runs.folder import read_run_spec
from bermo.runs.kept_options import locked_for
from bermo.runs.model_files import COMPRESS_FILE, check_not_exported, warn_diverged
from bermo.runs.trained import open_trained
from bermo.ship.bench.card import bench_rows
from bermo.ship.bench.entries import check_lengths, line_up
from bermo.ship.bench.measured import Bench, Measured
from bermo.ship.bench.run import bench, read_bench, write_bench
from bermo.ship.bench.spec import BenchSpec
from bermo.ship.compress.forms import FormsSpec, write_forms
from bermo.ship.compress.goal import Goal, leading_forms, passed_over, pick
from bermo.ship.compress.plan import Arm, Plan, arm_spec, beside_layers, make_plan, quick_arms, trained_arms
from bermo.ship.compress.sentence import (
    Agreement,
    agreement_rows,
    agreements,
    enough_texts,
    open_source,
    prepare_taught,
    sentence_arm_spec,
    sentence_arms,
)
from bermo.ship.compress.spec import CompressSpec
from bermo.ship.runtimes.run_data import valid_file, with_files
from bermo.ship.shrink.delete import is_shrinkable
from bermo.ship.shrink.run import make_small
from bermo.ship.shrink.spec import FisherSpec
from bermo.spec import RunSpec
from bermo.sums import ensure_sums
from bermo.values import to_dict

SMALLEST_SHARE = 0.02
BY_HAND: tuple[Kind, ...] = ("tagging", "span", "choice")
"""Kinds of task that no bench of whole answers judges."""
DENSE = "dense"


@dataclass(frozen=True, kw_only=True)
class Compressed:
    """What was picked, whether it meets the goal, and everything that was measured."""

    picked: Measured
    is_met: bool
    sentence: str
    bench: Bench
    agreements: Mapping[str, Agreement] = field(default_factory=dict)
    """Of a sentence encoder: how far each row is its teacher's."""


def compress(spec: CompressSpec, out: Path, display: Display) -> Compressed:
    """Lose as little as possible and meet the goal; the same command goes on where it stopped."""
    check(spec)
    for folder in (spec.run, *spec.candidates):
        check_not_exported(folder)
    source = open_source(spec)
    texts = () if spec.texts is None else enough_texts(spec.texts)
    for folder in (spec.run, *spec.candidates):
        warn_diverged(folder, display.tell)
    run = _run_spec(spec) if spec.texts is None else RunSpec()
    check_lengths(spec.run.name, source, spec.bench)
    with locked_for(out, COMPRESS_FILE, asdict(spec), leaves(CompressSpec)):
        work, taught = out / "work", None
        if spec.texts is not None:
            taught = prepare_taught(spec, texts, source, work, display)
            run, source = taught.run, open_trained(taught.teacher)
            spec = replace(spec, run=taught.teacher)
        measured = replace(spec.bench, data=valid_file(run.data, work, "compress"))
        made = _Made({DENSE: source.folder}, {})
        made.add(DENSE, source.folder, work / "dense-forms", spec, measured, display)
        first = _measure(made, measured, spec, work / "dense.json", display)
        arms = _arms(spec, first, work, display) if spec.with_training else []
        spec = replace(spec, forms=leading_forms(spec.goal, first))
        wanted: list[Arm | Path] = [*arms, *spec.candidates]
        for item in wanted:
            display.tell(f"\n{item.name}")
            if isinstance(item, Arm):
                name, small = item.folder, _small(item, spec, run, source.folder, work, display)
            else:
                name = f"given-{item.name}"
                small = _given_small(item, work / name, spec, display)
            try:
                made.add(item.name, small, work / f"{name}-forms", spec, measured, display)
            except BermoError as error:  # one arm that no form serves does not spoil the others
                display.tell(f"{item.name} is left out. {error}")
        result = _measure(made, measured, spec, None, display) if wanted else first
        found = {} if taught is None else agreements(made.folders, DENSE, taught.held_out)
        return _finish(spec, result, made, out, found)


@dataclass(frozen=True)
class _Made:
    """The folders that are measured, by the name that the table shows, and the torch model of each."""

    folders: dict[str, Path]
    torch: dict[str, Path]

    def add(
        self, name: str, model: Path, out: Path, spec: CompressSpec, measured: BenchSpec, display: Display
    ) -> None:
        """Write a model in every form that is to be compared."""
        asked = FormsSpec(
            forms=spec.forms, data=measured.data, calibrate=spec.calibrate, max_loss=spec.allowed_loss
        )
        for form, folder in write_forms(model, out, asked, display).folders.items():
            self.folders[f"{name} {form}"], self.torch[f"{name} {form}"] = folder, model


def _run_spec(spec: CompressSpec) -> RunSpec:
    """Return the spec of the run, with the data that was named; a plain model folder starts from the
    defaults.
    """
    path = spec.run / "spec.json"
    run = RunSpec()
    if path.exists():
        run = replace(read_run_spec(spec.run), seeds=(1,))
    kind = open_trained(spec.run).trained.task.kind
    if kind in BY_HAND:
        raise BermoError(
            f"bermo compress makes models of classes and numbers small, but {spec.run} is one of the kind"
            f" {kind}. Use the commands one by one: train --teacher {spec.run} --prune heads-and-neurons,"
            " then shrink, export and bench."
        )
    data = with_files(run.data, kind, spec.folder, spec.train, spec.valid)
    if spec.limit is not None:
        data = replace(data, limit=spec.limit)
    if spec.with_training or not spec.valid:
        task = load_task(data)  # every mistake in the files is said now
        if spec.unlabelled is not None:
            read_unlabelled(Path(spec.unlabelled).expanduser(), task, data.text, data.separator_character)
    return check(replace(run, data=data, train=replace(run.train, **spec.training)))


def _given_small(folder: Path, out: Path, spec: CompressSpec, display: Display) -> Path:
    """Delete what is dead in a model that was made elsewhere, and words, unless there is nothing to
    delete.
    """
    source = open_trained(folder)
    if not out.exists():
        model = source.load_model()
        has_dead = isinstance(model, BermoPreTrainedModel) and is_shrinkable(model)
        if not spec.vocabulary and not has_dead:
            return source.folder
        make_small(folder, out, display, None, spec.vocabulary)
    return out


def _arms(spec: CompressSpec, dense: Bench, work: Path, display: Display) -> list[Arm]:
    """Return what to try, planned once from what the dense model reaches in its best form."""
    path = work / "plan.json"
    if not path.exists():
        model = open_trained(spec.run).load_model()
        plan = make_plan(spec.goal, dense, model)
        if plan.share <= 0 and not spec.vocabulary:
            display.tell(
                "What stands beside the layers, above all the table of words, takes"
                f" {beside_layers(spec.goal, dense, model):.1f} MB, more than the whole model may"
                f" ({spec.goal.text()}). --vocabulary FILE keeps only the words of your texts."
            )
        write_sealed(path, asdict(replace(plan, share=max(plan.share, SMALLEST_SHARE))))
    with reading(path, "Delete it, and the same command plans again."):
        plan = Plan(**read_sealed(path))
    if plan.share >= 1:
        display.tell("The dense model in its best form meets the goal: nothing has to go.")
        return []
    if spec.texts is not None:
        return sentence_arms(plan)
    return quick_arms(plan) if spec.is_quick else trained_arms(plan)


def _small(arm: Arm, spec: CompressSpec, run: RunSpec, teacher: Path, work: Path, display: Display) -> Path:
    """Make a smaller torch model, unless that is done: by training with a teacher, or by Fisher
    information.
    """
    out = work / arm.folder
    if out.exists():
        return out
    if spec.is_quick:
        fisher = FisherSpec(density=arm.density, train=spec.train, valid=spec.valid, folder=spec.folder)
        make_small(spec.run, out, display, fisher, spec.vocabulary)
        return out
    trained = work / f"{arm.folder}-run"
    if spec.texts is None:
        wanted = arm_spec(arm, run, str(teacher), spec.hard, spec.unlabelled)
    else:
        layers = open_trained(teacher).load_model().config.num_hidden_layers
        wanted = sentence_arm_spec(arm, run, teacher, int(layers or 0))
    finetune(wanted, trained, display)
    if arm.density < 1 or spec.vocabulary:
        make_small(trained, out, display, None, spec.vocabulary)
        return out
    return trained / "model"


def _measure(
    made: _Made, measured: BenchSpec, spec: CompressSpec, kept: Path | None, display: Display
) -> Bench:
    """Bench all that was made; a result that is kept in a file is not measured again."""
    if kept is not None and kept.exists():
        return read_bench(kept)
    entries = line_up([str(folder) for folder in made.folders.values()], measured, threads=spec.threads)
    shown = [replace(entry, name=name) for entry, name in zip(entries, made.folders, strict=True)]
    result = bench(shown, measured, display)
    if kept is not None:
        write_bench(kept, result)
    return result


def _finish(
    spec: CompressSpec, result: Bench, made: _Made, out: Path, found: Mapping[str, Agreement]
) -> Compressed:
    """Pick, copy what was picked, and write what was measured."""
    picked, is_met = pick(spec.goal, result)
    sentence = _sentence(spec.goal, result, picked, is_met)
    for name, source in (("model", made.folders[picked.name]), ("torch", made.torch[picked.name])):
        with whole_folder(out / name) as folder:
            copy_folder(source, folder)
            ensure_sums(folder)
    write_bench(out / "bench.json", result)
    write_text(out / "README.md", _card(spec, result, picked, sentence, found))
    write_json(
        out / "result.json",
        {
            "picked": picked.name,
            "is_met": is_met,
            "sentence": sentence,
            "goal": to_dict(spec.goal),
            "processor": processor().name,
            "agreements": {name: asdict(item) for name, item in found.items()},
        },
    )
    return Compressed(picked=picked, is_met=is_met, sentence=sentence, bench=result, agreements=found)


def _sentence(goal: Goal, result: Bench, picked: Measured, is_met: bool) -> str:
    reached = goal.text(goal.of(result, picked))
    base = result.rows[0].score or 0
    score = picked.score or 0
    kept = f"{result.metric} {score:.2f} of {base:.2f}"
    if is_met:
        other = passed_over(goal, result, picked)
        more = (
            ""
            if other is None
            else (
                f" {other.name} scores {(other.score or 0) - score:.2f} more, which"
                f" {number_of(result.num_scored, 'row')} cannot tell from chance, and is slower."
            )
        )
        return f"{picked.name} meets the goal ({goal.text()}): {reached}, {kept}.{more}"
    return f"Nothing met the goal ({goal.text()}). The nearest is {picked.name}: {reached}, {kept}."


def _card(
    spec: CompressSpec, result: Bench, picked: Measured, sentence: str, found: Mapping[str, Agreement]
) -> str:
    use = "predict" if spec.texts is None else "encode"
    lines = [
        f"# {spec.run.name}, made small",
        "",
        sentence,
        "",
        f"`model/` is for {picked.form} ({picked.precision}), `torch/` is the same model before that."
        f" Use them with `bermo {use}`.",
        "",
        *bench_rows(result),
        *(["", *agreement_rows(found)] if found else []),
    ]
    task = open_trained(spec.run).trained.task.name
    scored = (
        ()
        if picked.score is None
        else (Evaluated(task=task, metric=result.metric or "score", value=picked.score),)
    )
    return with_header("\n".join(lines) + "\n", title=f"{spec.run.name}, made small", evaluated=scored)
