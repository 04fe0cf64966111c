"""Would another form be better on this machine? Asked for an export that was made on another processor.

The weights of the original are not there to be exported again, but the time of a call depends on the
model's shape alone: a model of the same config with random weights is exported to every form, and all are
timed side by side.
"""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from bermo.errors import BermoError
from bermo.machine import processor
from bermo.progress import Display
from bermo.runs.model_files import read_export
from bermo.runs.task_file import write_task
from bermo.runs.trained import TrainedFolder, open_trained
from bermo.ship.bench.entries import line_up
from bermo.ship.bench.measured import Bench, Measured
from bermo.ship.bench.run import bench
from bermo.ship.bench.spec import BenchSpec
from bermo.ship.compress.forms import FormsSpec, write_forms

ROUNDS = 2
MUCH_BETTER = 1.15
"""A smaller gain is not worth another export, and may be noise."""


@dataclass(frozen=True, kw_only=True)
class Advice:
    """The form of an export, and the forms that have the most throughput and the shortest calls on this
    machine.
    """

    made_on: str
    form: str
    fastest: str
    throughput_gain: float
    quickest: str
    latency_gain: float

    def sentence(self, folder: str) -> str:
        """Say whether another form is better here, and what to do."""
        start = f"{folder} ({self.form}) was made on {self.made_on}; this is {processor().name}."
        better = []
        if self.throughput_gain > MUCH_BETTER:
            better.append(f"{self.fastest} has {self.throughput_gain:.1f} times its throughput")
        if self.latency_gain > MUCH_BETTER:
            better.append(f"{self.quickest} answers {self.latency_gain:.1f} times as fast")
        if not better:
            return f"{start} No other form is better here."
        return (
            f"{start} Here {' and '.join(better)} (same shape, random weights). Export the original again"
            " on this machine: bermo export RUN --to best."
        )


def is_asked(folder: Path, always: bool) -> bool:
    """Tell whether an export's other forms are to be timed: always, or where another processor made it."""
    record = read_export(open_trained(folder).folder)
    is_known = "processor" in record and record.get("to") != "sparse"
    return is_known and (always or record["processor"] != processor().name)


def advise(folder: Path, spec: BenchSpec, threads: int | None, display: Display) -> Advice:
    """Time every form of the export's shape on this machine beside its own form."""
    source = open_trained(folder)
    record = read_export(source.folder)
    own = own_form(record)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as aside:
        model = save_untrained(source, Path(aside) / "untrained")
        asked = FormsSpec(calibrate=spec.data, max_loss=100.0)
        written = write_forms(model, Path(aside) / "forms", asked, display)
        if own not in written.folders:
            raise BermoError(f"{own} cannot be made on this machine, so it cannot be compared.")
        shapes = replace(spec, data=None, rounds=ROUNDS)
        entries = line_up([str(path) for path in written.folders.values()], shapes, threads=threads)
        shown = [replace(entry, name=name) for entry, name in zip(entries, written.folders, strict=True)]
        return compare_forms(bench(shown, shapes, display), own, str(record.get("processor")))


def compare_forms(result: Bench, own: str, made_on: str) -> Advice:
    """Find the best forms of a bench, as gains over one of them."""
    base = next(row for row in result.rows if row.name == own)

    def throughput(row: Measured) -> float:
        return result.speedup(row) / result.speedup(base)

    def latency(row: Measured) -> float:
        return result.latency_gain(row) / result.latency_gain(base)

    fastest, quickest = max(result.rows, key=throughput), max(result.rows, key=latency)
    return Advice(
        made_on=made_on,
        form=own,
        fastest=fastest.name,
        throughput_gain=throughput(fastest),
        quickest=quickest.name,
        latency_gain=latency(quickest),
    )


def own_form(record: dict[str, object]) -> str:
    """The form that an export has; onnx-int8 has the sign that was kept."""
    form, details = str(record["to"]), record.get("details")
    is_either = form == "onnx-int8" and isinstance(details, dict) and "weights" in details
    return f"onnx-int8-{details['weights']}" if is_either and isinstance(details, dict) else form


def save_untrained(source: TrainedFolder, folder: Path) -> Path:
    """Save a model of the same config with random weights, its tokenizer and its task."""
    torch.manual_seed(0)
    model = source.create_model()
    model.float().save_pretrained(folder)
    source.load_tokenizer().save_pretrained(folder)
    write_task(folder, source.trained)
    return folder
