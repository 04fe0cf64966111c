"""A trained model -> a folder for another runtime, compared with the model it came from before it is written.

    export(run, out, ExportSpec(to="onnx-int8")) -> Exported

The comparison is on the user's rows or on generated sentences: the logits' relative error ‖a − b‖ / ‖b‖
must stay under a tolerance, and where the rows have answers the score may fall by `max_loss` points at
most; of int8 and fewer bits the score alone decides then. An export that fails is not written.
"""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedModel

from bermo.data.batches import in_order
from bermo.data.tasks import Kind
from bermo.errors import BermoError
from bermo.files import check_place, whole_folder, write_json, write_text
from bermo.machine import processor
from bermo.methods.measure import versions
from bermo.models.quantized import MARK, int8_copy
from bermo.progress import Display, Quiet
from bermo.runs.loading import reading_of
from bermo.runs.model_files import HUB_FOLDER, HUB_GRAPHS, MODEL_FILES, check_not_exported, divergence
from bermo.runs.reading import BY_GRAPH, FIELD
from bermo.runs.task_file import write_task
from bermo.runs.trained import TrainedFolder, open_trained
from bermo.ship.export import hub
from bermo.ship.export.compare import BATCH, Compared, Reference, check_accepted
from bermo.ship.export.example import EXAMPLE_FILE, example_script
from bermo.ship.export.sensitivity import most_sensitive
from bermo.ship.export.spec import ExportSpec
from bermo.ship.export.word_table import check_words
from bermo.ship.export.write import write_form
from bermo.ship.runtimes.candidate import answer, inputs_of, open_candidate
from bermo.ship.runtimes.forms import FEW_BITS, Form, FormName, check_form, find_form
from bermo.ship.runtimes.sparse import check_pruned
from bermo.ship.runtimes.texts import built_in, labelled, unlabelled
from bermo.ship.runtimes.torch_candidate import TorchCandidate
from bermo.sums import write_sums

CALIBRATION_TEXTS = 128


@dataclass(frozen=True, kw_only=True)
class Exported:
    """What was written: its size beside the original, how it compares, and what else there is to say."""

    folder: Path
    to: FormName
    precision: str
    num_bytes: int
    dense_bytes: int
    compared: Compared
    details: dict[str, Any]


def export(
    run: Path, out: Path, spec: ExportSpec, display: Display | None = None, traced: Path | None = None
) -> Exported:
    """Write the model of `run` to the new folder `out` in the form asked for; a bad result is refused.

    Several forms of one model are traced once, if all are given the same file `traced`.
    """
    display = display or Quiet()
    if out.exists():
        raise BermoError(f"{out} exists and is not overwritten. Give another folder with --out.")
    check_place(out)
    check_not_exported(run)
    opened = open_trained(run)
    if spec.layout == "hub" and opened.is_apart:
        raise BermoError(
            f"{run} reads the two texts of a pair apart, which no tool of the hub does. Leave --layout out,"
            " or train it with --pairs joined."
        )
    form = find_form(spec.to)
    check_form(form, has_texts=(spec.calibrate or spec.data) is not None)
    features = built_in(opened) if spec.data is None else labelled(opened, spec.data)
    ranges = _calibration(opened, form, spec)
    model = opened.load_model().requires_grad_(False)
    if form.runtime == "sparse" and spec.values not in FEW_BITS:
        check_pruned(model, opened.folder)
    if form.precision == "int8" and spec.words == "int4":
        check_words(model)
    form, asked = _as_trained(model, form)
    reference = Reference(
        features=features,
        on="generated sentences" if spec.data is None else spec.data.name,
        logits=answer(TorchCandidate(asked), features, BATCH),
        max_loss=spec.max_loss,
    )
    dense_bytes = 4 * sum(p.numel() for p in model.parameters())
    precision = spec.values if form.runtime == "sparse" else form.precision
    with whole_folder(out) as folder:
        display.tell(f"Writing {form.name} …")
        is_hub = spec.layout == "hub"
        if is_hub:
            (folder / HUB_FOLDER).mkdir()
            traced = folder / hub.WHOLE
        whole = most_sensitive(model, features, spec.keep_fp32)
        details = write_form(model, opened, form, folder, ranges, reference, spec, traced, is_hub, whole)
        if is_hub:
            hub.move_graphs(folder, form.precision == "int8")
        _write_companions(model, opened, folder, is_hub)
        # Opening the folder below reads its precision there.
        write_json(folder / "export.json", {"precision": precision, "details": details})
        made = replace(opened, folder=folder, runtime=form.runtime, precision=precision)
        compared = reference.compare(open_candidate(made), precision)
        check_accepted(compared, form.name, reference.max_loss)
        exported = Exported(
            folder=out,
            to=form.name,
            precision=precision,
            num_bytes=made.num_bytes,
            dense_bytes=dense_bytes,
            compared=compared,
            details=details,
        )
        kind = opened.trained.task.kind
        record = _record(exported) | {"diverged": divergence(run), FIELD: _reading(folder, form, kind)}
        write_json(folder / "export.json", record)
        if is_hub:
            hub.write_card(folder, opened.trained, compared, run.name)
        write_sums(folder)
    return exported


def _as_trained(model: PreTrainedModel, form: Form) -> tuple[Form, PreTrainedModel]:
    """Return the form and the model whose answers it should give: of one that was trained for int8, signed
    weights and the answers of its fake quantisers.
    """
    is_int8 = form.runtime == "onnxruntime" and form.precision == "int8"
    if not is_int8 or getattr(model.config, MARK, None) != "int8":
        return form, model
    return replace(form, signs=form.signs[:1]), int8_copy(model)


def _calibration(opened: TrainedFolder, form: Form, spec: ExportSpec) -> list[dict[str, np.ndarray]] | None:
    """Return the batches that fix the ranges of activations, or None for ranges of each batch."""
    path = spec.calibrate or (spec.data if form.needs_texts else None)
    if path is None or form.precision != "int8":
        return None
    features = unlabelled(opened, path, CALIBRATION_TEXTS)
    return [inputs_of(features, rows) for rows in in_order(features, BATCH)]


def _write_companions(model: PreTrainedModel, opened: TrainedFolder, folder: Path, is_hub: bool) -> None:
    """Write beside the model what its use needs: config, tokenizer, task.json, and for ONNX an example."""
    tokenizer = opened.load_tokenizer()
    if is_hub:
        hub.write_companions(model, opened, folder)
    else:
        # A torch model has been saved with its own: of a sentence encoder it is the plain encoder's.
        if not (folder / "config.json").exists():
            model.config.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    write_task(folder, opened.trained)
    names = (*HUB_GRAPHS, MODEL_FILES["onnxruntime"])
    graph = next((name for name in names if (folder / name).exists()), None)
    script = None if graph is None else example_script(opened.trained, tokenizer, graph, opened.is_apart)
    if script is not None:
        write_text(folder / EXAMPLE_FILE, script)


def _reading(folder: Path, form: Form, kind: Kind) -> dict[str, Any] | None:
    """Return what lets the folder answer without torch; for vectors its config says more than that."""
    reading = reading_of(folder) if form.runtime in BY_GRAPH and kind != "embedding" else None
    return None if reading is None else asdict(reading)


def _record(exported: Exported) -> dict[str, Any]:
    """Return what export.json says: all but the folder's own path, the versions and the processor."""
    values = asdict(exported) | {"versions": _all_versions(), "processor": processor().name}
    del values["folder"]
    return values


def _all_versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    known = dict(versions())
    for name in ("onnx", "onnxruntime", "openvino", "nncf"):
        try:
            known[name] = version(name)
        except PackageNotFoundError:
            continue
    return known
