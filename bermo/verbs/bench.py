"""bermo bench: size, latency, throughput and score of several models side by side."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Literal

from bermo.choices import device_rules
from bermo.errors import BermoError
from bermo.fields import Rules, option, positional
from bermo.files import check_place
from bermo.printing import number_of
from bermo.ship.bench.spec import MOST_THREADS, BenchDevice, BenchSpec
from bermo.spec import Precision
from bermo.verbs.importing import importing
from bermo.verbs.verb import Verb

OtherForms = Literal["auto", "always", "never"]


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """Which models are measured, on what, and where the results go."""

    folders: tuple[str, ...] = positional(
        "runs, saved models or exports; ratios are against the first", is_list=True
    )
    baseline: str | None = option(None, "ratios are against this one instead", metavar="FOLDER")
    spec: BenchSpec = BenchSpec()
    threads: int | None = option(
        None, "threads of each candidate", shown="all cores", least=1, most=MOST_THREADS
    )
    device: BenchDevice = option("cpu", "where torch models run; exports run on the CPU")
    precision: tuple[Precision, ...] = option(("fp32",), "arithmetic of torch models, one or several")
    other_forms: OtherForms = option(
        "auto", "time the other forms of an export too: auto = if it was made on another processor"
    )
    out: Path | None = option(
        None, "folder of the results; it must be new", shown="runs/bench, runs/bench-2 …"
    )

    def rules(self) -> Rules:
        twice = [name for name in self.folders if self.folders.count(name) > 1]
        return [
            (not twice, f"{''.join(twice[:1])} is given twice. Leave it out once."),
            *device_rules(self.device),
        ]


def run(options: BenchOptions) -> int:
    from bermo.runs.model_files import find_model, warn_diverged
    from bermo.verbs.starting import check_files, say_start

    out = options.out or _free_folder()
    check_place(out)
    if (out / "bench.json").exists():
        raise BermoError(f"{out} holds a bench and is not overwritten. Give another folder with --out.")
    first = [options.baseline] if options.baseline else []
    folders = [*first, *(folder for folder in options.folders if folder not in first)]
    for folder in folders:
        find_model(folder)
    check_files(options.spec.data)
    say_start("bench", f"{number_of(len(folders), 'model')} on {options.device}")
    with importing():
        from bermo.report.bench import print_bench, write_bench_figures
        from bermo.report.console import PlainConsole
        from bermo.report.terminal import TerminalDisplay
        from bermo.ship.bench.entries import line_up
        from bermo.ship.bench.run import bench, write_bench

    display = TerminalDisplay()
    for folder in folders:
        warn_diverged(folder, display.tell)
    entries = line_up(
        folders,
        options.spec,
        threads=options.threads,
        device=options.device,
        precisions=options.precision,
    )
    measured = bench(entries, options.spec, display)
    write_bench(out / "bench.json", measured)
    write_bench_figures(out, measured, "Bench")
    console = PlainConsole()
    print_bench(measured, console)
    for sentence in _advice(options):
        console.print(f"\n{sentence}", markup=False)
    console.print(f"\nResults are in {out}", markup=False)
    return 0


def _free_folder() -> Path:
    """The first of runs/bench, runs/bench-2 … that holds no bench."""
    names = (Path("runs/bench" if number == 1 else f"runs/bench-{number}") for number in count(1))
    return next(folder for folder in names if not (folder / "bench.json").exists())


def _advice(options: BenchOptions) -> Iterator[str]:
    """Say for each export whether another form would be better on this machine."""
    from bermo.report.terminal import TerminalDisplay
    from bermo.ship.compress.advice import advise, is_asked

    for folder in options.folders if options.other_forms != "never" else ():
        if is_asked(Path(folder), always=options.other_forms == "always"):
            yield advise(Path(folder), options.spec, options.threads, TerminalDisplay()).sentence(folder)


VERB = Verb(help="compare models: size, latency, throughput, memory, score", options=BenchOptions, run=run)
