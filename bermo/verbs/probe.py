"""bermo probe: what each layer knows of surface, syntax and meaning; frozen, or fine-tuned as in the paper."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bermo.errors import BermoError
from bermo.verbs.ending import is_main_process, say_stopped
from bermo.verbs.importing import importing

if TYPE_CHECKING:
    from bermo.methods.probing.paired import Known
    from bermo.report.terminal import TerminalDisplay

HELP = "probe what each layer knows"
ONLY = {
    "frozen": ("layers", "probe", "pooling", "no_controls", "batch_size"),
    "finetune": ("seeds", "epochs"),
}
"""Options that one protocol alone has a use for."""


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "changes",
        nargs="*",
        metavar="dotted.field=value",
        help="finetune: change a field in every arm, as in bermo run",
    )
    parser.add_argument("--model", default="box", help="a name, a folder, a run, or box [box]")
    parser.add_argument(
        "--tasks", default="all", help="all, surface, syntactic, semantic, or names: tense,… [all]"
    )
    parser.add_argument(
        "--data", help="folder of SentEval's or X-Probe's files; default: generated sentences"
    )
    parser.add_argument(
        "--protocol",
        default="frozen",
        choices=("frozen", "finetune"),
        help="probes on frozen layers, or the paper's fine-tuning of plain and mix [frozen]",
    )
    parser.add_argument("--layers", help="frozen: all, or such as 0,6,-1 [all]")
    parser.add_argument(
        "--probe",
        choices=("linear", "hidden"),
        help="frozen: logistic regression, or one hidden layer of 50 [linear]",
    )
    parser.add_argument(
        "--pooling",
        choices=("first", "last", "mean"),
        help="frozen: what speaks for a text; default: the family's token",
    )
    parser.add_argument(
        "--no-controls",
        action="store_true",
        default=None,
        help="frozen: leave out the control task and the untrained encoder",
    )
    parser.add_argument("--limit", type=int, help="use so many training sentences")
    parser.add_argument(
        "--lowercase", choices=("off",), help="off keeps capitals that an uncased vocabulary lacks"
    )
    parser.add_argument(
        "--max-unknown", type=float, default=0.05, help="largest share of unknown tokens [0.05]"
    )
    parser.add_argument(
        "--precision",
        choices=("fp32", "bf16", "fp16"),
        help="arithmetic [frozen: fp32, finetune: bf16]",
    )
    parser.add_argument("--batch-size", type=int, help="frozen: texts at a time [64]")
    parser.add_argument("--seeds", help="finetune: how many, or which [63,77,9,96,39]")
    parser.add_argument("--epochs", help="finetune: passes over the training rows [3]")
    parser.add_argument("--cache", help="folder of vectors and tokens")
    parser.add_argument(
        "--out", help="folder of the results; the same command goes on there (runs/probe-PROTOCOL)"
    )


def run(options: Namespace) -> int:
    from bermo.data.probing import choose_tasks, has_files
    from bermo.report.terminal import TerminalDisplay

    tasks = choose_tasks(options.tasks)
    if options.changes and options.protocol == "frozen":
        raise BermoError(
            f'"{options.changes[0]}" changes a training, and frozen probes have none. Leave it out, or'
            " pass --protocol finetune."
        )
    for name in ONLY["finetune" if options.protocol == "frozen" else "frozen"]:
        if getattr(options, name) is not None:
            raise BermoError(
                f"--{name.replace('_', '-')} means nothing to --protocol {options.protocol}. Leave it out."
            )
    if options.limit is not None and options.limit < 20:
        raise BermoError(f"limit must be at least 20 sentences, but got {options.limit}.")
    display = TerminalDisplay()
    if options.data is not None:
        folder = Path(options.data).expanduser()
        if not folder.is_dir():
            raise BermoError(f"There is no folder {folder}. Give the one with SentEval's or X-Probe's files.")
        missing = [task for task in tasks if not has_files(task, folder)]
        if len(missing) == len(tasks):
            raise BermoError(
                f"{folder} holds no file of {', '.join(tasks)}. Expected such as past_present.txt (SentEval) or past_present/ (X-Probe)."
            )
        if missing:
            display.tell(f"{folder} has no file of {', '.join(missing)}: left out.")
        tasks = [task for task in tasks if task not in missing]
    out = Path(options.out or f"runs/probe-{options.protocol}")
    return (_frozen if options.protocol == "frozen" else _finetune)(options, tasks, out, display)


def _frozen(options: Namespace, tasks: list[str], out: Path, display: "TerminalDisplay") -> int:
    with importing():
        from bermo.data.probing import read_probe
        from bermo.figures.data import write_findings
        from bermo.methods.probing.frozen import (
            ProbeSpec,
            claim_folder,
            data_digest,
            layer_names,
            probe_task,
            read_probed,
            write_probed,
        )
        from bermo.report.probing import frozen_findings, frozen_table, print_table
        from bermo.spec import parse
        from bermo.vectors import load_encoder

    asked_layers = options.layers or "all"
    layers = None if asked_layers == "all" else parse(tuple[int, ...], asked_layers, "--layers")
    spec = ProbeSpec(
        probe=options.probe or "linear",
        pooling=options.pooling,
        layers=layers,
        controls=not options.no_controls,
        batch_size=options.batch_size or 64,
        precision=options.precision or "fp32",
        max_unknown=options.max_unknown,
        cache=options.cache,
    )
    encoder = load_encoder(options.model, lowercase=options.lowercase)
    untrained = (
        None
        if options.no_controls
        else load_encoder(options.model, untrained_seed=1, lowercase=options.lowercase)
    )
    asked: dict[str, Any] = {
        "model": encoder.fingerprint,
        "data": options.data and Path(options.data).name,
        "limit": options.limit,
        "probe": spec.probe,
        "pooling": spec.pooling or encoder.pooling,
        "layers": asked_layers,
        "controls": spec.controls,
        "precision": spec.precision,
    }
    layer_names(encoder, spec)  # one that is not there is an error
    claim_folder(out, asked)
    found = []
    folder = None if options.data is None else Path(options.data).expanduser()
    for task in tasks:
        data = read_probe(task, folder, options.limit)
        probed = read_probed(out / f"{task}.json", data_digest(data))
        if probed is None:
            display.tell(f"{task}: {', '.join(data.notes) or f'{len(data.train):,} sentences'}")
            probed = probe_task(encoder, untrained, data, spec, display)
            write_probed(out / f"{task}.json", probed)
        found.append(probed)
    facts = {
        "model": encoder.name,
        "layers": str(encoder.num_layers),
        "data": options.data or "generated sentences",
        "probe": spec.probe,
        "pooling": str(asked["pooling"]),
        "case": "kept" if options.lowercase else "as the tokenizer has it",
    }
    write_findings(out / "figures.json", frozen_findings(found, facts))
    print_table(frozen_table(found))
    print(f"\nThe figures are in {out}/figures.json")
    return 0


def _finetune(options: Namespace, tasks: list[str], out: Path, display: "TerminalDisplay") -> int:
    with importing():
        from bermo.figures.data import write_findings
        from bermo.methods.finetune import finetune
        from bermo.methods.probing.paired import compare
        from bermo.recipes import change
        from bermo.recipes.probing import PAPER, probing_of
        from bermo.report.probing import finetune_findings, finetune_table, print_table
        from bermo.runs.folder import check_free
        from bermo.spec import check
        from bermo.training.job import Stopped

    experiment = probing_of(tasks)
    changes = {
        "model.backbone": options.model,
        "data.folder": options.data,
        "data.limit": options.limit,
        "data.lowercase": options.lowercase,
        "data.max_unknown": options.max_unknown,
        "data.cache": options.cache,
        "train.precision": options.precision,
        "train.epochs": options.epochs,
        "seeds": options.seeds,
    }
    for dotted, value in changes.items():
        if value is not None:
            experiment = change(experiment, dotted, str(value))
    for text in options.changes:
        dotted, equals, value = text.partition("=")
        if not equals:
            raise BermoError(f'"{text}" is no change. Write dotted.field=value: train.lr=1e-4.')
        experiment = change(experiment, dotted, value)
    for name, one in experiment.arms.items():
        check_free(out / name, check(one))
    results = {}
    for name, one in experiment.arms.items():
        display.tell(f"\n{name}")
        try:
            results[name] = finetune(one, out / name, display)
        except Stopped as stopped:
            return say_stopped(stopped)
    if is_main_process():
        known = {} if options.data is None else {task: _known(task, options.data) for task in tasks}
        compared = compare(results, known)
        facts = {
            "model": options.model,
            "data": options.data or "generated sentences",
            "seeds": str(len(next(iter(results.values())).seeds)),
            "case": "kept" if options.lowercase else "as the tokenizer has it",
        }
        write_findings(out / "figures.json", finetune_findings(compared, results, PAPER, facts))
        print_table(finetune_table(compared, PAPER))
        print(f"\n{compared.verdict}\nThe figures are in {out}/figures.json")
    return 0


def _known(task: str, folder: str) -> "Known":
    """What the rows of a task tell before any training."""
    from bermo.data.probing import read_probe
    from bermo.methods.probing.paired import Known

    data = read_probe(task, Path(folder).expanduser())
    return Known(largest_class=data.largest_class, doubt=data.doubt)
