"""The structural probe on every frozen layer: distances and depths of trees (nn/structural.py).

The layer is chosen by the UUAS of dev. Beside it stand the linear chain, which joins neighbours, layer 0,
which knows no context, and the same encoder untrained. Intervals are over resamples of the test sentences. A
sentence with a word that was not read is left out, and so is one of a single word.
"""

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from bermo.data.conllu import ParsedSentence, tree_of
from bermo.data.trees import (
    Edge,
    Matrix,
    chain_distances,
    spanning_trees,
    tree_depths,
    tree_distances,
)
from bermo.data.word_tasks import WordSource
from bermo.errors import BermoError
from bermo.files import read_sealed, reading, write_sealed
from bermo.methods.probing.spec import ProbeSpec
from bermo.methods.probing.tree_scores import (
    Tree,
    TreeScores,
    right_edges,
    score,
    score_layers,
    share_found,
)
from bermo.methods.probing.word_rows import ReadSource
from bermo.nn.structural import StructuralProbes, TreeBatch, TreeSettings, fit_structural
from bermo.progress import Display, counted

BATCH = 20
EXAMPLES, EXAMPLE_WORDS = 2, (7, 13)
PUNCTUATION = "PUNCT"


@dataclass(frozen=True, kw_only=True)
class TreeExample:
    """A test sentence: its words, its true edges, and those of the predicted spanning tree."""

    words: tuple[str, ...]
    true: tuple[Edge, ...]
    predicted: tuple[Edge, ...]


@dataclass(frozen=True, kw_only=True)
class TreeProbed:
    """The structural probes of all layers."""

    layers: tuple[str, ...]
    dev_uuas: tuple[float, ...]
    scores: tuple[TreeScores, ...]
    chain: TreeScores
    untrained: tuple[TreeScores, ...]
    """Of the layers proper; empty without controls."""
    rank: int
    rows: tuple[int, int, int]
    examples: tuple[TreeExample, ...]
    source: str = ""
    seconds: float = 0.0
    digest: str = ""

    @property
    def proper(self) -> list[int]:
        """Places of the layers proper."""
        return [at for at, name in enumerate(self.layers) if name.isdigit()]

    @property
    def best(self) -> int:
        """The place of the layer with the best UUAS on dev."""
        return max(self.proper, key=lambda at: self.dev_uuas[at])


def tree_digest(source: WordSource) -> str:
    """Name the trees of a source by their content."""
    content = [
        (s.words, s.heads, s.upos) for part in source.parts for s in part if isinstance(s, ParsedSentence)
    ]
    return hashlib.sha256(repr(content).encode()).hexdigest()


def check_trees(source: WordSource) -> None:
    """Refuse sentences that are no trees, before any vector is read."""
    for part in source.parts:
        for sentence in part:
            if isinstance(sentence, ParsedSentence):
                tree_of(source.path, sentence)


def probe_trees(
    read: ReadSource,
    untrained: ReadSource | None,
    source: WordSource,
    names: Sequence[str],
    spec: ProbeSpec,
    display: Display,
) -> TreeProbed:
    """Fit distance and depth probes on every layer and score them on test."""
    start = time.monotonic()
    parts = [_trees(source, read, part) for part in range(3)]
    if not all(parts):
        raise BermoError(
            f"{source.path}: a part has no sentence of two words or more that the encoder reads whole."
        )
    proper = [at for at, name in enumerate(names) if name.isdigit()]
    scores, dev, examples = _fit(read, parts, proper, spec, display, "trees")
    return TreeProbed(
        layers=tuple(names),
        dev_uuas=tuple(dev),
        scores=tuple(scores),
        chain=_chain(parts[2]),
        untrained=tuple(_fit(untrained, parts, proper, spec, display, "trees, untrained")[0])
        if untrained
        else (),
        rank=min(spec.rank, read.words.vectors_LWD.shape[-1]),
        rows=(len(parts[0]), len(parts[1]), len(parts[2])),
        examples=tuple(examples),
        seconds=time.monotonic() - start,
        digest=tree_digest(source),
    )


def _trees(source: WordSource, read: ReadSource, part: int) -> list[Tree]:
    trees = []
    for number, sentence in enumerate(source.parts[part]):
        begin = read.words.starts[read.firsts[part] + number]
        count = len(sentence.words)
        if not isinstance(sentence, ParsedSentence) or count < 2:
            continue
        if not bool(read.words.is_read_W[begin : begin + count].all()):
            continue
        heads = tree_of(source.path, sentence)
        kept = tuple(at for at, tag in enumerate(sentence.upos) if tag != PUNCTUATION)
        trees.append(
            Tree(
                words=sentence.words,
                heads=heads,
                kept=kept,
                begin=begin,
                distances=tree_distances(heads),
                depths=tree_depths(heads),
            )
        )
    return trees


def _batches(read: ReadSource, trees: Sequence[Tree], scale_L: torch.Tensor) -> list[TreeBatch]:
    """Put sentences of like length together, padded, each layer's vectors divided by its scale."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    order = sorted(range(len(trees)), key=lambda at: (len(trees[at].heads), at))
    batches = []
    for begin in range(0, len(order), BATCH):
        chosen = [trees[at] for at in order[begin : begin + BATCH]]
        longest = max(len(tree.heads) for tree in chosen)
        vectors = read.words.vectors_LWD
        x = torch.zeros(len(vectors), len(chosen), longest, vectors.shape[-1])
        is_word = torch.zeros(len(chosen), longest, dtype=torch.bool)
        distances = torch.zeros(len(chosen), longest, longest)
        depths = torch.zeros(len(chosen), longest)
        for at, tree in enumerate(chosen):
            count = len(tree.heads)
            x[:, at, :count] = vectors[:, tree.begin : tree.begin + count].float() / scale_L[:, None, None]
            is_word[at, :count] = True
            distances[at, :count, :count] = torch.from_numpy(tree.distances)
            depths[at, :count] = torch.from_numpy(tree.depths)
        moved = (item.to(device) for item in (x, is_word, distances, depths))
        batches.append(
            TreeBatch(**dict(zip(("x_LSTD", "is_word_ST", "distances_STT", "depths_ST"), moved, strict=True)))
        )
    return batches


def _fit(
    read: ReadSource,
    parts: Sequence[Sequence[Tree]],
    proper: Sequence[int],
    spec: ProbeSpec,
    display: Display,
    what: str,
) -> tuple[list[TreeScores], list[float], list[TreeExample]]:
    """Return the test scores of each layer, the dev UUAS, and examples of the best layer by dev."""
    # One number a layer, so that its geometry stays as it is.
    scale_L = torch.stack([layer.float().std() for layer in read.words.vectors_LWD]).clamp(min=1e-6)
    train, dev = (_batches(read, part, scale_L) for part in parts[:2])
    settings = TreeSettings(rank=spec.rank, seed=spec.seed)
    with counted(display, what, 2 * settings.epochs) as advance:
        far = fit_structural(train, dev, "distance", settings, advance)
        deep = fit_structural(train, dev, "depth", settings, advance)
    found = [_predict(read, part, scale_L, far, deep) for part in parts[1:]]
    right_LS = right_edges(parts[1], [distances for distances, _ in found[0]])
    totals = [len(tree.edges) for tree in parts[1]]
    dev_uuas = [share_found(right, totals)[0] for right in right_LS]
    scores = score_layers(
        parts[2], [distances for distances, _ in found[1]], [depths for _, depths in found[1]]
    )
    best = max(proper, key=lambda layer: dev_uuas[layer])
    return scores, dev_uuas, _examples(parts[2], [distances[best] for distances, _ in found[1]])


@torch.no_grad()
def _predict(
    read: ReadSource,
    trees: Sequence[Tree],
    scale_L: torch.Tensor,
    far: StructuralProbes,
    deep: StructuralProbes,
) -> list[tuple[Matrix, Matrix]]:
    """Return the predicted distances (L, T, T) and depths (L, T) of each sentence."""
    found = []
    for tree in trees:
        vectors = read.words.vectors_LWD[:, tree.begin : tree.begin + len(tree.heads)].float()
        x = (vectors / scale_L[:, None, None])[:, None].to(far.weight.device)
        found.append(
            (far.distances(x)[:, 0].double().cpu().numpy(), deep.depths(x)[:, 0].double().cpu().numpy())
        )
    return found


def _chain(trees: Sequence[Tree]) -> TreeScores:
    """Score the baseline that joins each word with the next."""
    return score(trees, [chain_distances(len(tree.heads)) for tree in trees])


def _examples(trees: Sequence[Tree], distances: Sequence[Matrix]) -> list[TreeExample]:
    """Return the first test sentences of a length that can be drawn."""
    low, high = EXAMPLE_WORDS
    fits = [(t, d) for t, d in zip(trees, distances, strict=True) if low <= len(t.words) <= high]
    chosen = (fits or list(zip(trees, distances, strict=True)))[:EXAMPLES]
    return [
        TreeExample(
            words=tree.words,
            true=tuple(sorted(tree.edges)),
            predicted=tuple(sorted(spanning_trees(predicted[None], tree.kept)[0])),
        )
        for tree, predicted in chosen
    ]


def write_trees(path: Path, probed: TreeProbed) -> None:
    """Write the results."""
    write_sealed(path, asdict(probed))


def read_trees(path: Path, expected: str | None = None) -> TreeProbed | None:
    """Return the written results, or None; results of other trees than the expected ones are an error."""
    if not path.exists():
        return None
    with reading(path, "Delete it, and the same command measures it again."):
        values = read_sealed(path)
        probed = TreeProbed(
            **{
                **{name: _frozen(value) for name, value in values.items()},
                "scores": tuple(map(_scores, values["scores"])),
                "untrained": tuple(map(_scores, values["untrained"])),
                "chain": _scores(values["chain"]),
                "examples": tuple(TreeExample(**_frozen(item)) for item in values["examples"]),
            }
        )
    if expected is not None and probed.digest != expected:
        raise BermoError(f"The data of {path} has changed since. Give another folder with --out.")
    return probed


def _scores(values: Mapping[str, Any]) -> TreeScores:
    return TreeScores(**_frozen(dict(values)))


def _frozen(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    return {name: _frozen(item) for name, item in value.items()} if isinstance(value, dict) else value
