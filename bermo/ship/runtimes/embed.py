"""Any encoder, in any form, and texts -> one vector a text; and the texts of a corpus nearest to a query.

    encode_file(model, texts.txt, vectors.npy, EncodeSpec())     block by block: memory does not grow
    search(model, corpus.txt, ["a question"], SearchSpec())      the most similar texts, by cosine

A prompt of the model's own ("query", "document") is put before each text where it has one, as
sentence-transformers does. An empty text has a vector too: that of the special tokens alone.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from tokenize import TokenError
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from bermo.choices import separator_character
from bermo.data.inputs import input_names, text_blocks
from bermo.data.ranking import unit
from bermo.data.rows import ApartRows
from bermo.data.tasks import own_task
from bermo.errors import BermoError
from bermo.files import DAMAGED, check_place, whole_bytes
from bermo.printing import number_of
from bermo.progress import Display, Quiet, counted
from bermo.runs.model_files import warn_diverged
from bermo.runs.trained import open_sentence_encoder
from bermo.ship.runtimes.predict import Predictor
from bermo.ship.runtimes.spec import EncodeSpec, SearchSpec

Vectors = npt.NDArray[np.float32]
BATCHES_A_BLOCK = 64
QUERY, DOCUMENT = ("query",), ("document", "passage", "corpus")
"""How the prompts of questions and of what is searched are called, as in sentence-transformers."""


class SentenceEncoder:
    """A model that gives vectors, loaded once by its runtime."""

    def __init__(self, model: str | Path, spec: EncodeSpec | None = None) -> None:
        self.spec = spec or EncodeSpec()
        opened = open_sentence_encoder(model)
        self.settings = opened.sentence
        self.predictor = Predictor(opened, self.spec.device, self.spec.batch_size)

    def encode(self, texts: Sequence[str], prompt: str = "") -> Vectors:
        """Return (N, D): the vectors of the texts, `prompt` before each."""
        rows = ApartRows([(prompt + text,) for text in texts])
        vectors = np.stack(self.predictor.logits(rows)).astype(np.float32)
        return cut_vectors(vectors, self.spec.dimension, self.settings.normalise)

    def prompt(self, *usual: str) -> str:
        """Return the prompt that was asked for, else the first of the usual names that the model has."""
        known = self.spec.prompt or next((name for name in usual if name in self.settings.prompts), None)
        return self.settings.prompt(known)


def cut_vectors(vectors: Vectors, wanted: int | None, normalise: bool) -> Vectors:
    """Keep the first units that were asked for; vectors of length 1 get it again."""
    width = vectors.shape[1]
    if wanted is None:
        return vectors
    if wanted > width:
        raise BermoError(
            f"dimension must be at most {width}, the units of this model's vectors, but got {wanted}."
        )
    cut = vectors[:, :wanted]
    return unit(cut).astype(np.float32) if normalise else cut


def encode_file(
    model: Path, source: Path, out: Path, spec: EncodeSpec, display: Display | None = None
) -> tuple[int, int]:
    """Write the vectors of a file's texts as .npy, (N, D) in float32; return N and D."""
    display = display or Quiet()
    check_vectors(out)
    blocks = _texts(source, spec)
    first = next(blocks)  # what is wrong with the file is said before the model is loaded
    warn_diverged(model, display.tell)
    encoder = SentenceEncoder(model, spec)
    prompt, shape = encoder.prompt(), (0, 0)
    with counted(display, "encoding", 0) as advance, whole_bytes(out) as file:
        for texts in chain([first], blocks):
            vectors = encoder.encode(texts, prompt)
            if not shape[0]:
                _write_header(file, vectors.shape)
            file.write(np.ascontiguousarray(vectors).data)
            shape = (shape[0] + len(vectors), vectors.shape[1])
            advance(len(texts))
        file.seek(0)
        _write_header(file, shape)
    display.tell(f"{number_of(shape[0], 'vector')} of {shape[1]} units written to {out}")
    return shape


def _write_header(file: BinaryIO, shape: tuple[int, ...]) -> None:
    """Write numpy's header of float32; it leaves room for the number of rows, which is known at their end."""
    np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})


@dataclass(frozen=True, kw_only=True)
class Found:
    """A text of the corpus: its number from 1 on, and its cosine with the query."""

    number: int
    text: str
    score: float


def search(
    model: Path, corpus: Path, queries: Sequence[str], spec: SearchSpec, display: Display | None = None
) -> list[list[Found]]:
    """Return for each query the texts of the corpus with the largest cosine, the nearest first."""
    display = display or Quiet()
    texts = list(chain.from_iterable(_texts(corpus, spec.encode)))
    known = None if spec.vectors is None else read_vectors(spec.vectors, len(texts), corpus)
    encoder = SentenceEncoder(model, spec.encode)
    if known is None:
        with counted(display, "encoding", len(texts)) as advance:
            known = _encode_all(encoder, texts, encoder.prompt(*DOCUMENT), advance)
    asked = encoder.encode(queries, encoder.prompt(*QUERY))
    if asked.shape[1] != known.shape[1]:
        raise BermoError(
            f"{spec.vectors} holds vectors of {known.shape[1]} units, but the model's have {asked.shape[1]}."
            " Encode the corpus with the same model and --dimension."
        )
    scores_QN = unit(asked) @ unit(known).T
    return [_nearest(row, texts, spec.top) for row in scores_QN]


def _encode_all(
    encoder: SentenceEncoder, texts: Sequence[str], prompt: str, advance: Callable[[int], None]
) -> Vectors:
    size = BATCHES_A_BLOCK * encoder.spec.batch_size
    parts = []
    for start in range(0, len(texts), size):
        parts.append(encoder.encode(texts[start : start + size], prompt))
        advance(len(parts[-1]))
    return np.concatenate(parts)


def _nearest(scores_N: npt.NDArray[np.floating], texts: Sequence[str], top: int) -> list[Found]:
    order = np.argsort(-scores_N, kind="stable")[:top]
    return [Found(number=int(i) + 1, text=texts[i], score=float(scores_N[i])) for i in order]


def check_vectors(out: Path) -> None:
    """Refuse a file for vectors that has another ending, or that is there already."""
    if out.suffix.lower() != ".npy":
        raise BermoError(f"--out must end in .npy, but got {out}.")
    if out.exists():
        raise BermoError(f"{out} exists and is not overwritten. Give another name with --out.")
    check_place(out)


def read_vectors(path: Path, count: int, corpus: Path) -> Vectors:
    """Read what `encode_file` wrote for a corpus of so many texts."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a header that Python 2 may have written
            vectors = np.load(path, mmap_mode="r", allow_pickle=False)
        if vectors.dtype.kind != "f":
            raise ValueError(f"its numbers are {vectors.dtype}")
        vectors = np.asarray(vectors, dtype=np.float32)
    except (OSError, EOFError, SyntaxError, TokenError, *DAMAGED) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        if "allow_pickle" in reason:  # what numpy takes any file for that is not its own
            reason = "it is no .npy file of numbers"
        raise BermoError(f"{path} holds no vectors ({reason}). Write it with bermo encode.") from None
    if vectors.ndim != 2 or len(vectors) != count:
        raise BermoError(
            f"{path} has the shape {vectors.shape}, but {corpus} has {count:,} texts. Encode this corpus"
            " again."
        )
    return vectors


def _texts(path: Path, spec: EncodeSpec) -> Iterator[list[str]]:
    """Yield the texts of a file block by block, at least one of them."""
    size, task = BATCHES_A_BLOCK * spec.batch_size, own_task("embedding")
    names: tuple[str, ...] = ()
    for table in text_blocks(path, task, (), size, separator_character(spec.separator)):
        names = names or input_names(table, task, (), spec.columns or ())
        if len(names) > 1:
            raise BermoError(
                f"{path} has several columns of texts ({', '.join(names)}). Name one with --columns."
            )
        yield list(table.column(names[0]))
    if not names:
        raise BermoError(f"{path} has no text.")
