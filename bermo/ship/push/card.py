"""The card of a model on the hub: the one in its folder, with what a bench measured and on which machine."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bermo.data.tasks import PIPELINES
from bermo.encoders.card import with_header
from bermo.errors import BermoError
from bermo.files import reading
from bermo.runs.model_files import TASK_FILE, read_export
from bermo.ship.bench.card import bench_rows
from bermo.ship.export.compare import agreement
from bermo.ship.push.files import CARD

BENCH = "bench.json"
"""What `bermo compress` writes beside its model, in the form of `bermo bench --out`."""


def card_of(path: str | Path, folder: Path, name: str, bench: Path | None) -> str:
    """Return the card of the model in `folder`, which was found at `path`."""
    written = folder / CARD
    text = written.read_text(encoding="utf-8") if written.is_file() else _new_card(folder, name)
    measured = bench or _bench_beside(Path(path), folder)
    return text if measured is None else f"{text.rstrip()}\n\n## Measured\n\n{_table(measured)}"


def _bench_beside(path: Path, folder: Path) -> Path | None:
    places = (path / BENCH, folder.parent / BENCH)
    return next((place for place in places if place.is_file()), None)


def _table(path: Path) -> str:
    if not path.is_file():
        raise BermoError(f"There is no file {path}. Give what bermo bench --out wrote, or leave --bench out.")
    from bermo.ship.bench.run import read_bench  # torch comes with it

    return "\n".join(bench_rows(read_bench(path))) + "\n"


def _new_card(folder: Path, name: str) -> str:
    """Write a card of a folder that has none, as most exports: its form, and how it compares with torch."""
    export, kind = read_export(folder), _kind(folder)
    title = name.rpartition("/")[2]
    lines = [f"# {title}", "", f"A model for {kind}, made by bermo.", "", *_compared(export)]
    body = "\n".join(lines).rstrip() + "\n"
    return with_header(body, title=title, pipeline=PIPELINES.get(kind))


def _kind(folder: Path) -> Any:
    path = folder / TASK_FILE
    with reading(path, "Export or train the model again."):
        return json.loads(path.read_text(encoding="utf-8"))["kind"]


def _compared(export: Mapping[str, Any]) -> list[str]:
    compared = export.get("compared")
    if not isinstance(compared, Mapping):
        return []
    lines = [
        f"Form {export['to']} ({export['precision']}), {export['num_bytes'] / 1e6:.1f} MB; the weights in"
        f" fp32 have {export['dense_bytes'] / 1e6:.1f} MB.",
        f"On {compared['texts']} texts ({compared['on']}) its answers differ by"
        f" {compared['relative_error']:.2%} from those of the model in torch, and"
        f" {agreement(compared['same_answers'], compared.get('farthest'))} ({export['processor']}).",
    ]
    if compared.get("score_after") is not None:
        lines.append(f"Score {compared['score_before']:.2f} before, {compared['score_after']:.2f} after.")
    return lines
