"""bermo probe: what each layer knows of surface, syntax, meaning; frozen, or fine-tuned as in the paper."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bermo.errors import BermoError
from bermo.fields import Rules, check, option, positional
from bermo.methods.probing.spec import ProbeKind, ProbeSpec, Protocol
from bermo.printing import number_of, say, wrapped
from bermo.spec import Pieces, Pooling, Precision
from bermo.verbs.ending import is_main_process, say_stopped
from bermo.verbs.importing import importing
from bermo.verbs.recipe import change_fields
from bermo.verbs.several import models_of
from bermo.verbs.verb import Verb

if TYPE_CHECKING:
    from bermo.methods.probing.paired import Known
    from bermo.report.terminal import TerminalDisplay

FROZEN, FINETUNE = "--protocol frozen", "--protocol finetune"
ONLY: dict[Protocol, dict[str, str]] = {
    "frozen": {
        "layers": "layers",
        "probe": "probe",
        "pooling": "pooling",
        "controls": "no-controls",
        "batch_size": "batch-size",
    },
    "finetune": {"seeds": "seeds", "epochs": "epochs"},
}
"""Fields that one protocol alone has a use for, and their flags."""
WORDS = "--words"
OF_WORDS = ("pieces", "rank")
NOT_OF_WORDS = ("data", "pooling", "cache")
"""Fields that only probes of words have a use for, and those that they have none for."""


@dataclass(frozen=True, kw_only=True)
class ProbeOptions:
    """What is probed, on which sentences, how, and where the results go; None is the protocol's default."""

    changes: tuple[str, ...] = positional(
        "finetune: change a field in every arm, as in bermo run",
        (),
        metavar="dotted.field=value",
        is_list=True,
    )
    model: str = option(
        "box", "a name, a folder, a run, or box; frozen: several, parted by commas", metavar="MODEL"
    )
    tasks: str = option(
        "all",
        "all, surface, syntactic, semantic, or names: tense,… (with --words: upos,…)",
        metavar="NAME,NAME",
    )
    data: Path | None = option(
        None, "folder of SentEval's or X-Probe's files; default: generated sentences", metavar="FOLDER"
    )
    protocol: Protocol = option(
        "frozen", "probes on frozen layers, or the paper's fine-tuning of plain and mix"
    )
    limit: int | None = option(None, "use so many training sentences", least=20)
    lowercase: Literal["off"] | None = option(None, "off keeps capitals that an uncased vocabulary lacks")
    max_unknown: float = option(0.05, "largest share of unknown tokens", least=0, most=1)
    precision: Precision | None = option(None, "arithmetic; default: fp32 if frozen, else bf16")
    cache: str | None = option(None, "folder of vectors and tokens", metavar="FOLDER")
    out: Path | None = option(
        None,
        "folder of the results; the same command goes on there",
        shown="runs/probe-PROTOCOL or runs/probe-words",
    )
    layers: Literal["all"] | tuple[int, ...] | None = option(
        None, "all, or such as 0,6,-1", shown="all", title=FROZEN, metavar="N,N"
    )
    probe: ProbeKind | None = option(
        None, "logistic regression, or one hidden layer of 50", shown="linear", title=FROZEN
    )
    pooling: Pooling | None = option(
        None, "the token or mean that a text is read from; default: the family's token", title=FROZEN
    )
    controls: bool | None = option(
        None, "leave out the control task and the untrained encoder", "no-controls", title=FROZEN
    )
    batch_size: int | None = option(None, "texts at a time", shown="64", title=FROZEN, least=1)
    words: tuple[Path, ...] | None = option(
        None,
        "files or folders of labelled words: CoNLL-U (.conllu) or columns",
        title=WORDS,
        metavar="FILE,FILE",
    )
    pieces: Pieces | None = option(
        None, "a word's vector: the mean of its pieces, or the first", shown="mean", title=WORDS
    )
    rank: int | None = option(
        None, "of trees: dimensions of the probe", shown="64", title=WORDS, least=1, most=1024
    )
    seeds: str | None = option(
        None, "how many, or which", shown="63,77,9,96,39", title=FINETUNE, metavar="N,N"
    )
    epochs: float | None = option(None, "passes over the training rows", shown="3", title=FINETUNE, over=0)

    @property
    def frozen(self) -> ProbeSpec:
        """The options of frozen probes, with their defaults for what was not given."""
        names = ("probe", "pooling", "controls", "batch_size", "precision", "max_unknown", "cache", *OF_WORDS)
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        layers = self.layers if isinstance(self.layers, tuple) else None
        return ProbeSpec(**given, layers=layers)

    def rules(self) -> Rules:
        is_frozen = self.protocol == "frozen"
        others = ONLY["finetune" if is_frozen else "frozen"]
        wrong = [flag for name, flag in others.items() if getattr(self, name) is not None]
        return [
            (
                not (is_frozen and self.changes),
                f'"{"".join(self.changes[:1])}" changes a training, and frozen probes have none. Leave it'
                " out, or pass --protocol finetune.",
            ),
            (
                is_frozen or not self.words,
                "--words has frozen probes alone. Leave out --protocol finetune.",
            ),
            *_words_rules(self),
            (
                not wrong,
                f"--{''.join(wrong[:1])} means nothing to --protocol {self.protocol}. Leave it out.",
            ),
        ]


def _words_rules(options: ProbeOptions) -> Rules:
    """Refuse options that mean nothing with or without --words."""
    unused = NOT_OF_WORDS if options.words else OF_WORDS
    given = [name for name in unused if getattr(options, name) is not None]
    sentence = "means nothing to tasks of words" if options.words else "needs --words with a file"
    return [(not given, f"--{''.join(given[:1])} {sentence}. Leave it out.")]


def run(options: ProbeOptions) -> int:
    from bermo.report.terminal import TerminalDisplay
    from bermo.runs.model_files import resolve_model

    display, models = TerminalDisplay(), models_of(options.model)
    if len(models) > 1 and options.protocol == "finetune":
        raise BermoError(
            f'--protocol finetune trains one model, but --model has "{options.model}". Give one.'
        )
    for model in models.values():
        resolve_model(model)
    out = options.out or Path(f"runs/probe-{'words' if options.words else options.protocol}")
    if len(models) == 1:
        return _probe(replace(options, out=out), display)
    for name, model in models.items():
        if code := _probe(replace(options, model=model, out=out / name), display):
            return code
    say(f"One page of all models: bermo report {out}")
    return 0


def _probe(options: ProbeOptions, display: "TerminalDisplay") -> int:
    """Probe one model, into the folder that the options name."""
    from bermo.data.probing import choose_tasks
    from bermo.runs.model_files import warn_diverged
    from bermo.verbs.starting import say_start

    assert options.out is not None
    if options.words:
        return _words(options, options.words, options.out, display)
    tasks = choose_tasks(options.tasks)
    say_start("probe", f"{options.model}, {number_of(len(tasks), 'task')}, {options.protocol}")
    if options.protocol == "frozen":  # a training of the other says it itself
        warn_diverged(options.model, display.tell)
    if options.data is not None:
        tasks = _with_files(tasks, options.data.expanduser(), display)
    return (_frozen if options.protocol == "frozen" else _finetune)(options, tasks, options.out, display)


def _words(options: ProbeOptions, paths: tuple[Path, ...], out: Path, display: "TerminalDisplay") -> int:
    from bermo.runs.model_files import warn_diverged
    from bermo.verbs.probe_words import run_words
    from bermo.verbs.starting import say_start

    say_start("probe", f"{options.model}, words of {', '.join(map(str, paths))}")
    warn_diverged(options.model, display.tell)
    return run_words(
        model=options.model,
        paths=paths,
        tasks=options.tasks,
        limit=options.limit,
        lowercase=options.lowercase,
        spec=options.frozen,
        out=out,
        display=display,
    )


def _with_files(tasks: list[str], folder: Path, display: "TerminalDisplay") -> list[str]:
    """Return the tasks whose files are in the folder; none of them is an error."""
    from bermo.data.probing import has_files

    if not folder.is_dir():
        raise BermoError(f"There is no folder {folder}. Give the one with SentEval's or X-Probe's files.")
    missing = [task for task in tasks if not has_files(task, folder)]
    if len(missing) == len(tasks):
        raise BermoError(
            f"{folder} holds no file of {', '.join(tasks)}. Expected such as past_present.txt (SentEval) or"
            " past_present/ (X-Probe)."
        )
    if missing:
        display.tell(f"{folder} has no file of {', '.join(missing)}: left out.")
    return [task for task in tasks if task not in missing]


def _frozen(options: ProbeOptions, tasks: list[str], out: Path, display: "TerminalDisplay") -> int:
    with importing("training"):
        from bermo.data.probing import read_probe
        from bermo.figures.data import write_findings
        from bermo.methods.probing.frozen import Probed, claim_folder, data_digest, layer_names, probe_task
        from bermo.methods.probing.results import read_probed, write_probed
        from bermo.report.frozen_probes import frozen_findings, frozen_table
        from bermo.report.probe_table import print_table
        from bermo.vectors import load_encoder

    spec = options.frozen
    encoder = load_encoder(options.model, lowercase=options.lowercase)
    untrained = (
        load_encoder(options.model, untrained_seed=1, lowercase=options.lowercase) if spec.controls else None
    )
    # A layer that does not exist is an error before the folder is claimed.
    layer_names(encoder, spec)
    pooling = spec.pooling or encoder.pooling
    asked: dict[str, Any] = {
        "model": encoder.fingerprint,
        "data": options.data and options.data.name,
        "limit": options.limit,
        "probe": spec.probe,
        "pooling": pooling,
        "layers": "all" if spec.layers is None else ",".join(map(str, spec.layers)),
        "controls": spec.controls,
        "precision": spec.precision,
    }
    claim_folder(out, asked)
    results = []
    for task in tasks:
        data = read_probe(task, options.data and options.data.expanduser(), options.limit)
        probed = read_probed(out / f"{task}.json", Probed, data_digest(data))
        if probed is None:
            display.tell(f"{task}: {', '.join(data.notes) or f'{len(data.train):,} sentences'}")
            probed = probe_task(encoder, untrained, data, spec, display)
            write_probed(out / f"{task}.json", probed)
        results.append(probed)
    facts = _facts(options, encoder.name) | {
        "layers": str(encoder.num_layers),
        "probe": spec.probe,
        "pooling": str(pooling),
    }
    write_findings(out / "figures.json", frozen_findings(results, facts))
    print_table(frozen_table(results))
    say(f"\nThe figures are in {out}/figures.json")
    return 0


def _facts(options: ProbeOptions, model: str) -> dict[str, str]:
    """What the head of a page says about a probing."""
    return {
        "model": model,
        "data": str(options.data or "generated sentences"),
        "case": "kept" if options.lowercase else "as the tokenizer has it",
    }


def _finetune(options: ProbeOptions, tasks: list[str], out: Path, display: "TerminalDisplay") -> int:
    from bermo.recipes.probing import PAPER, probing_of
    from bermo.verbs.starting import check_before

    experiment = change_fields(probing_of(tasks), [*_changes(options), *options.changes])
    for name, spec in experiment.arms.items():
        check_before(check(spec), out / name)
    with importing("training"):
        from bermo.figures.data import write_findings
        from bermo.methods.finetune import finetune
        from bermo.methods.probing.paired import compare
        from bermo.report.finetuned_probes import finetune_findings, finetune_table
        from bermo.report.probe_table import print_table
        from bermo.training.job import Stopped

    results = {}
    for name, spec in experiment.arms.items():
        display.tell(f"\n{name}")
        try:
            results[name] = finetune(spec, out / name, display)
        except Stopped as stopped:
            return say_stopped(stopped)
    if is_main_process():
        known = {} if options.data is None else {task: _known(task, options.data) for task in tasks}
        compared = compare(results, known)
        num_seeds = len(next(iter(results.values())).seeds)
        facts = _facts(options, options.model) | {"seeds": str(num_seeds)}
        write_findings(out / "figures.json", finetune_findings(compared, results, PAPER, facts))
        print_table(finetune_table(compared, PAPER))
        say(f"\n{wrapped(compared.verdict)}\nThe figures are in {out}/figures.json")
    return 0


def _changes(options: ProbeOptions) -> list[str]:
    """The options as changes of the recipe, those that were given or have a default."""
    given = {
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
    return [f"{dotted}={value}" for dotted, value in given.items() if value is not None]


def _known(task: str, folder: Path) -> "Known":
    """What the rows of a task tell before any training."""
    from bermo.data.probing import read_probe
    from bermo.methods.probing.paired import Known

    data = read_probe(task, folder.expanduser())
    return Known(largest_class=data.largest_class, doubt=data.doubt)


VERB = Verb(help="probe what each layer knows", options=ProbeOptions, run=run)
