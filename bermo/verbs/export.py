"""bermo export: a trained model for another runtime, compared with the original before it is written."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bermo.fields import REQUIRED, Rules, leaves, option, positional
from bermo.printing import say, wrapped
from bermo.ship.compress.spec import BestSpec
from bermo.ship.export.spec import ExportSpec
from bermo.ship.runtimes.forms import check_form, find_form
from bermo.verbs.importing import importing
from bermo.verbs.verb import Verb

if TYPE_CHECKING:
    from bermo.ship.export.run import Exported


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Which model, in which form, and where it is written."""

    run: Path = positional("a run's folder, or a saved model's")
    spec: ExportSpec = REQUIRED
    best: BestSpec = BestSpec()
    out: Path | None = option(None, "folder of the export; it must be new", shown="RUN-FORM")

    def rules(self) -> Rules:
        spec, is_best = self.spec, self.spec.to == "best"
        calibrates = is_best or find_form(spec.to).precision == "int8"
        extra = [leaf.flag for leaf in leaves(BestSpec) if getattr(self.best, leaf.dotted) != leaf.default]
        return [
            (is_best or not extra, f"--{''.join(extra[:1])} belongs to --to best. Leave it out."),
            (
                spec.calibrate is None or calibrates,
                f"--calibrate means nothing to --to {spec.to}, which is not int8. Leave it out.",
            ),
            (
                not spec.keep_fp32 or str(spec.to).startswith("onnx-int8"),
                f"--keep-fp32 means nothing to --to {spec.to}. Leave it out, or ask for --to onnx-int8.",
            ),
            (
                spec.words == ExportSpec.words or str(spec.to).endswith(("int8", "signed")),
                f"--words {spec.words} means nothing to --to {spec.to}, which is not int8. Leave it out.",
            ),
            (
                is_best or spec.to == "sparse" or spec.values == ExportSpec.values,
                f"--values means nothing to --to {spec.to}. Leave it out.",
            ),
            (
                spec.layout == "bermo" or str(spec.to).startswith("onnx"),
                f"--layout hub is for ONNX, and --to {spec.to} is another form. Ask for --to onnx-int8.",
            ),
        ]


def run(options: ExportOptions) -> int:
    from bermo.runs.model_files import check_not_exported, warn_diverged
    from bermo.verbs.starting import check_files, check_new, say_start

    spec = options.spec
    check_not_exported(options.run)
    check_files(spec.data, spec.calibrate)
    if spec.to == "best":
        return _run_best(options)
    out = options.out or Path(f"{options.run}-{spec.to}")
    check_new(out)
    check_form(find_form(spec.to), has_texts=(spec.calibrate or spec.data) is not None)
    say_start("export", f"{options.run} as {spec.to}")
    with importing():
        from bermo.report.terminal import TerminalDisplay
        from bermo.ship.export.run import export

    display = TerminalDisplay()
    warn_diverged(options.run, display.tell)
    exported = export(options.run, out, spec, display)
    for line in _summary(exported):
        say(wrapped(line))
    return 0


def _run_best(options: ExportOptions) -> int:
    """Write and measure every form that this machine can run, and keep the best."""
    from bermo.verbs.starting import say_start

    say_start("export", f"{options.run} in every form that this machine can run")
    with importing():
        from bermo.report.bench import print_bench, write_bench_figures
        from bermo.report.console import PlainConsole
        from bermo.report.terminal import TerminalDisplay
        from bermo.ship.compress.best import export_best

    out = options.out or Path(f"{options.run}-best")
    best = export_best(options.run, out, options.best, options.spec, TerminalDisplay())
    write_bench_figures(out, best.bench, f"{options.run.name}, every form")
    console = PlainConsole()
    print_bench(best.bench, console)
    console.print(f"\n{best.sentence}", markup=False)
    console.print(f"The model is in {out}/model, the table in {out}/README.md", markup=False)
    return 0


def _summary(exported: "Exported") -> list[str]:
    from bermo.ship.export.compare import agreement

    compared, details = exported.compared, exported.details
    ratio = exported.dense_bytes / exported.num_bytes
    compares = f"{ratio:.1f} times smaller than" if ratio >= 1.05 else "as large as"
    lines = [f"{exported.num_bytes / 1e6:.1f} MB, {compares} dense fp32."]
    if exported.to == "sparse":
        lines.append(
            f"Without embeddings: {details['encoder'] / 1e6:.2f} of {details['encoder_dense'] / 1e6:.2f} MB,"
            f" {details['encoder_ratio']:.1f} times smaller."
        )
    if "tried" in details:
        lines.append(_signs(details))
    if "fp32" in details:
        errors = (f"{name} ({error:.2%} off in int8 alone)" for name, error in details["fp32"].items())
        lines.append(f"In fp32: {', '.join(errors)}.")
    allowed = "" if compared.is_judged_by_score else f" (allowed {compared.tolerance:.2%})"
    lines.append(
        f"On {compared.texts:,} texts ({compared.on}): logits differ by {compared.relative_error:.2%}"
        f"{allowed}, {agreement(compared.same_answers, compared.farthest)}."
    )
    if compared.score_after is not None:
        lines.append(f"Score {compared.score_before:.2f} before, {compared.score_after:.2f} after.")
    if compared.is_within_noise:
        lines.append(compared.doubt)
    return [*lines, f"The export is in {exported.folder}"]


def _signs(details: dict[str, Any]) -> str:
    """Say which sign of int8 weights was kept, and how each did."""
    results = []
    for sign, item in details["tried"].items():
        time = "" if item["seconds"] is None else f", {1000 * item['seconds']:.1f} ms a batch"
        results.append(f"{sign} {item['relative_error']:.2%} off{time}")
    return f"Weights as {details['weights']} int8 ({'; '.join(results)}, on this machine)."


VERB = Verb(
    help="write a model for onnxruntime or OpenVINO, in bf16 or int8, or as a sparse container",
    options=ExportOptions,
    run=run,
)
