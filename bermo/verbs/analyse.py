"""bermo analyse: what a model's layers, heads and vectors do, measured on texts."""

from dataclasses import dataclass
from pathlib import Path

from bermo.analyse.measures import MEASURES, Measure
from bermo.fields import Rules, option, positional
from bermo.printing import say, wrapped
from bermo.spec import DEVICE_HELP, Device, device_rules
from bermo.verbs.importing import importing
from bermo.verbs.verb import Verb

WITHOUT_TEXTS = {"senses", "knowledge"}
"""Measures that have texts of their own."""


@dataclass(frozen=True, kw_only=True)
class AnalyseOptions:
    """Which models, which measures, on which texts and rows, and where the results go."""

    models: tuple[str, ...] = positional("runs or models, measured side by side", (), is_list=True)
    model: str | None = option(None, "one model: a name, a folder, a run, or box", metavar="MODEL")
    text: Path | None = option(None, "texts: one a line, or .tsv .csv .jsonl .parquet", metavar="FILE")
    data: str | None = option(
        None, "rows with answers, for scores: a file, a task's folder, or box/TASK", metavar="FILE"
    )
    measures: tuple[Measure, ...] | None = option(
        None, "groups of measures", shown="all that can be", metavar="X,X"
    )
    out: Path = option(Path("look"), "folder of the analysis; the same command goes on there")
    senses: str | None = option(None, "folder with SemCor and the test sets of word senses", metavar="FOLDER")
    sense_test: str = option("senseval2", "the test set of word senses", metavar="NAME")
    pairs: str | None = option(
        None, "minimal pairs in BLiMP's form", shown="sentences of our grammar", metavar="FILE"
    )
    max_texts: int = option(1000, "texts that are read, evenly chosen", least=1)
    max_length: int = option(128, "longest text in tokens", least=4)
    rows: int = option(128, "rows of --data that are scored, evenly chosen", least=4)
    max_unknown: float = option(0.05, "largest share of unknown tokens", least=0, most=1)
    device: Device = option("auto", DEVICE_HELP)

    @property
    def all_models(self) -> tuple[str, ...]:
        return self.models + ((self.model,) if self.model else ())

    def rules(self) -> Rules:
        needs_texts = not set(self.measures or MEASURES) <= WITHOUT_TEXTS
        return [
            *device_rules(self.device),
            (bool(self.all_models), "No model was given. Name runs or models, or one with --model."),
            (
                bool(self.text or self.data) or not needs_texts,
                "No text was given. Pass --text with a file of one text a line, or --data with rows that have"
                " answers.",
            ),
        ]


def run(options: AnalyseOptions) -> int:
    from bermo.runs.model_files import resolve_model
    from bermo.verbs.starting import check_files, check_rows, say_start

    check_files(options.text, options.pairs)
    for model in options.all_models:
        resolve_model(model)
    check_rows(options.data)
    say_start("analyse", f"loading {', '.join(options.all_models)}")
    with importing():
        from bermo.analyse.parts import Request
        from bermo.analyse.reading import choose
        from bermo.analyse.run import analyse
        from bermo.report.terminal import TerminalDisplay

    request = Request(
        models=options.all_models,
        texts=choose(_read_texts(options), options.max_texts),
        measures=options.measures or MEASURES,
        data=options.data,
        rows=options.rows,
        senses=options.senses,
        test=options.sense_test,
        pairs=options.pairs,
        max_length=options.max_length,
        max_unknown=options.max_unknown,
        device=None if options.device == "auto" else options.device,
    )
    findings = analyse(request, options.out, TerminalDisplay())
    for section in findings.sections:
        say(f"{section.title}\n{wrapped(section.text, '  ')}\n")
    say(f"The figures are in {options.out / 'figures.json'}")
    return 0


def _read_texts(options: AnalyseOptions) -> list[str]:
    """Read the texts, or those of the rows with answers; some measures need none."""
    from bermo.analyse.labelled import read_labelled, texts_of
    from bermo.analyse.reading import distinct, read_texts
    from bermo.runs.trained import open_trained

    if options.text:
        return read_texts(options.text)
    if options.data:
        rows = read_labelled(options.data, open_trained(options.all_models[0]).trained)
        return distinct(texts_of(rows), options.data)
    return []


VERB = Verb(
    help="measure what a model's layers, heads and vectors do",
    options=AnalyseOptions,
    run=run,
    usage="bermo analyse MODEL … (--text FILE | --data FILE) [options]",
)
