"""bermo compress: from a trained model and a wish to a small model, in one command."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from bermo.verbs.importing import importing

HELP = "make a trained model as small or fast as you wish: prune, shrink, int8, measure, choose"
TRAINING = ("epochs", "batch_size", "lr", "precision")
NOT_MET = 3
"""Exit code when nothing meets the wish and the nearest was kept, so that a script can tell."""


def add_options(parser: ArgumentParser) -> None:
    parser.usage = "bermo compress RUN --latency 5ms | --speedup 4 | --size 10MB [options]"
    parser.add_argument("run", help="a finished run, or a saved model's folder")
    wish = parser.add_argument_group("the wish (one of them)")
    wish.add_argument("--latency", metavar="5ms", help="longest median call, batch 1, shortest length")
    wish.add_argument("--speedup", metavar="4", help="times the throughput of the dense torch model")
    wish.add_argument("--size", metavar="10MB", help="largest size of the model's files")
    parser.add_argument("--train", help="your training file; default: the run's")
    parser.add_argument("--valid", help="your validation file; default: the run's")
    parser.add_argument("--data", help="the folder with a named task's files; default: the run's")
    parser.add_argument(
        "--vocabulary", nargs="+", metavar="FILE", default=[], help="texts: only their words stay"
    )
    parser.add_argument(
        "--quick", action="store_true", help="no training: choose by Fisher information and refit"
    )
    parser.add_argument(
        "--candidates",
        nargs="+",
        metavar="FOLDER",
        default=[],
        help="smaller models made elsewhere (on a GPU machine, say) that take part in the choice",
    )
    parser.add_argument(
        "--no-training", action="store_true", help="measure the candidates only; train nothing here"
    )
    training = parser.add_argument_group("each training (default: as the run was trained)")
    training.add_argument("--epochs", type=float, help="passes over the training data")
    training.add_argument("--batch-size", type=int, help="rows a step")
    training.add_argument("--lr", type=float, help="learning rate")
    training.add_argument("--precision", choices=("fp32", "bf16", "fp16"), help="arithmetic")
    training.add_argument("--limit", type=int, help="use only the first so many training rows")
    training.add_argument(
        "--hard",
        type=float,
        help="weight of the labels beside the teacher's answers; 0 = none [0.1]",
    )
    parser.add_argument("--max-loss", type=float, default=1.0, help="points int8 may cost [1]")
    parser.add_argument("--batch", default="1,32", metavar="N,N", help="rows a call in the bench [1,32]")
    parser.add_argument(
        "--lengths", default="32,128", metavar="N,N", help="tokens a row in the bench [32,128]"
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds of the bench [3]")
    parser.add_argument("--threads", type=int, help="threads in the bench [all cores]")
    parser.add_argument("--out", help="folder of the result (RUN-small); the same command goes on there")


def run(options: Namespace) -> int:
    with importing():
        from rich.console import Console

        from bermo.report.bench import bench_caption, bench_table, write_bench_figures
        from bermo.report.terminal import TerminalDisplay
        from bermo.ship.bench.run import BenchSpec
        from bermo.ship.compress.goal import read_wish
        from bermo.ship.compress.run import CompressSpec, compress
        from bermo.training.job import Stopped
        from bermo.verbs.bench import read_numbers
        from bermo.verbs.ending import say_stopped

    spec = CompressSpec(
        run=Path(options.run),
        wish=read_wish(options.latency, options.speedup, options.size),
        train=options.train,
        valid=options.valid,
        folder=options.data,
        vocabulary=tuple(Path(file) for file in options.vocabulary),
        is_quick=options.quick,
        candidates=tuple(Path(folder) for folder in options.candidates),
        is_untrained=options.no_training,
        training=tuple((name, value) for name in TRAINING if (value := getattr(options, name)) is not None),
        limit=options.limit,
        hard=options.hard,
        max_loss=options.max_loss,
        bench=BenchSpec(
            batches=read_numbers("--batch", options.batch),
            lengths=read_numbers("--lengths", options.lengths),
            rounds=options.rounds,
        ),
        threads=options.threads,
    )
    out = Path(options.out or f"{options.run.rstrip('/')}-small")
    try:
        made = compress(spec, out, TerminalDisplay())
    except Stopped as stopped:
        return say_stopped(stopped)
    write_bench_figures(out, made.found, f"{spec.run.name}, made small")
    console = Console(highlight=False)
    console.print(bench_table(made.found))
    console.print(bench_caption(made.found), style="dim")
    console.print(f"\n{made.sentence}", markup=False)
    console.print(f"The model is in {out}/model, the table in {out}/README.md", markup=False)
    return 0 if made.is_met else NOT_MET
