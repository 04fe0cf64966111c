"""How an export reads texts, as export.json records it: what else transformers tells of config and tokenizer.

With it a folder answers without transformers and torch. It is believed where checksums.json vouches that the
files beside it are those of which it was taken; without that, config and tokenizer are asked anew.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bermo.encoders.plain_tokenizer import PlainTokenizer, TokenizerFacts, read_backend
from bermo.errors import BermoError
from bermo.runs.model_files import FoundModel, Runtime, find_model, read_export
from bermo.sums import SUMS_FILE
from bermo.values import from_dict

FIELD = "reading"
"""The field of export.json."""
BY_GRAPH: tuple[Runtime, ...] = ("onnxruntime", "openvino")
"""Runtimes that compute a graph, of which torch knows nothing."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What decides how texts become the inputs of a model, and how many answers it gives."""

    tokenizer: TokenizerFacts
    num_words: int
    """How many tokens the model has embeddings for."""
    num_labels: int | None
    has_segments: bool
    is_apart: bool

    def load_tokenizer(self, folder: Path) -> PlainTokenizer:
        """Load the tokenizer of the folder."""
        return PlainTokenizer(read_backend(folder), self.tokenizer)


def recorded_reading(found: FoundModel) -> Reading | None:
    """Return what an export's record says; None where there is none, or one of another version of bermo."""
    if found.runtime not in BY_GRAPH or not (found.folder / SUMS_FILE).is_file():
        return None
    return reading_in(read_export(found.folder))


def reading_in(record: Mapping[str, Any]) -> Reading | None:
    """Return what export.json says, where it makes sense."""
    try:
        reading = from_dict(Reading, record.get(FIELD) or {})
    except (BermoError, TypeError):
        return None
    known = reading.tokenizer
    is_sound = known.max_length >= 1 and known.pad_segment >= 0 and 0 <= known.pad_id < reading.num_words
    return reading if is_sound else None


def needs_torch(*folders: Path) -> bool:
    """Tell whether any of these models' folders takes torch to be opened and to answer."""
    try:
        return any(recorded_reading(find_model(folder)) is None for folder in folders)
    except BermoError:  # said where the folder is opened, after what is said first
        return True
