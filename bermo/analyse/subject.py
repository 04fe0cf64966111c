"""What an analysis is asked, and one model under it; what the model needs is loaded when first asked for."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from transformers.utils import logging

from bermo.analyse.answering import Answerer, load_answerer
from bermo.analyse.labelled import Labelled, load_labelled, read_labelled, texts_of
from bermo.analyse.measures import Measure
from bermo.analyse.relations import ParsedText, read_parsed
from bermo.data.rows import TextRows
from bermo.errors import BermoError
from bermo.runs.model_files import run_of
from bermo.runs.trained import open_trained
from bermo.vectors import Encoder, load_encoder


@dataclass(frozen=True, kw_only=True)
class Request:
    """What was asked: models, texts, and where labels, senses and pairs are."""

    models: tuple[str, ...]
    texts: tuple[str, ...]
    measures: tuple[Measure, ...]
    data: str | None = None
    rows: int = 128
    senses: str | None = None
    test: str = "senseval2"
    pairs: str | None = None
    max_length: int = 128
    max_unknown: float = 0.05
    device: str | None = None
    base: str | None = None
    trees: str | None = None
    max_trees: int | None = None
    """Sentences of the trees that are read, evenly chosen; None without trees."""
    map: tuple[str, ...] = ()
    sentences: tuple[str, ...] = ()
    heads: tuple[str, ...] = ()
    corpus: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    layer: int | None = None


class Subject:
    """One model under analysis; what it needs is loaded when first asked for."""

    def __init__(self, source: str, name: str, request: Request, first: "Subject | None") -> None:
        self.source, self.name, self.request, self.first = source, name, request, first

    @cached_property
    def encoder(self) -> Encoder:
        """The encoder, its mix and its tokenizer."""
        level = logging.get_verbosity()
        # The head of a trained model is left aside on purpose.
        logging.set_verbosity_error()
        try:
            return load_encoder(self.source, device=self.request.device)
        finally:
            logging.set_verbosity(level)

    @cached_property
    def labelled(self) -> Labelled:
        """The trained model with rows that have answers."""
        assert self.request.data is not None, "parts that need labels are only chosen with --data"
        is_cpu = self.encoder.device.type == "cpu"
        return load_labelled(self.source, self.request.data, self.request.rows, is_cpu)

    @cached_property
    def base(self) -> str | None:
        """What the model was fine-tuned from: as it was named, or as a readable spec says."""
        if self.request.base is not None or run_of(Path(self.source)) is None:
            return self.request.base
        try:
            spec = open_trained(self.source).read_spec()
        except BermoError:
            return None
        return None if spec is None else spec.model.backbone

    def load_base(self) -> Encoder:
        """Load the encoder before fine-tuning."""
        return load_encoder(str(self.base), device=str(self.encoder.device))

    def labels_of_texts(self) -> dict[str, str]:
        """Return the label of each text of the rows with answers, where it has one."""
        if self.request.data is None:
            return {}
        rows = read_labelled(self.request.data, open_trained(self.source).trained)
        labels = rows.labels if isinstance(rows, TextRows) and rows.labels is not None else []
        return dict(zip(texts_of(rows), (str(label) for label in labels), strict=False))

    @cached_property
    def answerer(self) -> Answerer:
        """The head that answers to a sentence, or what stands for an answer."""
        return load_answerer(self.source, self.encoder)

    @cached_property
    def parsed(self) -> list[ParsedText]:
        """The sentences of the treebank, with their trees."""
        return read_parsed(Path(str(self.request.trees)), self.request.max_trees or 1)

    @property
    def longest(self) -> int:
        """The most tokens that a text may have: what was asked for, and how many positions the model has."""
        return min(self.request.max_length, num_places(self.encoder))

    def let_go(self) -> None:
        """Free the weights; what is needed again is loaded again."""
        for name in ("encoder", "labelled", "answerer"):
            self.__dict__.pop(name, None)


def num_places(encoder: Encoder) -> int:
    """Return how many tokens the encoder has positions for."""
    return int(encoder.tokenizer.model_max_length)
