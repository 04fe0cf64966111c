"""How far do an encoder's states move when its smallest weights are zeroed, without any training?

    python benchmarks/zeroed.py TEXTS.tsv MODEL... [--texts 256] [--out results/zeroed.json]

By size, movement pruning begins with the smallest weights of each matrix. Here a share of them goes at once:
in all layers, in the first or the last quarter of the layers, in attention alone, in the feed-forward parts
alone; and, to compare, as many at random. TEXTS has a text in the first column of each line, under a header.
An encoder is called as its folder. Of each layer, embeddings first:

    cosine        mean over tokens of cos(h, h'), h' the state with zeros
    norm          mean over tokens of |h'| / |h|
    differences   mean over texts of cos(v - m, v' - m'), v a text's mean vector and m their mean over all
                  texts: 1 where texts still differ as before, 0 where nothing is left of how they differ
    alike         mean cosine between the mean vectors v' of two texts: 1 where all texts have become one

`energy` is the share of the squared weights that is left, a mean over the matrices in which zeros are.
"""

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from bermo.encoders.backbone import hidden_states, load_encoder, load_tokenizer, make_inputs
from bermo.encoders.sites import Site
from bermo.encoders.structure import groups_of
from bermo.files import write_json
from bermo.nn.masks import top_mask

SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
RANDOM = "all layers, at random"
BATCH = 32
MAX_LENGTH = 64
Order = Callable[[Tensor], Tensor]


def parts_of(encoder: PreTrainedModel) -> dict[str, list[Site]]:
    """Return the matrices of each part of an encoder."""
    kinds: dict[str, list[Site]] = {"heads": [], "neurons": []}
    for group in groups_of(encoder):
        kinds[group.kind] += [*group.inputs, group.output]
    every = [*kinds["heads"], *kinds["neurons"]]
    depth = max(site.layer for site in every)
    quarter = math.ceil(depth / 4)
    return {
        "all layers": every,
        "first quarter": [site for site in every if site.layer <= quarter],
        "last quarter": [site for site in every if site.layer > depth - quarter],
        "attention": kinds["heads"],
        "feed-forward": kinds["neurons"],
    }


def zero_(sites: Sequence[Site], share: float, order: Order = torch.abs) -> float:
    """Zero the lowest weights of each matrix in place; return the share of the squares that is left."""
    energies = []
    for site in sites:
        weight = site.weight.data
        before = weight.square().sum()
        weight.mul_(top_mask(order(weight), math.floor((1 - share) * weight.numel())))
        energies.append((weight.square().sum() / before).item())
    return sum(energies) / len(energies)


def states(encoder: PreTrainedModel, tokenizer: Any, texts: Sequence[str]) -> Iterator[list[Tensor]]:
    """Yield all layers of one text after the other, each of (tokens, width)."""
    for start in range(0, len(texts), BATCH):
        tokens = tokenizer(
            list(texts[start : start + BATCH]),
            padding=True,
            truncation=True,
            max_length=MAX_LENGTH,
            return_tensors="pt",
        )
        inputs = make_inputs(
            encoder, tokens["input_ids"], tokens["attention_mask"], tokens.get("token_type_ids"), None
        )
        with torch.no_grad():
            layers = hidden_states(encoder, inputs).hidden_states
        for row, mask in enumerate(tokens["attention_mask"].bool()):
            yield [layer[row, mask] for layer in layers or ()]


def compare(before: Sequence[list[Tensor]], after: Sequence[list[Tensor]]) -> dict[str, list[float]]:
    """Return how far each layer moved."""
    found: dict[str, list[float]] = {"cosine": [], "norm": [], "differences": [], "alike": []}
    for layer in range(len(before[0])):
        old, new = (torch.cat([text[layer] for text in texts]) for texts in (before, after))
        means, moved = (torch.stack([text[layer].mean(0) for text in texts]) for texts in (before, after))
        unit = nn.functional.normalize(moved, dim=-1)
        count = len(unit)
        found["cosine"].append(_cosine(old, new))
        found["norm"].append((new.norm(dim=-1) / old.norm(dim=-1)).mean().item())
        found["differences"].append(_cosine(means - means.mean(0), moved - moved.mean(0)))
        found["alike"].append(((unit.sum(0).square().sum() - count) / (count * (count - 1))).item())
    return {name: [round(value, 4) for value in values] for name, values in found.items()}


def _cosine(one: Tensor, other: Tensor) -> float:
    return nn.functional.cosine_similarity(one, other, dim=-1).mean().item()


def measure(folder: str, texts: Sequence[str]) -> list[dict[str, Any]]:
    """Return a row for each part and share of one encoder."""
    encoder = load_encoder(folder).encoder.eval()
    tokenizer = load_tokenizer(folder)
    before = list(states(encoder, tokenizer, texts))
    rows: list[dict[str, Any]] = [{"part": "none", "share": 0.0, "energy": 1.0, **compare(before, before)}]
    parts = parts_of(encoder)
    for part, sites in {**parts, RANDOM: parts["all layers"]}.items():
        whole = [site.weight.detach().clone() for site in sites]
        for share in SHARES:
            torch.manual_seed(0)
            energy = zero_(sites, share, torch.rand_like if part == RANDOM else torch.abs)
            moved = compare(before, list(states(encoder, tokenizer, texts)))
            rows.append({"part": part, "share": share, "energy": round(energy, 4), **moved})
            last = {name: values[-1] for name, values in moved.items()}
            print(Path(folder).name, part, f"{share:.0%}", f"energy {energy:.3f}", last, flush=True)
            for site, weight in zip(sites, whole, strict=True):
                site.weight.data.copy_(weight)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--texts", type=int, default=256)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    lines = options.file.read_text(encoding="utf-8").splitlines()[1 : options.texts + 1]
    texts = [line.split("\t")[0] for line in lines]
    known = {Path(folder).name: measure(folder, texts) for folder in options.models}
    if options.out is not None:
        write_json(options.out, {"texts": len(texts), "encoders": known})


if __name__ == "__main__":
    main()
