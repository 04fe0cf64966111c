"""What all methods share: the files of their rows, the depth of the encoder."""

from pathlib import Path

from bermo.atlas.chain import Base
from bermo.atlas.checks import Rows
from bermo.data.rows import TextRows, pick
from bermo.encoders.backbone import load_config
from bermo.encoders.families import num_layers
from bermo.files import write_text
from bermo.ship.runtimes.run_data import valid_file, write_rows
from bermo.spec import RunSpec

NUM_JUDGED = 256
"""Rows by which an export chooses its form; its score is measured on all of them afterwards."""


def make_base(run: RunSpec, rows: Rows, out: Path, unlabelled: str | None = None) -> Base:
    """Write the files that the commands of methods read, and return what they share."""
    texts, train = out / "data" / "texts.txt", out / "data" / "train.jsonl"
    if not texts.exists():
        both = (*rows.train.first, *(rows.train.second or ()))
        write_text(texts, "\n".join(" ".join(text.split()) for text in both) + "\n")
    if not train.exists():
        write_rows(rows.data, rows.train, train)
    judged = out / "data" / "judged.jsonl"
    if not judged.exists():
        write_rows(rows.data, _spread(rows.valid), judged)
    return Base(
        spec=run,
        num_layers=num_layers(load_config(run.model.backbone)) - 1,
        out=out,
        valid=valid_file(run.data, out / "data", "atlas"),
        judged=judged,
        train=train,
        texts=texts,
        unlabelled=unlabelled,
    )


def _spread(rows: TextRows) -> TextRows:
    """Return rows from all over the file, however it is sorted."""
    step = -(-len(rows) // NUM_JUDGED)
    some = pick(rows, range(0, len(rows), step))
    assert isinstance(some, TextRows)
    return some
