"""bermo export: a trained model for another runtime, compared with the original before it is written."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bermo.errors import BermoError, nearest
from bermo.ship.runtimes.forms import FORM_NAMES, find_form
from bermo.verbs.importing import importing

if TYPE_CHECKING:
    from bermo.ship.export.run import Exported

HELP = "write a model for onnxruntime or OpenVINO, in bf16 or int8, or as a sparse container"
VALUES = ("fp32", "fp16", "int8")


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("run", help="a run's folder, or a saved model's")
    parser.add_argument("--to", required=True, metavar="FORM", help=", ".join(FORM_NAMES))
    parser.add_argument("--out", help="folder of the export (RUN-FORM); it must be new")
    parser.add_argument("--data", metavar="FILE", help="rows with answers: compare scores on them")
    parser.add_argument("--max-loss", type=float, default=1.0, help="points of score that may be lost [1]")
    parser.add_argument("--calibrate", metavar="FILE", help="texts that fix the ranges of activations (int8)")
    parser.add_argument(
        "--values",
        default="fp16",
        metavar="X",
        help=f"sparse: kept weights as {', '.join(VALUES)} [fp16]",
    )


def run(options: Namespace) -> int:
    form = find_form(options.to)
    if options.values not in VALUES:
        raise BermoError(f'There is no kind of values "{options.values}".{nearest(options.values, VALUES)}')
    out = Path(options.out or f"{options.run.rstrip('/')}-{options.to}")

    with importing():
        from bermo.report.terminal import TerminalDisplay
        from bermo.ship.export.run import ExportSpec, export

    spec = ExportSpec(
        to=form.name,
        data=Path(options.data) if options.data else None,
        calibrate=Path(options.calibrate) if options.calibrate else None,
        max_loss=options.max_loss,
        values=options.values,
    )
    exported = export(Path(options.run), out, spec, TerminalDisplay())
    for line in _summary(exported):
        print(line)
    return 0


def _summary(exported: "Exported") -> list[str]:
    compared, details = exported.compared, exported.details
    ratio = exported.dense_bytes / exported.num_bytes
    lines = [f"{exported.num_bytes / 1e6:.1f} MB, {ratio:.1f} times smaller than dense fp32."]
    if exported.to == "sparse":
        lines.append(
            f"Without embeddings: {details['encoder'] / 1e6:.2f} of {details['encoder_dense'] / 1e6:.2f} MB,"
            f" {details['encoder_ratio']:.1f} times smaller."
        )
    if "tried" in details:
        lines.append(_signs(details))
    lines.append(
        f"On {compared.texts} texts ({compared.on}): logits differ by {compared.relative_error:.2%}"
        f" (allowed {compared.tolerance:.2%}), {compared.same_answers:.1%} of answers are the same."
    )
    if compared.score_after is not None:
        lines.append(f"Score {compared.score_before:.2f} before, {compared.score_after:.2f} after.")
    return [*lines, f"The export is in {exported.folder}"]


def _signs(details: dict[str, Any]) -> str:
    """Say which sign of int8 weights was kept, and how each did."""
    results = []
    for sign, item in details["tried"].items():
        time = "" if item["seconds"] is None else f", {1000 * item['seconds']:.1f} ms a batch"
        results.append(f"{sign} {item['relative_error']:.2%} off{time}")
    return f"Weights as {details['weights']} int8 ({'; '.join(results)}, on this machine)."
