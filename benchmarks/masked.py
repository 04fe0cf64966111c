"""How many masked words an encoder guesses on a text, beside the same shape untrained and the commonest word.

    python benchmarks/masked.py wiki.valid.tokens [--model box] [--seed 0] [--rows N] [--out masked.json]

The text's rows of 128 tokens run on over lines; 15 % are masked once, from the seed, as in pretraining.
WikiText's own marks are undone first (" @-@ " is "-"), and its <unk> is left out: a guess of it would say
nothing. Prints one JSON line.
"""

import argparse
import json
import re
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator

from bermo.analyse.knowledge import load_masked
from bermo.data.pretrain.corpus import Pieces, Tokens, read_pieces
from bermo.data.pretrain.masking import Masker
from bermo.data.pretrain.packing import PackedBatches, Stream
from bermo.encoders.backbone import load_tokenizer
from bermo.files import write_json
from bermo.methods.pretraining.guess import score_guesses
from bermo.models.pretraining import MaskedPretraining
from bermo.models.tasks import BermoForMaskedLM

LENGTH, SHARE = 128, 0.15


def read_tokens(path: Path, model: str) -> tuple[Tokens, Pieces]:
    """Return the text as one stream of ids, its headings left out."""
    tokenizer = load_tokenizer(model)
    text = re.sub(r" @([-,.])@ ", r"\1", path.read_text(encoding="utf-8")).replace(" <unk>", "")
    lines = [line.strip() for line in text.split("\n")]
    body = [line for line in lines if line and not line.startswith("=")]
    ids_of_lines = tokenizer(body, add_special_tokens=False, verbose=False)["input_ids"]
    ids = np.array([token for line in ids_of_lines for token in line], dtype=np.int64)
    return Tokens(ids, np.array([0, len(ids)])), read_pieces(tokenizer)


def score(
    words: BermoForMaskedLM, held: PackedBatches, rows: np.ndarray, accelerator: Accelerator
) -> dict[str, float]:
    """Score each of the rows once."""
    model = MaskedPretraining(words.eval(), has_pairs=False).to(accelerator.device)
    return score_guesses(model, held, rows, accelerator)


def commonest(held: PackedBatches, rows: np.ndarray) -> float:
    """Return the share in percent of the masked positions at which the commonest word of the text stands."""
    batch = held.collate(rows)
    word = np.bincount(held.source.tokens.ids).argmax()
    is_right = (batch["targets"] == int(word)).float() * batch["weights"]
    return float(100 * is_right.sum() / batch["weights"].sum())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("text", type=Path)
    parser.add_argument("--model", default="box")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=int, help="score only the first so many rows")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    accelerator = Accelerator()
    tokens, pieces = read_tokens(options.text, options.model)
    source = Stream(tokens, pieces, LENGTH, options.seed)
    held = PackedBatches(source, Masker(pieces, "token", SHARE, options.seed), 64, options.seed)
    rows = np.arange(source.num_rows)[: options.rows]
    trained = load_masked(options.model)
    torch.manual_seed(1)
    untrained = BermoForMaskedLM(trained.config)  # type: ignore[arg-type]
    report = {
        "text": options.text.name,
        "model": options.model,
        "tokens": len(tokens.ids),
        "rows": len(rows),
        "trained": score(trained, held, rows, accelerator),
        "untrained": score(untrained, held, rows, accelerator),
        "commonest_word": commonest(held, rows),
        "device": str(accelerator.device),
    }
    print(json.dumps(report))
    if options.out is not None:
        write_json(options.out, report)


if __name__ == "__main__":
    main()
