"""bermo atlas: every compression method on one's own model, in one table and on one page."""

from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bermo.atlas.spec import AtlasSpec
from bermo.fields import check, group, leaves, option
from bermo.jobs.spec import SpreadSpec
from bermo.printing import say, wrapped
from bermo.spec import LARGEST_SEED, DataSpec, ModelSpec, RunSpec, TrainSpec
from bermo.verbs import compress, export, shrink, train
from bermo.verbs.importing import importing
from bermo.verbs.options import add_options, read_options
from bermo.verbs.verb import Verb

if TYPE_CHECKING:
    from bermo.atlas.checks import Rows
    from bermo.atlas.rows import Atlas
    from bermo.atlas.run import Asked

STAGES = {"train": train.VERB, "shrink": shrink.VERB, "export": export.VERB, "compress": compress.VERB}
"""The verbs that methods are chains of."""
FAILED, NOT_MET = 1, 3


@dataclass(frozen=True, kw_only=True)
class AtlasOptions:
    """What is compared, where; and what the dense model is."""

    atlas: AtlasSpec = AtlasSpec()
    out: Path = option(Path("runs/atlas"), "folder of all methods; the same command goes on there")
    spread: SpreadSpec = group(SpreadSpec(), "side by side")
    model: ModelSpec = group(ModelSpec(), "the model")
    data: DataSpec = group(DataSpec(), "the data")
    train: TrainSpec = group(TrainSpec(), "training")
    seeds: tuple[int, ...] = option(
        (1,), "how many seeds (5), or which (9,25,39)", title="seeds", least=0, most=LARGEST_SEED
    )

    @property
    def spec(self) -> RunSpec:
        """The dense run; what is pruned, taught and quantised the methods say."""
        return check(RunSpec(model=self.model, data=self.data, train=self.train, seeds=self.seeds))


def run(options: AtlasOptions) -> int:
    from bermo.atlas.checks import IDENTITY, check_folder, check_options, identity, read_rows, tiny_form
    from bermo.atlas.methods import choose
    from bermo.jobs.engines import check_engine
    from bermo.runs.kept_options import locked_for
    from bermo.verbs.starting import check_before, check_files, data_name, say_start

    spec, run, out = options.atlas, options.spec, options.out
    check_options(spec, run)
    names = choose(spec.methods, spec.tiny)
    if spec.tiny:
        spec, run = tiny_form(spec, run)
    check_engine(options.spread)
    check_files(run.data.train, run.data.valid, spec.unlabelled)
    # A folder that no method has.
    check_before(run, out / "run")
    check_folder(out)
    say_start("atlas", f"{len(names)} methods into {out}; reading {data_name(run.data)}")
    rows = read_rows(run.data)
    if spec.unlabelled is not None:
        rows = _with_unlabelled(rows, Path(spec.unlabelled), run.data)
    with locked_for(out, IDENTITY, identity(spec, run, rows), leaves(RunSpec)):
        with importing():
            from bermo.atlas.run import Asked

        retries = options.spread.retries if options.spread.on else 0
        asked = Asked(names=tuple(names), spec=spec, run=run, out=out, retries=retries)
        return _make(asked, rows, options.spread)


def _with_unlabelled(rows: "Rows", path: Path, data: DataSpec) -> "Rows":
    """Return the rows with texts that have no labels."""
    with importing():
        from bermo.data.rows import TextRows
        from bermo.data.unlabelled import read_unlabelled

    unlabelled = read_unlabelled(path.expanduser(), rows.data, data.text, data.separator_character)
    assert isinstance(unlabelled, TextRows)
    return replace(rows, unlabelled=unlabelled)


def _make(asked: "Asked", rows: "Rows", spread: SpreadSpec) -> int:
    """Make and measure everything, or a part of it; print what came out."""
    with importing():
        from bermo.atlas.run import AtlasRun
        from bermo.jobs.engines import make_executor
        from bermo.jobs.here import Here
        from bermo.report.terminal import TerminalDisplay

    work = AtlasRun(asked, rows, TerminalDisplay())
    executor = make_executor(spread, asked.out) if spread.on else Here(call)
    made = work.make(executor)
    if asked.spec.only is None:
        return _show(asked, work.measure(made.left_out))
    if asked.spec.only == "export":
        work.score(executor.room if spread.on == "local" else 1)
    for name, reason in work.failed.items():
        say(wrapped(f"{name} failed. {reason}"))
    left = f" Left out by the budget: {', '.join(made.left_out)}." if made.left_out else ""
    say(wrapped(f"What was made is in {asked.out}.{left} The same command without --only goes on."))
    return FAILED if work.failed else 0


def _show(asked: "Asked", atlas: "Atlas") -> int:
    """Pick, write all files, print the table; return the exit code."""
    from bermo.atlas.figures import write_figures
    from bermo.atlas.pick import pick_from, read_pick
    from bermo.atlas.rows import write_atlas
    from bermo.atlas.run import keep_picked
    from bermo.atlas.table import print_atlas
    from bermo.report.console import PlainConsole

    is_met = True
    if asked.spec.pick is not None:
        picked = pick_from(read_pick(asked.spec.pick), atlas)
        is_met = picked.row is not None
        if picked.row is not None:
            keep_picked(picked.row, asked.out)
        atlas = replace(atlas, picked=picked.sentence)
    write_atlas(asked.out / "atlas.json", atlas)
    write_figures(asked.out, atlas)
    console = PlainConsole()
    print_atlas(atlas, console)
    if atlas.picked is not None:
        place = f" It is in {asked.out}/picked." if is_met else ""
        console.print(f"\n{atlas.picked}{place}", markup=False)
    console.print(
        f"\nEverything is in {asked.out}/atlas.json, the page is {asked.out}/page.html", markup=False
    )
    return FAILED if atlas.failed else 0 if is_met else NOT_MET


def call(words: Sequence[str]) -> int:
    """Run a command of a method in this process."""
    verb = STAGES[words[0]]
    parser = ArgumentParser(prog=f"bermo {words[0]}", allow_abbrev=False)
    add_options(parser, verb.options)
    return verb.run(read_options(verb.options, parser.parse_args(list(words[1:]))))


VERB = Verb(
    help="every compression method on your model: one table, one page, one pick",
    options=AtlasOptions,
    run=run,
    usage="bermo atlas --train FILE --valid FILE [--model NAME] [options]\n"
    "       bermo atlas --tiny [options]",
)
