"""Does it pay to leave the zeros of a pruned matrix out of its products? Microseconds on this machine.

    python benchmarks/sparse_products.py [--out results/sparse-products-cuda.json]

The matrices of a BERT-base layer with random masks, times 1,024 and 4,096 tokens (32 texts of 32 and 128), in
bfloat16: as dense matrices; as lists of what is left (CSR, cuSPARSE); and with two of four neighbours kept
(2:4, cuSPARSELt), which has to zero `lost` percent of what is left. `blocks`: the percentage of tiles of 16
by 16 in which something is left. One call of twenty in a CUDA graph, where it can be captured.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from attend import microseconds
from torch import Tensor
from torch.nn import functional

SHAPES = {"attention": (768, 768), "up": (3072, 768), "down": (768, 3072)}
TOKENS = (1024, 4096)
DENSITIES = (0.1, 0.03)
BLOCK = 16


def two_of_four(weight: Tensor) -> Tensor:
    """Keep the two largest of every four neighbours of a row."""
    groups = weight.reshape(-1, 4)
    order = groups.abs().argsort(dim=1, descending=True)
    return groups.scatter(1, order[:, 2:], 0.0).reshape(weight.shape)


def products(weight: Tensor, x: Tensor) -> dict[str, Callable[[], Tensor]]:
    """Return each way to multiply x by the transpose of a weight with zeros."""
    rows, columns = weight.to_sparse_csr(), x.T.contiguous()
    ways = {"dense": lambda: functional.linear(x, weight), "csr": lambda: rows @ columns}
    if x.is_cuda:
        packed = torch.sparse.to_sparse_semi_structured(two_of_four(weight))
        ways["two of four"] = lambda: functional.linear(x, packed)
    return ways


def timed(work: Callable[[], Any], device: torch.device) -> float:
    """Microseconds of a call: in a graph, or one by one where a library cannot be captured."""
    if device.type == "cuda":
        try:
            return microseconds(work)
        except RuntimeError:
            torch.cuda.synchronize()
    for _ in range(3):
        work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(50):
        work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return 1e6 * (time.perf_counter() - began) / 50


def measure(name: str, num_tokens: int, density: float, device: torch.device) -> dict[str, Any]:
    """Measure one matrix, and say how far each product is from the dense one of the same weight."""
    shape = SHAPES[name]
    draw = torch.Generator().manual_seed(0)
    weight = torch.randn(shape, generator=draw) * (torch.rand(shape, generator=draw) < density)
    x = torch.randn((num_tokens, shape[1]), generator=draw)
    weight, x = (tensor.to(device, torch.bfloat16) for tensor in (weight, x))
    tiles = weight.reshape(shape[0] // BLOCK, BLOCK, shape[1] // BLOCK, BLOCK).abs().amax((1, 3))
    kept = two_of_four(weight)
    row: dict[str, Any] = {
        "matrix": name,
        "tokens": num_tokens,
        "density": density,
        "blocks": 100 * (tiles > 0).float().mean().item(),
        "lost": 100 * (1 - kept.count_nonzero().item() / weight.count_nonzero().item()),
        "us": {},
        "errors": {},
    }
    for way, work in products(weight, x).items():
        try:
            row["us"][way] = round(timed(work, device), 2)
        except RuntimeError as error:
            row["errors"][way] = str(error).partition("\n")[0][:200]
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rows = []
    for name in SHAPES:
        for num_tokens in TOKENS:
            for density in DENSITIES:
                rows.append(measure(name, num_tokens, density, device))
                print(json.dumps(rows[-1]), flush=True)
    if options.out:
        known = {"device": str(device), "torch": torch.__version__, "rows": rows}
        if device.type == "cuda":
            known["device"] = torch.cuda.get_device_name()
        options.out.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
