"""The geometry of contextual vectors (Ethayarajh 2019, "How contextual are contextualized word
representations?").

    anisotropy A_l        mean cosine of two words from different texts: 0 if directions are uniform
    self-similarity(w)    mean cosine of w with itself in other texts                          − A_l
    intra-sentence(s)     mean cosine of a word with the mean of its sentence                  − A_l
    max. explained(w)     σ₁² / Σ σ_i² of the vectors of w, uncentred: 1 if one static vector would do
                          − the same of as many random words

All sums run over unit vectors û: the mean cosine of N vectors is (‖Σ û‖² − N) / (N (N − 1)), and over pairs
from different texts (‖Σ û‖² − Σ_t ‖Σ_t û‖²) / (N² − Σ_t N_t²), so that no pair is formed.
Kept in memory: the uses of at most `MAX_WORDS` words and a sample of random words.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from bermo.analyse.certainty import FEWEST_TEXTS, Ends, ends_of_mean
from bermo.analyse.words import Key, Words, pool_words
from bermo.data.intervals import draws_of_groups
from bermo.vectors import TokenVectors

MIN_USES, MAX_USES, MAX_WORDS, SAMPLE = 5, 20, 300, 500


@dataclass(frozen=True, kw_only=True)
class WordUse:
    """A word, in how many texts it was read, and its self-similarity at each layer, adjusted."""

    word: str
    uses: int
    self_similarity: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """One number a layer (and the mix, if there is one); None where there were too few words."""

    layers: tuple[str, ...]
    anisotropy: tuple[float | None, ...]
    self_similarity: tuple[float | None, ...]
    intra_sentence: tuple[float | None, ...]
    explained: tuple[float | None, ...]
    words: tuple[WordUse, ...]
    num_words: int
    anisotropy_ends: tuple[Ends, ...]
    """By resampling the texts."""
    similarity_ends: tuple[Ends, ...]
    """Of the self-similarity, over words."""


def mean_cosine(vectors: Tensor) -> float | None:
    """Return the mean cosine over all pairs of N vectors, from the sum of their directions."""
    count = len(vectors)
    if count < 2:
        return None
    total = normalize(vectors.double(), dim=-1).sum(0)
    return (float(total @ total) - count) / (count * (count - 1))


class Directions:
    """Sums of unit vectors over all texts and within each text: their mean cosine across texts."""

    def __init__(self) -> None:
        self.total: Tensor | None = None
        self.count = self.pairs_within = 0
        self.within = 0.0
        self.of_texts: list[Tensor] = []
        self.num_of_texts: list[Tensor] = []

    def add(self, vectors: Tensor, text: Tensor, num_texts: int) -> None:
        """Add the vectors of whole texts; `text` says which of them each vector is of."""
        units = normalize(vectors.double(), dim=-1)
        sums = torch.zeros(num_texts, units.shape[1], dtype=torch.double, device=units.device)
        sums.index_add_(0, text.to(units.device), units)
        total = sums.sum(0).cpu()
        self.total = total if self.total is None else self.total + total
        self.within += float(sums.square().sum())
        self.count += len(vectors)
        counts = torch.bincount(text, minlength=num_texts)
        self.pairs_within += int(counts.square().sum())
        self.of_texts.append(sums.float().cpu())
        self.num_of_texts.append(counts.cpu())

    @property
    def mean_cosine(self) -> float | None:
        """Over all pairs of vectors from different texts; None where there is one text only."""
        pairs = self.count**2 - self.pairs_within
        if self.total is None or not pairs:
            return None
        return (float(self.total @ self.total) - self.within) / pairs

    @property
    def ends(self) -> Ends:
        """The 95 % interval of the mean cosine, over resamples of the texts."""
        if sum(map(len, self.of_texts)) < FEWEST_TEXTS:
            return None
        sums, counts = torch.cat(self.of_texts), torch.cat(self.num_of_texts).float()
        drawn = torch.from_numpy(draws_of_groups(len(sums))).float()
        # A text that is drawn twice makes no pair with itself.
        cosines = (drawn @ sums).square().sum(1) - drawn.square() @ sums.square().sum(1)
        pairs = (drawn @ counts).square() - drawn.square() @ counts.square()
        known = (cosines / pairs)[pairs > 0].double().numpy()
        low, high = np.quantile(known, [0.025, 0.975])
        return float(low), float(high)


def explained_variance(vectors: Tensor) -> float:
    """Return σ₁² / Σ σ_i²: the share of the vectors' squared length along one direction."""
    squares = torch.linalg.svdvals(vectors.double()) ** 2
    return float(squares[0] / squares.sum().clamp(min=1e-30))


def sentence_similarity(words: Words, layer: int) -> tuple[float, int]:
    """Return the sum of the texts' mean cosines to their mean vectors, and the number of texts."""
    vectors = words.vectors[layer].double()
    texts, text = torch.unique(torch.tensor(words.rows), return_inverse=True)
    text = text.to(vectors.device)
    counts = torch.bincount(text, minlength=len(texts)).double()
    means = torch.zeros(len(texts), vectors.shape[1], dtype=torch.double, device=vectors.device)
    means.index_add_(0, text, vectors)
    cosines = torch.cosine_similarity(vectors, means[text] / counts[text, None], dim=-1)
    return float((cosines / counts[text]).sum()), len(texts)


class _Sums:
    """What is gathered over the batches: sums of directions, uses of chosen words, a random sample."""

    def __init__(self, num_layers: int, chosen: Mapping[Key, str]) -> None:
        self.directions = [Directions() for _ in range(num_layers)]
        self.similarity = [0.0] * num_layers
        self.num_texts = self.num_words = 0
        self.uses: dict[Key, list[Tensor]] = {key: [] for key in chosen}
        self.num_uses: Counter[Key] = Counter()
        self.seen: set[tuple[Key, int]] = set()
        self.sample: list[Tensor] = []
        self.generator = torch.Generator().manual_seed(0)

    def add(self, words: Words) -> None:
        if not words.rows:
            return
        texts, text = torch.unique(torch.tensor(words.rows), return_inverse=True)
        for layer, vectors in enumerate(words.vectors):
            self.directions[layer].add(vectors, text, len(texts))
            similarity, count = sentence_similarity(words, layer)
            self.similarity[layer] += similarity
        self.num_texts += count
        # (W, layers, D).
        stacked = torch.stack(words.vectors, dim=1).cpu()
        for index, (row, key) in enumerate(zip(words.rows, words.keys, strict=True)):
            self._keep_use(key, row, stacked[index])
            self._keep_sample(stacked[index])

    def _keep_use(self, key: Key, row: int, vectors: Tensor) -> None:
        """Keep one use a text, and of more than `MAX_USES` texts a random draw of them."""
        uses = self.uses.get(key)
        if uses is None or (key, row) in self.seen:
            return
        self.seen.add((key, row))
        self.num_uses[key] += 1
        slot = self._slot(self.num_uses[key], MAX_USES)
        if slot is not None:
            uses[slot : slot + 1] = [vectors.clone()]

    def _keep_sample(self, vectors: Tensor) -> None:
        self.num_words += 1
        slot = self._slot(self.num_words, SAMPLE)
        if slot is not None:
            self.sample[slot : slot + 1] = [vectors.clone()]

    def _slot(self, number: int, size: int) -> int | None:
        """Reservoir sampling: the place of the n-th item, so that each is kept with the chance size / n."""
        slot = number - 1 if number <= size else int(torch.randint(number, (), generator=self.generator))
        return slot if slot < size else None


def measure_geometry(
    batches: Iterable[TokenVectors], layers: Sequence[str], chosen: Mapping[Key, str]
) -> Geometry:
    """Measure all layers over a stream of vectors; `chosen` are the words whose uses are compared."""
    sums = _Sums(len(layers), chosen)
    for batch in batches:
        sums.add(pool_words(batch))
    anisotropy = [directions.mean_cosine for directions in sums.directions]
    uses = {
        key: torch.stack(word_vectors)
        for key, word_vectors in sums.uses.items()
        if len(word_vectors) >= MIN_USES
    }
    words = [
        WordUse(
            word=chosen[key], uses=len(word_vectors), self_similarity=_similarity(word_vectors, anisotropy)
        )
        for key, word_vectors in uses.items()
    ]
    indices = range(len(layers))
    return Geometry(
        layers=tuple(layers),
        anisotropy=tuple(anisotropy),
        self_similarity=tuple(mean_of([word.self_similarity[k] for word in words]) for k in indices),
        intra_sentence=tuple(
            None if base is None else sums.similarity[k] / sums.num_texts - base
            for k, base in enumerate(anisotropy)
        ),
        explained=tuple(_explained(list(uses.values()), sums.sample, k) for k in indices),
        words=tuple(words),
        num_words=sums.num_words,
        anisotropy_ends=tuple(directions.ends for directions in sums.directions),
        similarity_ends=tuple(ends_of_mean([word.self_similarity[k] for word in words]) for k in indices),
    )


def _similarity(uses: Tensor, anisotropy: Sequence[float | None]) -> tuple[float, ...]:
    return tuple(
        (mean_cosine(uses[:, layer]) or 0.0) - (base or 0.0) for layer, base in enumerate(anisotropy)
    )


def _explained(uses: Sequence[Tensor], sample: Sequence[Tensor], layer: int) -> float | None:
    """Return the mean explained variance of the words, less that of random groups of the same sizes."""
    if not uses:
        return None
    generator = torch.Generator().manual_seed(layer)
    vectors = torch.stack([item[layer] for item in sample])
    own, random = [], []
    for own_vectors in uses:
        own.append(explained_variance(own_vectors[:, layer]))
        group = torch.randperm(len(vectors), generator=generator)[: len(own_vectors)]
        random.append(explained_variance(vectors[group]))
    return math.fsum(own) / len(own) - math.fsum(random) / len(random)


def mean_of(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None
