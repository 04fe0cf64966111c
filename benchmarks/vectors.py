"""Time of reading all layers of many sentences, against a plain forward pass over the same batches.

    python benchmarks/vectors.py MODEL [--count 100000] [--batch-size 256] [--precision bf16]

Sentences come from the package's grammar. Both passes tokenise and batch alike; the plain one keeps nothing
but the last layer's first token. The cache is a temporary folder, so nothing is reused. Prints one JSON line.
"""

import argparse
import json
import tempfile
import time

import torch

from bermo.data.sentences import generate
from bermo.vectors import Encoder, load_encoder, text_vectors
from bermo.vectors.stream import batches, forward


def plain(encoder: Encoder, texts: list[str], batch_size: int, precision: str) -> float:
    """Seconds of a forward pass over all texts."""
    start = time.perf_counter()
    last = encoder.num_layers - 1
    for batch in batches(encoder, texts, 128, batch_size, with_words=False):
        forward(encoder, batch, (last,), False, precision, lambda hidden: hidden[:, 0])  # type: ignore[arg-type]
    if encoder.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def pooled(encoder: Encoder, texts: list[str], batch_size: int, precision: str) -> float:
    """Seconds until the vectors of all layers are on disk."""
    with tempfile.TemporaryDirectory() as cache:
        start = time.perf_counter()
        text_vectors(encoder, texts, batch_size=batch_size, precision=precision, cache=cache)  # type: ignore[arg-type]
        return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--precision", default="fp32")
    options = parser.parse_args()
    encoder = load_encoder(options.model)
    texts = [item.text for item in generate("tense", options.count, seed=0)]
    # Warms up.
    plain(encoder, texts[:2048], options.batch_size, options.precision)
    seconds = {
        name: [measure(encoder, texts, options.batch_size, options.precision) for _ in range(3)]
        for name, measure in (("plain", plain), ("all_layers", pooled))
    }
    ratio = min(seconds["all_layers"]) / min(seconds["plain"])
    print(json.dumps({**vars(options), "device": str(encoder.device), **seconds, "ratio": ratio}))


if __name__ == "__main__":
    main()
