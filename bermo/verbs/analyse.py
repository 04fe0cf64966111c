"""bermo analyse: what a model's layers, heads and vectors do, measured on texts."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from bermo.verbs.importing import importing

HELP = "measure what a model's layers, heads and vectors do"


def add_options(parser: ArgumentParser) -> None:
    parser.usage = "bermo analyse (MODEL … | --model MODEL) (--text FILE | --data FILE) [options]"
    parser.add_argument("models", nargs="*", help="runs or models, measured side by side")
    parser.add_argument("--model", help="one model: a name, a folder, a run, or box")
    parser.add_argument("--text", help="texts: one a line, or .tsv .csv .jsonl .parquet")
    parser.add_argument("--data", help="rows with answers, for scores: a file, a task's folder, or box/TASK")
    parser.add_argument(
        "--measures",
        default="",
        metavar="X,X",
        help="groups: geometry, senses, identity, attention, heads, layers, knowledge [all that can be]",
    )
    parser.add_argument(
        "--out",
        default="look",
        help="folder of the analysis; the same command goes on there [look]",
    )
    parser.add_argument(
        "--senses", metavar="FOLDER", help="folder with SemCor and the test sets of word senses"
    )
    parser.add_argument("--sense-test", default="senseval2", metavar="NAME", help="the test set [senseval2]")
    parser.add_argument(
        "--pairs", metavar="FILE", help="minimal pairs in BLiMP's form [drawn by our grammar]"
    )
    parser.add_argument(
        "--max-texts", type=int, default=1000, help="texts that are read, evenly chosen [1000]"
    )
    parser.add_argument("--max-length", type=int, default=128, help="longest text in tokens [128]")
    parser.add_argument(
        "--rows", type=int, default=128, help="rows of --data that are scored, evenly chosen [128]"
    )
    parser.add_argument(
        "--max-unknown", type=float, default=0.05, help="largest share of unknown tokens [0.05]"
    )
    parser.add_argument(
        "--device",
        choices=("auto", "cpu"),
        default="auto",
        help="auto takes a GPU where there is one",
    )


def run(options: Namespace) -> int:
    with importing():
        from bermo.analyse.parts import Request
        from bermo.analyse.reading import choose
        from bermo.analyse.run import analyse, check_measures
        from bermo.errors import BermoError
        from bermo.report.terminal import TerminalDisplay

    models = [*options.models, *([options.model] if options.model else [])]
    if not models:
        raise BermoError("No model was given. Name runs or models, or one with --model.")
    for name, value in (("max-length", options.max_length), ("rows", options.rows)):
        if value < 4:
            raise BermoError(f"{name} must be at least 4, but got {value}.")
    measures = check_measures([item.strip() for item in options.measures.split(",") if item.strip()])
    request = Request(
        models=tuple(models),
        texts=choose(_texts(options, models[0], measures), options.max_texts),
        measures=measures,
        data=options.data,
        rows=options.rows,
        senses=options.senses,
        test=options.sense_test,
        pairs=options.pairs,
        max_length=options.max_length,
        max_unknown=options.max_unknown,
        device=None if options.device == "auto" else "cpu",
    )
    findings = analyse(request, Path(options.out), TerminalDisplay())
    for section in findings.sections:
        print(f"{section.title}\n  {section.text}\n")
    print(f"The figures are in {Path(options.out) / 'figures.json'}")
    return 0


def _texts(options: Namespace, model: str, measures: tuple[str, ...]) -> list[str]:
    """Read the texts, or those of the labelled rows; some measures need none."""
    from bermo.analyse.labelled import read_labelled, texts_of
    from bermo.analyse.reading import distinct, read_texts
    from bermo.errors import BermoError
    from bermo.runs.trained import open_trained

    if options.text:
        return read_texts(Path(options.text))
    if options.data:
        rows = read_labelled(options.data, open_trained(model).trained)
        return distinct(texts_of(rows), options.data)
    if set(measures) <= {"senses", "knowledge"}:
        return []
    raise BermoError(
        "No text was given. Pass --text with a file of one text a line, or --data with rows that have answers."
    )
