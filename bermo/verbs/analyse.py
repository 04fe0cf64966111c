"""bermo analyse: what a model's layers, heads and vectors do, measured on texts."""

import re
from dataclasses import dataclass
from pathlib import Path

from bermo.analyse.measures import MEASURES, Measure
from bermo.choices import DEVICE_HELP, Device, device_rules
from bermo.fields import Rules, option, positional
from bermo.printing import say, wrapped
from bermo.verbs.importing import importing
from bermo.verbs.verb import Verb

WITHOUT_TEXTS = {"senses", "knowledge", "sentence", "relations"}
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
    map: tuple[str, ...] = option(
        (),
        "words whose uses in the texts are drawn layer by layer, or texts; with --senses, coloured by sense",
        metavar="X,X",
    )
    base: str | None = option(
        None, "the encoder before fine-tuning", shown="as the run says", metavar="MODEL"
    )
    sentence: tuple[str, ...] = option(
        (),
        "a sentence to look at; may be repeated; a tab parts the texts of a pair, [MASK] is a word to guess",
        metavar="TEXT",
        is_repeated=True,
        title="one's own sentence",
    )
    heads: tuple[str, ...] = option(
        (),
        "heads whose attention to the sentence is drawn, as layer.head",
        shown="the most telling ones",
        metavar="3.5,7.1",
        title="one's own sentence",
    )
    corpus: Path | None = option(
        None,
        "texts in which the words' nearest contexts are looked for",
        metavar="FILE",
        title="one's own sentence",
    )
    words: tuple[str, ...] = option(
        (),
        "words of the sentence to look for in --corpus",
        shown="all",
        metavar="X,X",
        title="one's own sentence",
    )
    layer: int | None = option(
        None, "layer of the nearest contexts", shown="the last", least=0, title="one's own sentence"
    )
    trees: str | None = option(None, "a CoNLL-U file, for heads that follow relations", metavar="FILE")
    max_texts: int = option(1000, "texts that are read, evenly chosen", least=1)
    max_length: int = option(128, "longest text in tokens", least=4)
    rows: int = option(128, "rows of --data that are scored, evenly chosen", least=4)
    max_unknown: float = option(0.05, "largest share of unknown tokens", least=0, most=1)
    device: Device = option("auto", DEVICE_HELP)

    @property
    def all_models(self) -> tuple[str, ...]:
        return self.models + ((self.model,) if self.model else ())

    @property
    def wanted(self) -> tuple[Measure, ...]:
        """The groups that were named; of a sentence alone, nothing else is measured."""
        if self.measures:
            return self.measures
        return ("sentence",) if self.sentence and not (self.text or self.data) else MEASURES

    def rules(self) -> Rules:
        own_texts = WITHOUT_TEXTS | ({"map"} if self.senses and "texts" not in self.map else set())
        needs_texts = not set(self.wanted) <= own_texts
        wrong = next(
            (head for head in self.heads if not re.fullmatch(r"[1-9]\d{0,3}\.[1-9]\d{0,3}", head)), None
        )
        alone = {"--heads": self.heads, "--corpus": self.corpus, "--words": self.words, "--layer": self.layer}
        unused = next((flag for flag, value in alone.items() if value not in (None, ())), None)
        return [
            *device_rules(self.device),
            (bool(self.all_models), "No model was given. Name runs or models, or one with --model."),
            (
                bool(self.text or self.data) or not needs_texts,
                "No text was given. Pass --text with a file of one text a line, or --data with rows that have"
                " answers.",
            ),
            (
                bool(self.sentence) or "sentence" not in (self.measures or ()),
                'The measure "sentence" needs a sentence. Give one with --sentence "…".',
            ),
            (
                not self.sentence or "sentence" in self.wanted,
                "--sentence was given, but --measures leaves it out. Add sentence to --measures.",
            ),
            (
                bool(self.sentence) or unused is None,
                f'{unused} is about a sentence, but none was given. Give one with --sentence "…".',
            ),
            (
                self.base is None or "tuned" in self.wanted,
                "--base is about fine-tuning's effect. Add tuned to --measures, or leave it out.",
            ),
            (
                bool(self.map) or "map" not in (self.measures or ()),
                "The measure map needs words, or the word texts. Give them with --map.",
            ),
            (
                not self.map or "map" in self.wanted,
                "--map was given, but --measures leaves it out. Add map to --measures.",
            ),
            (
                len(self.map) < 2 or "texts" not in self.map,
                'Whole texts and words cannot be on one map. Give --map texts, or words without "texts".',
            ),
            (
                wrong is None,
                f'--heads takes heads as layer.head, both counted from 1, such as 3.5, but got "{wrong}".',
            ),
            (
                self.corpus is not None or not (self.words or self.layer is not None),
                "--words and --layer are about the nearest contexts. Name a file of texts with --corpus.",
            ),
        ]


def run(options: AnalyseOptions) -> int:
    from bermo.runs.model_files import resolve_model
    from bermo.verbs.starting import check_files, check_rows, say_start

    check_files(options.text, options.pairs, options.corpus, options.trees)
    for model in options.all_models:
        resolve_model(model)
    if options.base is not None:
        resolve_model(options.base)
    check_rows(options.data)
    say_start("analyse", f"loading {', '.join(options.all_models)}")
    with importing():
        from bermo.analyse.reading import choose, read_texts
        from bermo.analyse.run import analyse
        from bermo.analyse.subject import Request
        from bermo.report.console import PlainConsole
        from bermo.report.sentence import print_sentences
        from bermo.report.terminal import TerminalDisplay

    request = Request(
        models=options.all_models,
        texts=choose(_read_texts(options), options.max_texts),
        measures=options.wanted,
        data=options.data,
        rows=options.rows,
        senses=options.senses,
        test=options.sense_test,
        pairs=options.pairs,
        trees=options.trees,
        max_trees=options.max_texts if options.trees else None,
        max_length=options.max_length,
        max_unknown=options.max_unknown,
        device=None if options.device == "auto" else options.device,
        base=options.base,
        map=options.map,
        sentences=options.sentence,
        heads=options.heads,
        corpus=choose(read_texts(options.corpus), options.max_texts) if options.corpus else (),
        words=options.words,
        layer=options.layer,
    )
    findings = analyse(request, options.out, TerminalDisplay())
    for section in findings.sections:
        said = "\n".join(wrapped(part, "  ") for part in section.text.split("\n\n"))
        say(f"{section.title}\n{said}\n")
        if section.title == "Sentences":
            print_sentences(section, PlainConsole())
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
    usage="bermo analyse MODEL … (--text FILE | --data FILE | --sentence X) …",
)
