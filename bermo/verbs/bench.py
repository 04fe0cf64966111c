"""bermo bench: size, latency, throughput and score of several models side by side."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from bermo.errors import BermoError, nearest
from bermo.verbs.importing import importing

HELP = "compare models: size, latency, throughput, memory, score"
DEVICES = ("cpu", "cuda")
PRECISIONS = ("fp32", "fp16", "bf16")


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "folders", nargs="+", help="runs, saved models or exports; ratios are against the first"
    )
    parser.add_argument("--baseline", help="ratios are against this one instead")
    parser.add_argument("--data", metavar="FILE", help="rows with answers: score every candidate on them")
    parser.add_argument("--batch", default="1,32", metavar="N,N", help="rows a call [1,32]")
    parser.add_argument("--lengths", default="32,128", metavar="N,N", help="tokens a row [32,128]")
    parser.add_argument("--rounds", type=int, default=5, help="turns each takes at each shape [5]")
    parser.add_argument("--threads", type=int, help="threads of each candidate [all cores]")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (torch models only) [cpu]")
    parser.add_argument(
        "--precision", default="fp32", metavar="P,P", help="torch models in fp32, fp16, bf16 [fp32]"
    )
    parser.add_argument("--out", default="runs/bench", help="folder of the results (runs/bench)")


def run(options: Namespace) -> int:
    for name, given, known in (
        ("device", [options.device], DEVICES),
        ("precision", options.precision.split(","), PRECISIONS),
    ):
        for text in given:
            if text not in known:
                raise BermoError(f'There is no {name} "{text}".{nearest(text, known)}')

    with importing():
        from rich.console import Console

        from bermo.report.bench import bench_caption, bench_table, write_bench_figures
        from bermo.report.terminal import TerminalDisplay
        from bermo.ship.bench.entries import line_up
        from bermo.ship.bench.run import BenchSpec, bench, write_bench

    out = Path(options.out)
    if (out / "bench.json").exists():
        raise BermoError(f"{out} holds a bench and is not overwritten. Give another folder with --out.")
    spec = BenchSpec(
        data=Path(options.data) if options.data else None,
        batches=read_numbers("--batch", options.batch),
        lengths=read_numbers("--lengths", options.lengths),
        rounds=options.rounds,
    )
    folders = [options.baseline] if options.baseline else []
    entries = line_up(
        [*folders, *(f for f in options.folders if f not in folders)],
        spec,
        threads=options.threads,
        device=options.device,
        precisions=options.precision.split(","),
    )
    found = bench(entries, spec, TerminalDisplay())
    write_bench(out / "bench.json", found)
    write_bench_figures(out, found, "Bench")
    console = Console(highlight=False)
    console.print(bench_table(found))
    console.print(bench_caption(found), style="dim")
    console.print(f"\nResults are in {out}", markup=False)
    return 0


def read_numbers(name: str, text: str) -> tuple[int, ...]:
    """Read a list of whole numbers."""
    try:
        return tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        raise BermoError(f'{name} "{text}" is not a list of whole numbers, such as 1,32.') from None
