"""More texts for a teacher to label: a copy of SST-2 whose training file has many variants of its sentences.

    python benchmarks/augment.py --model MODEL --data SST2 --times 5 --out FOLDER [--any-word]

A variant is drawn from one row (long rows more often: the phrases of train are shorter than the sentences of
dev) and changed in one of three ways: some words become near neighbours among the encoder's own word vectors,
two rows are joined, or a stretch of a row is taken alone. Nobody knows the variants' labels; they keep their
row's, so train with --distill-hard 0. With --any-word all words of the vocabulary can be neighbours, not only
those of the training texts: a student then meets words that it would first see after its training. Data
augmentation for distillation: Tang et al. 2019 (masks, n-grams); TinyBERT, Jiao et al. 2020 (neighbours).
"""

import argparse
import shutil
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer

NUM_NEIGHBOURS = 12
SHARE_REPLACED = 0.3
JOINS = (" , and ", " , but ", " . ", " -- ", " ; ", " ")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--times", type=float, default=5.0, help="rows written for each row read")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--any-word", action="store_true", help="neighbours from the whole vocabulary")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    header, *lines = (options.data / "train.tsv").read_text(encoding="utf-8").splitlines()
    rows = [line.rsplit("\t", 1) for line in lines]
    near = neighbours(options.model, rows, options.any_word)
    made = variants(rows, options.times - 1, near, options.seed)
    options.out.mkdir(parents=True)
    shutil.copy(options.data / "dev.tsv", options.out / "dev.tsv")
    text = "\n".join([header, *lines, *("\t".join(row) for row in made)]) + "\n"
    (options.out / "train.tsv").write_text(text, encoding="utf-8")
    print(f"{len(lines):,} rows and {len(made):,} variants")


def variants(
    rows: list[list[str]], times: float, near: dict[str, list[str]], seed: int
) -> list[tuple[str, str]]:
    """Draw `times` variants for each row, none of them twice."""
    draw = np.random.default_rng(seed)
    words = [row[0].split() for row in rows]
    lengths = np.array([len(item) for item in words], dtype=float)
    sources = draw.choice(len(rows), size=int(times * len(rows)), p=lengths / lengths.sum())
    made: dict[str, str] = {}
    for source in sources:
        ways = draw.random()
        chosen = words[source]
        if ways < 0.2:
            other = words[draw.integers(len(words))]
            chosen = [*chosen, *JOINS[draw.integers(len(JOINS))].split(), *other]
        elif ways < 0.4 and len(chosen) > 3:
            size = draw.integers(2, len(chosen))
            start = draw.integers(len(chosen) - size + 1)
            chosen = chosen[start : start + size]
        is_replaced = draw.random(len(chosen)) < SHARE_REPLACED * (0.5 if ways < 0.4 else 1.0)
        text = [
            near[word][draw.integers(len(near[word]))] if is_new and word in near else word
            for word, is_new in zip(chosen, is_replaced, strict=True)
        ]
        made.setdefault(" ".join(text), rows[source][1])
    return list(made.items())


@torch.no_grad()
def neighbours(model: str, rows: list[list[str]], any_word: bool = False) -> dict[str, list[str]]:
    """Return the nearest words by cosine for each word of the texts that is one piece of the vocabulary."""
    known = AutoTokenizer.from_pretrained(model).get_vocab()
    words = sorted({word for row in rows for word in row[0].split() if word.isalpha()})
    words = [word for word in words if word in known]
    others = sorted(word for word in known if is_word(word)) if any_word else words
    table = torch.nn.functional.normalize(
        AutoModel.from_pretrained(model).get_input_embeddings().weight.float(), dim=-1
    )
    candidates = table[[known[word] for word in others]]
    near: dict[str, list[str]] = {}
    count = min(NUM_NEIGHBOURS + 1, len(others))
    for start in range(0, len(words), 1000):
        some = words[start : start + 1000]
        likeness = table[[known[word] for word in some]] @ candidates.T
        for word, nearest in zip(some, likeness.topk(count).indices.tolist(), strict=True):
            near[word] = [others[index] for index in nearest if others[index] != word][:NUM_NEIGHBOURS]
    return near


def is_word(token: str) -> bool:
    """Tell whether a token is a word of at least three Latin letters."""
    return token.isascii() and token.isalpha() and len(token) > 2


if __name__ == "__main__":
    main()
