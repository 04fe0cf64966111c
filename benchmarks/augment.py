"""More texts for a teacher to label: a copy of SST-2 whose training file has many variants of its sentences.

    python benchmarks/augment.py --model MODEL --data SST2 --times 5 --out FOLDER

A variant is drawn from one row (long rows more often: the phrases of train are shorter than the sentences of
dev) and changed in one of three ways: some words become near neighbours among the encoder's own word vectors,
two rows are joined, or a stretch of a row is taken alone. Nobody knows the variants' labels; they keep their
row's, so train with --distill-hard 0. Data augmentation for distillation: Tang et al. 2019 (masking and
n-grams); TinyBERT, Jiao et al. 2020 (neighbours).
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
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    header, *lines = (options.data / "train.tsv").read_text(encoding="utf-8").splitlines()
    rows = [line.rsplit("\t", 1) for line in lines]
    made = variants(rows, options.times - 1, neighbours(options.model, rows), options.seed)
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
def neighbours(model: str, rows: list[list[str]]) -> dict[str, list[str]]:
    """Return the nearest words by cosine for each word of the texts that is one piece of the vocabulary."""
    known = AutoTokenizer.from_pretrained(model).get_vocab()
    words = sorted({word for row in rows for word in row[0].split() if word.isalpha()})
    words = [word for word in words if word in known]
    table = AutoModel.from_pretrained(model).get_input_embeddings().weight.float()
    vectors = torch.nn.functional.normalize(table[[known[word] for word in words]], dim=-1)
    nearest = (vectors @ vectors.T).topk(NUM_NEIGHBOURS + 1).indices[:, 1:].tolist()
    return {word: [words[index] for index in indices] for word, indices in zip(words, nearest, strict=True)}


if __name__ == "__main__":
    main()
