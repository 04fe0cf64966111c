"""Do vectors tell a word's senses apart (Wiedemann et al. 2019, "Does BERT make any sense?")?

    sense of a word = that of the nearest use (cosine) among SemCor's uses of its lemma and part of speech
    F1 = 2 P R / (P + R),  P over the words that were answered,  R over all
    baseline: the most frequent sense in SemCor

Words that SemCor does not hold are not answered. No memory of vectors is kept: the test words' vectors are,
and SemCor streams past them, each use compared at once with the test words it may answer.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bermo.analyse.attention import Advance
from bermo.analyse.certainty import Ends, ends_of_mean, told
from bermo.analyse.words import has_mix, layer_names, pool_words
from bermo.data.senses import SenseSentence, Tagged
from bermo.figures.data import Figure, Lines, Points, Section, Table, paragraphs
from bermo.vectors import Encoder, stream_vectors

LAST_FOUR = "last four"
MAP_USES, LEAST_USES = 150, 3
Word = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class SenseMap:
    """Uses of one word in the plane of their two main directions, each with its sense."""

    word: str
    layer: str
    points: tuple[tuple[float, float], ...]
    senses: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Senses:
    """F1 in percent by layer, last four concatenated and mix, beside the most frequent sense."""

    test: str
    names: tuple[str, ...]
    f1: tuple[float, ...]
    baseline: float
    num_words: int
    answered: int
    map: SenseMap | None
    ends: tuple[Ends, ...]
    """Of `f1`, over sentences."""
    baseline_ends: Ends


@dataclass(frozen=True, eq=False)
class Uses:
    """Tagged words of a batch: (sentence, number in it), and vectors (kinds, U, D), a mix last."""

    positions: tuple[tuple[int, int], ...]
    tagged: tuple[Tagged, ...]
    vectors: Tensor


def f1_ends(
    right: Sequence[bool], answered: Sequence[bool], sentences: Sequence[int], asked: Sequence[int]
) -> Ends:
    """Return the interval of F1 = 2 · right / (answered + asked) in percent, over sentences.

    `sentences` numbers the sentence of each word that was read, `asked` counts the words of each sentence.
    """
    parts, sizes = [0.0] * len(asked), [float(count) for count in asked]
    for is_right, is_answered, at in zip(right, answered, sentences, strict=True):
        parts[at] += 2.0 * is_right
        sizes[at] += is_answered
    ends = ends_of_mean(parts, sizes)
    return None if ends is None else (100 * max(0.0, ends[0]), 100 * min(1.0, ends[1]))


def f1(right: int, answered: int, total: int) -> float:
    """Return F1 in percent."""
    if not right:
        return 0.0
    precision, recall = right / answered, right / total
    return 100 * 2 * precision * recall / (precision + recall)


def read_uses(encoder: Encoder, sentences: Sequence[SenseSentence], max_length: int) -> Iterator[Uses]:
    """Yield the tagged words batch by batch; several tagged as one are averaged, truncated ones left out."""
    stream = stream_vectors(
        encoder,
        [list(item.words) for item in sentences],
        with_mix=has_mix(encoder),
        max_length=max_length,
    )
    for batch in stream:
        words = pool_words(batch)
        spots = zip(words.rows, words.positions, strict=True)
        known = {spot: k for k, spot in enumerate(spots)}
        positions: list[tuple[int, int]] = []
        tagged: list[Tagged] = []
        pieces: list[int | None] = []
        owners: list[int] = []
        for row in dict.fromkeys(words.rows):
            for number, item in enumerate(sentences[row].tagged):
                span = [known.get((row, position)) for position in range(item.start, item.end)]
                if None not in span:
                    pieces += span
                    owners += [len(positions)] * len(span)
                    positions.append((row, number))
                    tagged.append(item)
        yield Uses(tuple(positions), tuple(tagged), _means(words.vectors, pieces, owners, len(positions)))


def _means(
    vectors: Sequence[Tensor], pieces: Sequence[int | None], owners: Sequence[int], count: int
) -> Tensor:
    stacked = torch.stack(list(vectors))
    index = torch.tensor(pieces, dtype=torch.long, device=stacked.device)
    owner = torch.tensor(owners, dtype=torch.long, device=stacked.device)
    sums = torch.zeros(len(stacked), count, stacked.shape[-1], device=stacked.device)
    sums.index_add_(1, owner, stacked[:, index])
    return sums / torch.bincount(owner, minlength=count).clamp(min=1)[:, None]


def names_of(encoder: Encoder) -> tuple[str, ...]:
    """Return what is compared: every layer, the mix if there is one, the last four side by side."""
    return (*layer_names(encoder), LAST_FOUR)


def cosines(one: Tensor, other: Tensor, num_layers: int) -> Tensor:
    """Return cosines (kinds + 1, M, U) of (kinds, M, D) and (kinds, U, D); the last joins four layers."""
    products = one @ other.transpose(1, 2)
    squares = one.pow(2).sum(-1)[:, :, None], other.pow(2).sum(-1)[:, None, :]
    four = slice(max(0, num_layers - 4), num_layers)
    products = torch.cat([products, products[four].sum(0, keepdim=True)])
    lengths = [torch.cat([item, item[four].sum(0, keepdim=True)]).sqrt() for item in squares]
    return products / (lengths[0] * lengths[1]).clamp(min=1e-12)


class NearestSense:
    """Test words by lemma and part of speech, and for each kind of vector the best use seen so far."""

    def __init__(self, tests: Sequence[Tagged], vectors: Tensor, num_layers: int) -> None:
        self.num_layers, self.tests = num_layers, tests
        groups: dict[Word, list[int]] = defaultdict(list)
        for index, tagged in enumerate(tests):
            groups[tagged.word].append(index)
        self.groups = {word: torch.tensor(indices) for word, indices in groups.items()}
        self.vectors = {word: vectors[:, indices] for word, indices in self.groups.items()}
        self.best = torch.full((len(vectors) + 1, len(tests)), -2.0)
        self.answer = torch.full((len(vectors) + 1, len(tests)), -1)
        self.keys: list[tuple[str, ...]] = []

    def add(self, uses: Uses) -> None:
        """Compare uses of the memory with the test words they may answer."""
        groups: dict[Word, list[int]] = defaultdict(list)
        for index, tagged in enumerate(uses.tagged):
            if tagged.word in self.groups:
                groups[tagged.word].append(index)
        for word, of_word in groups.items():
            indices = self.groups[word]
            top, which = cosines(self.vectors[word], uses.vectors[:, of_word], self.num_layers).cpu().max(-1)
            is_nearer = top > self.best[:, indices]
            numbers = len(self.keys) + which
            self.best[:, indices] = torch.where(is_nearer, top, self.best[:, indices])
            self.answer[:, indices] = torch.where(is_nearer, numbers, self.answer[:, indices])
            self.keys += [uses.tagged[index].keys for index in of_word]

    def scores(self, total: int) -> tuple[float, ...]:
        """Return F1 by kind of vector, over `total` words that were asked."""
        return tuple(
            f1(sum(right), sum(answer >= 0 for answer in answers), total)
            for right, answers in zip(self.right(), self.answer.tolist(), strict=True)
        )

    def right(self) -> list[list[bool]]:
        """Return by kind of vector which test words were answered right."""
        return [
            [
                answer >= 0 and bool(set(tagged.keys) & set(self.keys[answer]))
                for answer, tagged in zip(answers, self.tests, strict=True)
            ]
            for answers in self.answer.tolist()
        ]


def most_frequent(memory: Iterable[SenseSentence]) -> dict[Word, str]:
    """Return the most frequent sense of each lemma and part of speech; the first seen of equals."""
    counts: dict[Word, Counter[str]] = defaultdict(Counter)
    for sentence in memory:
        for tagged in sentence.tagged:
            counts[tagged.word][tagged.keys[0]] += 1
    return {word: senses.most_common(1)[0][0] for word, senses in counts.items()}


def choose_word(memory: Iterable[SenseSentence]) -> Word | None:
    """Return the noun whose second and third sense are used most: a word worth a map."""
    counts: dict[Word, Counter[str]] = defaultdict(Counter)
    for sentence in memory:
        for tagged in sentence.tagged:
            if tagged.part == "noun":
                counts[tagged.word][tagged.keys[0]] += 1
    ranked = {
        word: sum(sorted(senses.values(), reverse=True)[1:3])
        for word, senses in counts.items()
        if len(senses) > 1
    }
    return max(ranked, key=lambda word: (ranked[word], word)) if ranked else None


def measure_senses(
    encoder: Encoder,
    memory: Sequence[SenseSentence],
    test: Sequence[SenseSentence],
    name: str,
    max_length: int = 128,
    advance: Advance = lambda done: None,
) -> Senses:
    """Disambiguate the words of a test set by their nearest use in the memory, for each kind of vector."""
    parts = list(read_uses(encoder, test, max_length))
    tests = [tagged for part in parts for tagged in part.tagged]
    vectors = torch.cat([part.vectors for part in parts], dim=1)
    nearest, mapped = NearestSense(tests, vectors, encoder.num_layers), choose_word(memory)
    wanted = {tagged.word for tagged in tests} | {mapped}
    useful = [item for item in memory if any(tagged.word in wanted for tagged in item.tagged)]
    kept: list[Tensor] = []
    senses: list[str] = []
    for uses in read_uses(encoder, useful, max_length):
        nearest.add(uses)
        own = [k for k, tagged in enumerate(uses.tagged) if tagged.word == mapped]
        kept += uses.vectors[: encoder.num_layers, own].cpu().unbind(1)
        senses += [uses.tagged[k].keys[0] for k in own]
        advance(len({row for row, _ in uses.positions}))
    num_words = sum(len(sentence.tagged) for sentence in test)
    scores, names = nearest.scores(num_words), names_of(encoder)
    best = max(range(encoder.num_layers), key=lambda k: scores[k])
    sentences = [row for part in parts for row, _ in part.positions]
    asked = [len(sentence.tagged) for sentence in test]
    answered = (nearest.answer >= 0).tolist()
    baseline, baseline_ends = _baseline(memory, test)
    return Senses(
        test=name,
        names=names,
        f1=scores,
        baseline=baseline,
        baseline_ends=baseline_ends,
        ends=tuple(
            f1_ends(right, known, sentences, asked)
            for right, known in zip(nearest.right(), answered, strict=True)
        ),
        num_words=num_words,
        answered=int((nearest.answer[0] >= 0).sum()),
        map=_map(mapped, names[best], [item[best] for item in kept[:MAP_USES]], senses),
    )


def _baseline(memory: Sequence[SenseSentence], test: Sequence[SenseSentence]) -> tuple[float, Ends]:
    frequent = most_frequent(memory)
    words = [(tagged, at) for at, sentence in enumerate(test) for tagged in sentence.tagged]
    answers = [frequent.get(tagged.word) for tagged, _ in words]
    right = [answer in tagged.keys for answer, (tagged, _) in zip(answers, words, strict=True)]
    answered = [answer is not None for answer in answers]
    asked = [len(sentence.tagged) for sentence in test]
    ends = f1_ends(right, answered, [at for _, at in words], asked)
    return f1(sum(right), sum(answered), len(words)), ends


def _map(word: Word | None, layer: str, vectors: Sequence[Tensor], senses: Sequence[str]) -> SenseMap | None:
    if word is None or len(vectors) < LEAST_USES:
        return None
    stacked = torch.stack(list(vectors)).double()
    centred = stacked - stacked.mean(0)
    _, _, directions = torch.linalg.svd(centred, full_matrices=False)
    main = directions[:2]
    # A direction has no sign of its own; the largest part is made positive, so that runs agree.
    flat = centred @ (main * torch.sign(main.gather(1, main.abs().argmax(1, keepdim=True)))).T
    return SenseMap(
        word=word[0],
        layer=layer,
        points=tuple((x, y) for x, y in flat.tolist()),
        senses=tuple(senses[: len(vectors)]),
    )


def senses_section(models: Mapping[str, Senses]) -> Section:
    """Draw F1 over the layers, the table of all kinds, and each model's map of one word."""
    depth = max(sum(name.isdigit() for name in item.names) for item in models.values())
    test = next(iter(models.values())).test
    series: dict[str, tuple[float | None, ...]] = {}
    for name, item in models.items():
        values = [score for kind, score in zip(item.names, item.f1, strict=True) if kind.isdigit()]
        series[name] = (*values, *(None,) * (depth - len(values)))
        series[f"{name}: most frequent sense"] = (item.baseline,) * depth
    figures: list[Figure] = [
        Lines(
            title=f"Word senses by the nearest use in SemCor, on {test}",
            x_label="layer (0: embeddings)",
            y_label="F1 (%)",
            x=tuple(map(float, range(depth))),
            series=series,
            note="Lemma and part of speech are known."
            " Wiedemann et al. 2019 on Senseval-2: BERT 76.1, ELMo 67.6.",
        ),
        Table(
            title=f"F1 on {test} by what is compared",
            columns=("model", "vectors", "F1 (%)"),
            rows=tuple(
                (name, kind, round(score, 2))
                for name, item in models.items()
                for kind, score in (
                    *zip(item.names, item.f1, strict=True),
                    ("most frequent sense", item.baseline),
                )
            ),
        ),
    ]
    figures += [_map_figure(name, item.map) for name, item in models.items() if item.map]
    lines = []
    for name, item in models.items():
        best = max(range(len(item.f1)), key=lambda k: item.f1[k])
        lines.append(
            f"{name}: {item.test} F1 {told(item.f1[best], item.ends[best], '.1f')} with"
            f" {_called(item.names[best])}, most frequent sense"
            f" {told(item.baseline, item.baseline_ends, '.1f')}; SemCor holds {item.answered} of"
            f" {item.num_words} words."
        )
    return Section(title="Word senses", text=paragraphs(lines), figures=tuple(figures))


def _called(name: str) -> str:
    return f"layer {name}" if name.isdigit() else f"the {name}"


def _map_figure(name: str, item: SenseMap) -> Points:
    return Points(
        title=f'{name}: uses of "{item.word}" at {_called(item.layer)}, by sense',
        x_label="first direction",
        y_label="second direction",
        x=tuple(x for x, _ in item.points),
        y=tuple(y for _, y in item.points),
        names=tuple("" for _ in item.points),
        groups=item.senses,
        note="The two main directions of the vectors of its uses in SemCor.",
    )
