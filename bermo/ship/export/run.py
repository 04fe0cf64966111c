"""A trained model -> a folder for another runtime, compared with the model it came from before it is written.

    export(run, out, ExportSpec(to="onnx-int8")) -> Exported

The comparison is on the user's rows or on sentences in the box: the logits' relative error ‖a − b‖ / ‖b‖ must stay under
a tolerance, and with answers at hand the score may fall by `max_loss` points at most. What fails is not written.
"""

import platform
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from transformers import PreTrainedModel

from bermo.data.batches import collate, in_order
from bermo.data.features import Features
from bermo.data.scoring import score
from bermo.encoders.backbone import load_tokenizer
from bermo.errors import BermoError
from bermo.files import whole_folder, write_json
from bermo.methods.evaluate import TARGETS
from bermo.methods.measure import versions
from bermo.progress import Display, Quiet
from bermo.ship.export.onnx import check_onnx, quiet, write_onnx
from bermo.ship.export.quantize import choices, quantize_calibrated, quantize_dynamic
from bermo.ship.export.rewrite import quicken
from bermo.ship.runtimes.candidate import Candidate, OnnxCandidate, TorchCandidate, answer, open_candidate
from bermo.ship.runtimes.folder import Form, Source, find_source, load_torch
from bermo.ship.runtimes.openvino import check_openvino, write_openvino
from bermo.ship.runtimes.packed import Values
from bermo.ship.runtimes.sparse import check_pruned, write_sparse
from bermo.ship.runtimes.texts import built_in, labelled, unlabelled

Target = Literal["onnx", "onnx-int8", "openvino", "openvino-int8", "sparse"]
TARGETS_KNOWN = ("onnx", "onnx-int8", "openvino", "openvino-int8", "sparse")
TOLERANCES = {"fp32": 1e-4, "fp16": 1e-2, "int8": 0.25}
"""Largest relative error of the logits: rounding of another order of sums; of half the bits; of a quarter."""
BATCH = 16
CALIBRATION_TEXTS = 128
COMPARED_TEXTS = 256


@dataclass(frozen=True, kw_only=True)
class ExportSpec:
    """What to write, and what it is compared on."""

    to: Target
    data: Path | None = None
    calibrate: Path | None = None
    max_loss: float = 1.0
    values: Values = "fp16"


@dataclass(frozen=True, kw_only=True)
class Compared:
    """How an export answers beside the model it came from; scores in percent where there are answers."""

    texts: int
    on: str
    relative_error: float
    tolerance: float
    same_answers: float
    score_before: float | None = None
    score_after: float | None = None


@dataclass(frozen=True, kw_only=True)
class Exported:
    """What was written: its size beside the original, how it compares, and what else there is to say."""

    folder: Path
    to: Target
    precision: str
    num_bytes: int
    dense_bytes: int
    compared: Compared
    details: dict[str, Any]


def export(run: Path, out: Path, spec: ExportSpec, display: Display | None = None) -> Exported:
    """Write the model of `run` to the new folder `out` in the form asked for; a bad result is refused."""
    display = display or Quiet()
    if out.exists():
        raise BermoError(f"{out} exists and is not overwritten. Give another folder with --out.")
    source = find_source(run)
    _check_target(spec)
    features = _features(source, spec)
    ranges = _calibration(source, spec)
    model = load_torch(source)
    if spec.to == "sparse":
        check_pruned(model, source.folder)
    before = answer(TorchCandidate(model), features, BATCH)
    with whole_folder(out) as folder:
        display.tell(f"Writing {spec.to} …")
        compare = _comparison(features, before, spec)
        details = _write(model, source, spec, folder, ranges, compare)
        _copy_papers(model, source, folder)
        precision = _precision(spec)
        write_json(folder / "export.json", {"precision": precision})  # read when it is opened below
        made = replace(source, folder=folder, form=_form(spec.to), precision=precision)
        compared = compare(open_candidate(made), precision)
        _accept(compared, spec)
        exported = Exported(
            folder=out,
            to=spec.to,
            precision=precision,
            num_bytes=made.num_bytes,
            dense_bytes=4 * sum(p.numel() for p in model.parameters()),
            compared=compared,
            details=details,
        )
        write_json(folder / "export.json", _record(exported))
    return exported


def _check_target(spec: ExportSpec) -> None:
    if spec.to.startswith(("onnx", "openvino")):
        check_onnx()
    if spec.to.startswith("openvino"):
        check_openvino()
    if spec.to == "openvino-int8" and spec.calibrate is None and spec.data is None:
        raise BermoError(
            "openvino-int8 needs texts to find the ranges of activations. Pass --calibrate FILE with some"
            f" of your texts (the first {CALIBRATION_TEXTS} are used; labels are not looked at)."
        )


def _features(source: Source, spec: ExportSpec) -> Features:
    return built_in(source) if spec.data is None else labelled(source, spec.data)


def _calibration(source: Source, spec: ExportSpec) -> list[dict[str, np.ndarray]] | None:
    """Return the batches that fix the ranges of activations, or None for ranges of each batch."""
    is_fixed = spec.to == "openvino-int8" or (spec.to == "onnx-int8" and spec.calibrate is not None)
    if not is_fixed:
        return None
    path = spec.calibrate or spec.data
    assert path is not None
    features = unlabelled(source, path, CALIBRATION_TEXTS)
    return [inputs_of(features, rows) for rows in in_order(features, BATCH)]


def inputs_of(features: Features, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Return rows as a runtime's inputs."""
    batch = collate(features, rows)
    return {name: value.numpy() for name, value in batch.items() if name not in TARGETS}


Compare = Callable[[Candidate, str], Compared]


def _comparison(features: Features, before: list[np.ndarray], spec: ExportSpec) -> Compare:
    """Return a function that compares a candidate's answers with the original's."""

    def compare(candidate: Candidate, precision: str) -> Compared:
        after = answer(candidate, features, BATCH)
        has_answers = features.targets is not None
        return Compared(
            texts=len(features),
            on="sentences in the box" if spec.data is None else spec.data.name,
            relative_error=relative_error(after, before),
            tolerance=TOLERANCES[precision],
            same_answers=same_answers(after, before),
            score_before=score(features, before).score if has_answers else None,
            score_after=score(features, after).score if has_answers else None,
        )

    return compare


def relative_error(after: list[np.ndarray], before: list[np.ndarray]) -> float:
    """‖a − b‖ / ‖b‖ over all logits together."""
    a, b = (np.concatenate([np.ravel(row) for row in rows]).astype(np.float64) for rows in (after, before))
    return float(np.linalg.norm(a - b)) / max(float(np.linalg.norm(b)), 1e-12)


def same_answers(after: list[np.ndarray], before: list[np.ndarray]) -> float:
    """The share of decisions, one a row, tag or end of a span, that stayed; 1 for numbers."""
    pairs = [
        (np.atleast_1d(a.argmax(-1)), np.atleast_1d(b.argmax(-1))) for a, b in zip(after, before, strict=True)
    ]
    same = sum(int((a == b).sum()) for a, b in pairs)
    return same / sum(len(a) for a, _ in pairs)


def _write(
    model: PreTrainedModel,
    source: Source,
    spec: ExportSpec,
    folder: Path,
    ranges: list[dict[str, np.ndarray]] | None,
    compare: Compare,
) -> dict[str, Any]:
    """Write the model's own files, and return what is worth recording about them."""
    if spec.to == "sparse":
        size = write_sparse(model, folder / "sparse.safetensors", spec.values)
        ratios = {"encoder_ratio": size.encoder_ratio, "model_ratio": size.model_ratio}
        return asdict(size) | ratios | {"values": spec.values}
    # The example comes from real texts: two rows at least, since torch takes a size of one as fixed.
    features = built_in(source)
    example = {k: v for k, v in collate(features, np.arange(3)).items() if k not in TARGETS}
    with tempfile.TemporaryDirectory(dir=folder) as aside:
        graph = Path(aside) / "graph.onnx"
        write_onnx(model, example, graph)
        if spec.to == "onnx-int8":
            quicken(graph)
        details: dict[str, Any] = {"machine": platform.machine()}
        if spec.to.endswith("int8"):
            details |= _quantize(graph, Path(aside), ranges, compare)
            graph = Path(aside) / details["file"]
        if spec.to.startswith("openvino"):
            write_openvino(graph, folder)
        else:
            shutil.move(graph, folder / "model.onnx")
    return details


def _quantize(
    graph: Path, aside: Path, ranges: list[dict[str, np.ndarray]] | None, compare: Compare
) -> dict[str, Any]:
    """Try every coding that suits this processor and name the most faithful one."""
    tried: dict[str, float] = {}
    files: dict[str, str] = {}
    for place, choice in enumerate(choices()):
        out = aside / f"int8-{place}.onnx"
        with quiet():
            if ranges is None:
                quantize_dynamic(graph, out, choice)
            else:
                quantize_calibrated(graph, out, choice, ranges)
        tried[choice.name] = compare(OnnxCandidate(out, None), "int8").relative_error
        files[choice.name] = out.name
    best = min(tried, key=lambda name: tried[name])
    return {
        "weights": best,
        "file": files[best],
        "tried": tried,
        "activations": "ranges of each batch" if ranges is None else "calibrated ranges",
    }


def _accept(compared: Compared, spec: ExportSpec) -> None:
    """Refuse an export that answers something else than its model."""
    if not compared.relative_error <= compared.tolerance:
        raise BermoError(
            f"The {spec.to} model's logits differ by {compared.relative_error:.2%} from the original's on"
            f" {compared.on} (tolerance {compared.tolerance:.2%}). Nothing was written. Try another form."
        )
    if compared.score_before is None or compared.score_after is None:
        return
    loss = compared.score_before - compared.score_after
    if loss > spec.max_loss:
        raise BermoError(
            f"The {spec.to} model scores {compared.score_after:.2f} on {compared.on}, {loss:.2f} points less than"
            f" the original's {compared.score_before:.2f}. Nothing was written. Allow it with --max-loss"
            f" {np.ceil(loss * 10) / 10:g}, or calibrate with --calibrate FILE."
        )


def _copy_papers(model: PreTrainedModel, source: Source, folder: Path) -> None:
    """Put beside the model what its use needs: config, tokenizer, task.json."""
    model.config.save_pretrained(folder)
    load_tokenizer(source.folder).save_pretrained(folder)
    trained = source.trained
    write_json(
        folder / "task.json",
        {
            "task": trained.task.name,
            "kind": trained.task.kind,
            "labels": trained.labels,
            "text": trained.text,
            "max_length": trained.max_length,
            "stride": trained.stride,
        },
    )


def _precision(spec: ExportSpec) -> str:
    if spec.to == "sparse":
        return spec.values
    return "int8" if spec.to.endswith("int8") else "fp32"


def _form(to: Target) -> Form:
    return "sparse" if to == "sparse" else "openvino" if to.startswith("openvino") else "onnx"


def _record(exported: Exported) -> dict[str, Any]:
    values = asdict(exported) | {"folder": None, "versions": _all_versions()}
    values["details"].pop("file", None)
    del values["folder"]
    return values


def _all_versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = dict(versions())
    for name in ("onnx", "onnxruntime", "openvino"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
