"""The form of a trained model that is best on this machine: all forms are written, compared and measured.

    out/forms/FORM/    every form that passed its comparison with the model
    out/model/         the best of them, with bench.json, figures and a card (README.md) beside it

The same command goes on where it stopped.
"""

from dataclasses import asdict, dataclass, replace
from pathlib import Path

from bermo.encoders.card import with_header
from bermo.errors import BermoError
from bermo.fields import leaves
from bermo.files import copy_folder, whole_folder, write_json, write_text
from bermo.machine import processor
from bermo.progress import Display
from bermo.runs.kept_options import locked_for
from bermo.runs.model_files import check_not_exported, warn_diverged
from bermo.runs.trained import open_trained
from bermo.ship.bench.card import bench_rows
from bermo.ship.bench.entries import line_up
from bermo.ship.bench.measured import Bench, Measured
from bermo.ship.bench.run import bench, write_bench
from bermo.ship.compress.forms import FormsSpec, WrittenForms, write_forms
from bermo.ship.compress.spec import Aim, BestSpec
from bermo.ship.export.spec import ExportSpec

BASELINE = "torch fp32"
SAME_SIZE = 1.02
"""Files that differ by less are of one size; the faster of them is taken."""


@dataclass(frozen=True, kw_only=True)
class Best:
    """The form that was taken, everything that was measured, and the forms that were refused with their
    reasons.
    """

    picked: Measured
    sentence: str
    bench: Bench
    written: WrittenForms


def export_best(run: Path, out: Path, spec: BestSpec, asked: ExportSpec, display: Display) -> Best:
    """Write every form of a model that runs here, measure all, and keep the best in `out`/model."""
    check_not_exported(run)
    source = open_trained(run)
    warn_diverged(run, display.tell)
    options = {"run": str(run), **asdict(spec), **asdict(asked)}
    with locked_for(out, "best.json", options, [*leaves(BestSpec), *leaves(ExportSpec)]):
        forms = FormsSpec(
            forms=spec.forms, data=asked.data, calibrate=asked.calibrate, max_loss=asked.max_loss
        )
        written = write_forms(source.folder, out / "forms", forms, display)
        names = {BASELINE: source.folder} | {str(name): path for name, path in written.folders.items()}
        measured = replace(spec.bench, data=asked.data)
        entries = line_up([str(folder) for folder in names.values()], measured, threads=spec.threads)
        shown = [replace(entry, name=name) for entry, name in zip(entries, names, strict=True)]
        result = bench(shown, measured, display)
        picked = pick_form(spec.aim, result)
        sentence = _sentence(spec.aim, result, picked)
        with whole_folder(out / "model") as folder:
            copy_folder(names[picked.name], folder)
        write_bench(out / "bench.json", result)
        write_text(out / "README.md", _card(run, result, written, sentence))
        write_json(
            out / "result.json",
            {
                "picked": picked.name,
                "aim": spec.aim,
                "sentence": sentence,
                "processor": processor().name,
                "refused": written.refused,
            },
        )
    return Best(picked=picked, sentence=sentence, bench=result, written=written)


def pick_form(aim: Aim, result: Bench) -> Measured:
    """Return the best row but for the first, which is the model itself."""
    rows = result.rows[1:]
    if not rows:
        raise BermoError("There is no form to choose from.")
    match aim:
        case "throughput":
            return max(rows, key=result.speedup)
        case "latency":
            return max(rows, key=result.latency_gain)
        case "size":
            smallest = min(row.megabytes for row in rows)
            return max((r for r in rows if r.megabytes <= SAME_SIZE * smallest), key=result.speedup)


def _sentence(aim: Aim, result: Bench, picked: Measured) -> str:
    size = result.size_gain(picked)
    gains = (
        f"{result.speedup(picked):.2f} times the throughput, calls {result.latency_gain(picked):.2f} times as"
        f" short, {f'{size:.1f} times smaller than' if size >= 1.05 else 'as large as'} {BASELINE}"
    )
    is_slower = aim != "size" and max(result.speedup(picked), result.latency_gain(picked)) <= 1
    more = " No form is faster than torch in fp32 on this machine." if is_slower else ""
    return f"{picked.name} is best for {aim} on {processor().name}: {gains}.{more}"


def _card(run: Path, result: Bench, written: WrittenForms, sentence: str) -> str:
    refused = [f"- {name}: {reason}" for name, reason in written.refused.items()]
    lines = [
        f"# {run.name}, in its best form for one processor",
        "",
        sentence,
        "",
        "`model/` holds it, `forms/` all forms that passed their comparison with the model. Use them with"
        " `bermo predict`. On another processor another form may be best: `bermo bench` says so there.",
        "",
        *bench_rows(result),
        *(["", "Left out:", "", *refused] if refused else []),
    ]
    return with_header("\n".join(lines) + "\n", title=f"{run.name}, in its best form")
