"""What a head's attention looks like: five classes (Kovaleva et al. 2019, "Revealing the dark secrets of
BERT").

    vertical       most of it goes to a few tokens, whichever token attends
    diagonal       most of it goes to the token itself or a neighbour
    both           vertical and diagonal together
    block          it stays inside the sentence of the token that attends
    heterogeneous  none of these

The classifier is a small network on nine numbers of a map. It learns from maps drawn to a class, of all
lengths and with noise, and its accuracy is that on other maps drawn the same way: it says how well the
classes can be separated, not how well they fit what a person would say of a real head.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn

CLASSES = ("vertical", "diagonal", "both", "block", "heterogeneous")
TRAIN_MAPS, TEST_MAPS, STEPS = 1000, 500, 200


def map_features(maps: Tensor, block: Tensor) -> Tensor:
    """Return nine features of each attention map (H, T, T); `block` (T) numbers each token's sentence."""
    length = maps.shape[-1]
    columns = maps.mean(-2)
    top = columns.topk(min(3, length), dim=-1).values
    offsets = [
        maps.diagonal(offset, dim1=-2, dim2=-1).sum(-1) / length
        for offset in range(-2, 3)
        if abs(offset) < length
    ]
    near = torch.stack(offsets)
    position = torch.arange(length, device=maps.device)
    band = maps[..., (position[:, None] - position).abs() <= 1].sum(-1) / length
    entropy = -(maps.clamp(min=1e-12).log() * maps).sum(-1).mean(-1)
    same = (block[:, None] == block).to(maps.dtype)
    inside, expected = (maps * same).sum((-1, -2)) / length, same.mean()
    constant = torch.ones_like(inside)
    return torch.stack(
        [
            top[..., 0],
            top.sum(-1),
            near.amax(0),
            band,
            entropy / torch.log(torch.tensor(max(2.0, float(length)))),
            (inside - expected) / (1 - expected).clamp(min=0.05) * (expected < 1),
            constant * expected,
            maps.amax(-1).mean(-1),
            constant / length,
        ],
        dim=-1,
    )


@dataclass(frozen=True, eq=False)
class PatternClassifier:
    """The network, how its inputs are scaled, and its accuracy on maps it has not seen."""

    network: nn.Sequential
    mean: Tensor
    deviation: Tensor
    accuracy: float

    def __call__(self, features: Tensor) -> Tensor:
        """Return the class of each map, as its index in `CLASSES`."""
        with torch.inference_mode():
            scaled = (features.float().cpu() - self.mean) / self.deviation
            return self.network(scaled).argmax(-1)


@cache
def pattern_classifier() -> PatternClassifier:
    """Train the classifier on drawn maps; it is always the same, and takes about a second."""
    # Whoever asks may be in inference mode.
    with torch.inference_mode(False), torch.enable_grad():
        return _train_classifier()


def _train_classifier() -> PatternClassifier:
    generator = torch.Generator().manual_seed(0)
    features, labels = _draw(TRAIN_MAPS + TEST_MAPS, generator)
    train, test = slice(0, TRAIN_MAPS), slice(TRAIN_MAPS, None)
    mean, deviation = features[train].mean(0), features[train].std(0) + 1e-6
    scaled = (features - mean) / deviation
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(features.shape[1], 24), nn.Tanh(), nn.Linear(24, 5))
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
    for _ in range(STEPS):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(scaled[train]), labels[train]).backward()
        optimizer.step()
    with torch.inference_mode():
        hits = network(scaled[test]).argmax(-1) == labels[test]
    return PatternClassifier(network, mean, deviation, float(hits.double().mean()))


def _draw(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    labels = torch.arange(count) % len(CLASSES)
    labels = labels[torch.randperm(count, generator=generator)]
    features = []
    for label in labels.tolist():
        attention, block = draw_map(CLASSES[label], generator)
        features.append(map_features(attention[None], block)[0])
    return torch.stack(features), labels


def draw_map(kind: str, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw one attention map of a class (T, T), and the sentence that each token stands in."""
    length = _integer(8, 48, generator)
    # One sentence has no blocks to stay inside, so a block map has two or more.
    num_blocks = _integer(2 if kind == "block" else 1, 3, generator)
    cuts = torch.sort(torch.randperm(length - 1, generator=generator)[: num_blocks - 1] + 1).values
    block = torch.bucketize(torch.arange(length), cuts, right=True)
    noise = torch.softmax(torch.randn(length, length, generator=generator) * _share(0.3, 2.5, generator), -1)
    parts: Sequence[Tensor]
    match kind:
        case "vertical":
            parts = [_columns(length, generator)]
        case "diagonal":
            parts = [_diagonal(length, generator)]
        case "both":
            own = _share(0.3, 0.7, generator)
            parts = [own * _columns(length, generator) + (1 - own) * _diagonal(length, generator)]
        case "block":
            same = (block[:, None] == block).float() * (0.2 + noise * length)
            parts = [same / same.sum(-1, keepdim=True)]
        case _:
            parts = [noise]
    strength = _share(0.3, 0.95, generator)
    return strength * parts[0] + (1 - strength) * noise, block


def _columns(length: int, generator: torch.Generator) -> Tensor:
    chosen = torch.randperm(length, generator=generator)[: _integer(1, 3, generator)]
    weights = (
        torch.rand(length, len(chosen), generator=generator)
        + 0.5
        + 3 * torch.rand(len(chosen), generator=generator)
    )
    attention = torch.zeros(length, length)
    attention[:, chosen] = weights / weights.sum(-1, keepdim=True)
    return attention


def _diagonal(length: int, generator: torch.Generator) -> Tensor:
    offset = _integer(-1, 1, generator)
    target = (torch.arange(length) + offset).clamp(0, length - 1)
    distance = (torch.arange(length) - target[:, None]).abs().float()
    return torch.softmax(-distance / _share(0.15, 0.8, generator), -1)


def _share(low: float, high: float, generator: torch.Generator) -> float:
    return low + (high - low) * float(torch.rand((), generator=generator))


def _integer(low: int, high: int, generator: torch.Generator) -> int:
    return int(torch.randint(low, high + 1, (), generator=generator))
