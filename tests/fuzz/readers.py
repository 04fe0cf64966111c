"""Every reader of files and texts that came from a user, as a function of a folder that holds its input."""

import io
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bermo.atlas.measure import read_measured
from bermo.cli import build_parser
from bermo.data.apart import read_apart
from bermo.data.inputs import input_names, input_rows, text_blocks
from bermo.data.load import own_task
from bermo.data.objects import parse_json
from bermo.data.own import read_own
from bermo.data.pairs import read_pairs
from bermo.data.pretrain.documents import read_fragments
from bermo.data.probing import FILES, has_files, read_probe
from bermo.data.questions import read_questions
from bermo.data.senses import find_senses, read_semcor, read_test
from bermo.data.tagged import read_tagged
from bermo.data.text import read_text
from bermo.data.word_tasks import choose_word_tasks, open_source, read_word_task
from bermo.encoders.backbone import load_encoder, load_tokenizer
from bermo.encoders.pooling import trained_pooling
from bermo.errors import BermoError
from bermo.estimators.trained import read_saved
from bermo.fields import check
from bermo.jobs.job import job_state, make_job, read_failure
from bermo.jobs.journal import Journal
from bermo.jobs.search import open_study
from bermo.methods.probing.frozen import Probed
from bermo.methods.probing.results import read_probed
from bermo.models.sentence import settings_of
from bermo.pretrain_spec import PretrainSpec
from bermo.recipes import RECIPES
from bermo.report.collect import collect
from bermo.report.console import PlainConsole
from bermo.report.overview import runs_findings
from bermo.report.page import to_page
from bermo.report.terminal import results_table
from bermo.runs.folder import check_free, identity, read_run_spec, with_choices
from bermo.runs.holder import HOLDER, read_holder
from bermo.runs.model_files import divergence, read_export
from bermo.runs.reading import reading_in
from bermo.runs.trained import open_sentence_encoder, open_trained
from bermo.ship.bench.run import read_bench
from bermo.ship.runtimes.embed import read_vectors
from bermo.ship.runtimes.sparse import read_sparse
from bermo.ship.serve.asked import read_asked
from bermo.ship.serve.spec import ServeSpec
from bermo.spec import DataSpec, RunSpec
from bermo.sums import check_sums
from bermo.training.checkpoint import find_last
from bermo.values import from_dict
from bermo.verbs import VERBS
from bermo.verbs.options import read_options, take_words
from bermo.verbs.recipe import change_fields

MOST_WORDS = 5000
"""Words of a command; argparse takes longer than it may where there are ten thousands of options."""
MOST_READ = 1 << 22
"""Characters of documents: a file of a few kilobytes may unpack to millions of short lines."""
MARKUP = ("<script>alert", "<svg onload")
"""Markup of texts that a page must hold only escaped."""


@dataclass(frozen=True)
class Reader:
    """A reader, and how many inputs of it the suite tries: those that load models take long."""

    read: Callable[[Path], object]
    in_suite: int = 60
    needs: str = ""
    """The package of an extra."""

    @property
    def is_installed(self) -> bool:
        """Whether what it needs is there."""
        return not self.needs or find_spec(self.needs) is not None


def _only(folder: Path) -> Path:
    return next(path for path in folder.iterdir() if path.is_file())


def _table(folder: Path) -> None:
    """Read a table for training, and again in blocks for answers."""
    path = _only(folder)
    blocks = text_blocks(path, own_task("classification"), (), 3)
    try:
        for block in blocks:
            input_rows(block, own_task("classification"), input_names(block, own_task("classification"), ()))
    except BermoError:
        pass
    read_own(DataSpec(task="own", train=str(path), valid=str(path)))


def _words(folder: Path) -> None:
    """Read labelled words as `probe --words` does: every usual task that the file has."""
    for task, source in choose_word_tasks("all", [open_source(_only(folder), 20)]):
        read_word_task(task, source)


def _overrides(folder: Path) -> None:
    experiment = RECIPES["demo"]()
    for line in _only(folder).read_text(encoding="utf-8", errors="replace").splitlines()[:20]:
        experiment = change_fields(experiment, [line])
    for spec in experiment.arms.values():
        check(spec)


@cache
def _parser() -> Any:
    return build_parser()[0]


def _command(folder: Path) -> None:
    """Read the words of a command, one a line, as options; --help, which ends the process, is fine."""
    words = _only(folder).read_text(encoding="utf-8", errors="replace").split("\n")[:MOST_WORDS]
    try:
        parsed, rest = _parser().parse_known_args(words)
    except SystemExit:
        return
    if parsed.verb is not None:
        kind = VERBS[parsed.verb].options
        take_words(kind, parsed, rest)
        read_options(kind, parsed)


def _spec(folder: Path) -> None:
    path = _only(folder)
    values = parse_json(path, read_text(path))
    if not isinstance(values, dict):
        raise BermoError("no object")
    # The rules of a pretraining look for its files.
    from_dict(PretrainSpec, values) if "pace" in values else check(from_dict(RunSpec, values))


def _run(folder: Path) -> None:
    """Read a run's folder as `report` does, and as the same command does that goes on."""
    _each(
        lambda: read_run_spec(folder),
        lambda: check_free(folder, RunSpec()),
        lambda: identity(with_choices(folder, RunSpec()), "0", 1, folder),
        lambda: divergence(folder),
    )
    collected = collect([folder])
    _check_page(to_page([runs_findings(collected.runs), *collected.findings], "runs"))
    results = {run.name: run.result for run in collected.runs if run.result is not None}
    printed = io.StringIO()
    PlainConsole(file=printed, force_terminal=False).print(results_table(results))
    assert "\x1b" not in printed.getvalue(), "a control of the terminal was printed"


def _each(*reads: Callable[[], object]) -> None:
    """Call all of them, also those after one that refuses."""
    for read in reads:
        try:
            read()
        except BermoError:
            continue


def _figures(folder: Path) -> None:
    _check_page(to_page(collect([folder]).findings, "figures"))


def _check_page(page: str) -> None:
    for markup in MARKUP:
        assert markup not in page, f"{markup} is on the page"


def _model(folder: Path) -> None:
    """Open a trained model's folder and its tokenizer."""
    _each(lambda: divergence(folder), lambda: trained_pooling(folder), lambda: read_saved(folder))
    _each(lambda: _recorded(folder))
    opened = open_trained(folder)
    opened.load_tokenizer()
    assert opened.has_segments in (True, False)
    assert math.isfinite(opened.num_bytes)
    load_tokenizer(folder, "off")


def _recorded(folder: Path) -> None:
    """Read what an export records of how it reads texts, and the tokenizer that it does so with."""
    reading = reading_in(read_export(folder))
    if reading is not None:
        facts = reading.load_tokenizer(folder).facts
        assert int(min(facts.max_length, 1 << 30)) > 0
        assert 0 <= facts.pad_id < reading.num_words


def _senses(folder: Path) -> None:
    found = find_senses(folder)
    for sentence in read_semcor(found.memory):
        assert all(tag.end <= len(sentence.words) for tag in sentence.tagged)
    for path in found.tests.values():
        read_test(path)


def _probing(folder: Path) -> None:
    for task in FILES:
        if has_files(task, folder):
            read_probe(task, folder)


def _documents(folder: Path) -> None:
    files = [str(path) for path in sorted(folder.iterdir())]
    for by_line in (False, True):
        size = 0
        for fragment in read_fragments(files, by_line=by_line):
            assert len(fragment.text) < 1 << 23
            size += len(fragment.text)
            if size > MOST_READ:
                break


def _results(folder: Path) -> None:
    """Read what verbs keep beside their results: a bench, probing, an atlas, a checkpoint's manifest."""
    _each(
        lambda: read_probed(folder / "probed.json", Probed),
        lambda: find_last(folder, "0", lambda sentence: None),
        lambda: check_sums(folder),
        lambda: read_measured(folder / "measured.json"),
    )
    read_bench(folder / "bench.json")


def _apart(folder: Path) -> None:
    """Read texts, pairs and triplets for a sentence encoder."""
    path = str(_only(folder))
    read_apart(DataSpec(task="own/embedding", train=path, valid=path))


def _sentence(folder: Path) -> None:
    """Read how a folder of sentence-transformers makes vectors, and open it."""
    settings = settings_of(folder)
    assert settings.pooling in ("first", "last", "mean")
    open_sentence_encoder(folder)


def _jobs(folder: Path) -> None:
    """Read the records of jobs, who is at work, and a search's journal."""
    job = make_job("one", RunSpec(), folder / "one")
    failure = read_failure(job)
    assert failure is None or all(isinstance(line, str) for line in failure.last_lines)
    _each(lambda: job_state(job))
    holder = read_holder(folder / "held" / HOLDER)
    assert holder is None or holder.process > 0
    journal = Journal(folder / "journal.jsonl")
    # A new study would be written.
    if journal.logs:
        assert open_study(journal.path).trials is not None


def _request(folder: Path) -> None:
    """Read the body of a request to the server."""
    asked = read_asked(_only(folder).read_bytes(), ServeSpec())
    assert sum(map(len, asked.parts(2))) == len(asked)


def _questions(folder: Path) -> None:
    for is_train in (False, True):
        read_questions(_only(folder), is_train)


READERS: Mapping[str, Reader] = {
    "tables": Reader(_table, 150),
    "objects": Reader(_table, 150),
    "parquet": Reader(_table, 150, "pyarrow"),
    "xlsx": Reader(_table, 60, "openpyxl"),
    "packed": Reader(_table, 100),
    "overrides": Reader(_overrides, 300),
    "commands": Reader(_command, 100),
    "specs": Reader(_spec, 150),
    "runs": Reader(_run, 40),
    "figures": Reader(_figures, 60),
    "results": Reader(_results, 100),
    "sparse": Reader(lambda folder: read_sparse(folder / "sparse.safetensors"), 150),
    "models": Reader(_model, 40),
    "weights": Reader(load_encoder, 25),
    "conll": Reader(lambda folder: read_tagged(_only(folder), is_of_entities=True), 150),
    "tagged": Reader(lambda folder: read_tagged(_only(folder)), 150),
    "squad": Reader(_questions, 150),
    "questions": Reader(_questions, 150),
    "conllu": Reader(_words, 150),
    "pairs": Reader(read_pairs, 100),
    "senses": Reader(_senses, 100),
    "probing": Reader(_probing, 100),
    "documents": Reader(_documents, 100),
    "apart": Reader(_apart, 100),
    "sentence": Reader(_sentence, 100),
    "vectors": Reader(lambda folder: read_vectors(_only(folder), 3, folder), 150),
    "requests": Reader(_request, 150),
    "jobs": Reader(_jobs, 100, "optuna"),
}
