"""Where texts to be answered come from and where the answers go: files, standard input, the command line."""

import io
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from pathlib import Path
from typing import TextIO

from bermo.choices import separator_character
from bermo.data.inputs import line_blocks, line_names, text_blocks
from bermo.data.table import Table
from bermo.data.word_files import holds_words
from bermo.errors import BermoError
from bermo.files import whole_file
from bermo.printing import number_of
from bermo.progress import Display, Quiet, counted
from bermo.runs.model_files import warn_diverged
from bermo.runs.task_file import TrainedTask
from bermo.runs.trained import open_trained
from bermo.ship.runtimes.predict import Predicted, Predictor, check_predict, predict_stream
from bermo.ship.runtimes.spec import PredictSpec
from bermo.ship.runtimes.written import answer_writer, check_out

BATCHES_A_BLOCK = 16
"""Batches of a block: enough for texts of like length, few enough for little memory."""
COUNTED = (".txt", ".csv", ".tsv", ".jsonl")
"""Files in which a line is a row, or nearly, so that progress can say of how many."""
WITH_HEADER = (".csv", ".tsv")

Source = Path | Sequence[str] | None
"""A file, the texts themselves, or None for standard input."""


def predict_file(
    run: Path, source: Source, spec: PredictSpec, out: Path | None = None, display: Display | None = None
) -> Predicted:
    """Answer every row with the model of `run`; print JSON lines, or write all answers to `out`."""
    display = display or Quiet()
    check_out(out)
    opened = open_trained(run)
    warn_diverged(run, display.tell)
    check_predict(opened, spec)
    blocks = _blocks(source, opened.trained, spec)
    first = next(blocks, None)  # what is wrong with the file is said before the model is loaded
    if first is None:
        raise BermoError(f"There is no text to answer: {source or 'standard input'} is empty.")
    for note in first.notes:
        display.tell(note)
    predictor = Predictor(opened, spec.device, spec.batch_size, spec.precision)
    is_counted = out is not None or not sys.stdout.isatty()
    total = _count(source) if is_counted and not holds_words(first) else 0
    with counted(display if total else Quiet(), "predicting", total) as advance, _opened(out) as file:
        write = answer_writer(file, out)
        done = predict_stream(predictor, chain([first], blocks), spec, write, advance)
    if done.num_empty:
        which = "is empty and has" if done.num_empty == 1 else "are empty and have"
        display.tell(
            f"{done.num_empty:,} of {done.num_rows:,} texts {which} an empty answer (the first:"
            f" {done.first_empty})."
        )
    if out is not None:
        display.tell(f"{number_of(done.num_rows, 'answer')} written to {out}")
    return done


def _blocks(source: Source, trained: TrainedTask, spec: PredictSpec) -> Iterator[Table]:
    size = BATCHES_A_BLOCK * spec.batch_size
    if isinstance(source, Path):
        separator = separator_character(spec.separator)
        return text_blocks(source, trained.task, trained.text, size, separator, trained.labels)
    names = line_names(trained.task, trained.text)
    if source is not None:
        return line_blocks(source, names, size, "--text")
    if spec.format not in (None, "txt"):
        return _spooled(trained, spec, size)
    is_typed = sys.stdin.isatty()
    if is_typed:
        print("Type a text and Enter; Ctrl-D ends.", file=sys.stderr)
    # Whoever types waits for the answer to each line.
    return line_blocks(_typed_lines(), names, 1 if is_typed else size)


def _typed_lines() -> Iterator[str]:
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8-sig", newline="\n")
    number = 0
    try:
        for line in sys.stdin:
            number += 1
            yield line
    except UnicodeDecodeError:
        raise BermoError(
            f"Standard input is not UTF-8 after line {number}. If it is in Latin-1, this converts it:"
            " iconv -f WINDOWS-1252 -t UTF-8 FILE | bermo predict …"
        ) from None


def _spooled(trained: TrainedTask, spec: PredictSpec, size: int) -> Iterator[Table]:
    """Copy standard input to a file, which has the form of a table, and read that."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        path = Path(folder) / f"stdin.{spec.format}"
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield from text_blocks(path, trained.task, trained.text, size, separator_character(spec.separator))


def _opened(out: Path | None) -> AbstractContextManager[TextIO]:
    return nullcontext(sys.stdout) if out is None else whole_file(out)


def _count(source: Source) -> int:
    """Return how many rows there are, as far as lines tell; 0 where they do not."""
    if not isinstance(source, Path) or source.suffix.lower() not in COUNTED:
        return 0
    with source.open("rb") as file:
        num_lines = sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))
    return max(0, num_lines - (source.suffix.lower() in WITH_HEADER))
