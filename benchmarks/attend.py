"""Attention on a GPU: our kernels against torch's, microseconds in each direction and errors against float32.

    python benchmarks/attend.py [--out results/attend-cuda.json]

Both are captured as CUDA graphs and replayed, so no launch from Python is in the time. Torch's is given the
same padding mask; ours reads it as bits, which all layers share.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import sdpa_kernel

from bermo.nn.fast.attend_bits import seen_of
from bermo.nn.fast.overrides import ATTENTION
from bermo.nn.fast.tiles import tiles

SHAPES = [
    (320, 12, 16, 32),
    (208, 12, 24, 32),
    (156, 12, 32, 32),
    (125, 12, 40, 32),
    (78, 12, 64, 32),
    (32, 12, 32, 64),
    (32, 12, 64, 64),
    (32, 12, 128, 64),
    (32, 12, 256, 64),
    (32, 12, 512, 64),
]
"""Texts, heads, tokens, units: ten stacked models of 384 units with 5,000 tokens; BERT-base with 32 texts."""


def make(shape: tuple[int, ...], seed: int = 0) -> tuple[list[Tensor], Tensor, Tensor]:
    """q, k and v as views of one product, a padding mask, a gradient."""
    texts, heads, tokens, size = shape
    generator = torch.Generator("cuda").manual_seed(seed)
    product = torch.randn(texts, tokens, 3, heads, size, device="cuda", generator=generator)
    parts = [part.transpose(1, 2).requires_grad_() for part in product.bfloat16().unbind(2)]
    lengths = torch.randint(tokens // 2, tokens + 1, (texts, 1), device="cuda", generator=generator)
    mask = (torch.arange(tokens, device="cuda") < lengths)[:, None, None, :]
    grad = torch.randn(texts, tokens, heads, size, device="cuda", generator=generator).bfloat16()
    return parts, mask.expand(texts, 1, tokens, tokens).contiguous(), grad.transpose(1, 2)


def microseconds(work: Callable[[], Any], num: int = 20, repeats: int = 10) -> float:
    """The mean time of one call, of `num` in a graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(num):
            work()
    graph.replay()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(repeats):
        graph.replay()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) * 1000 / num / repeats


def ways(parts: list[Tensor], mask: Tensor, p: float) -> dict[str, Callable[[], Tensor]]:
    seed = torch.tensor([7], device="cuda")

    def theirs() -> Tensor:
        with sdpa_kernel(ATTENTION):
            return functional.scaled_dot_product_attention(*parts, mask, p)

    texts, _, tokens, _ = parts[0].shape
    seen = seen_of(mask, texts, tokens, mask.device)
    return {"ours": lambda: tiles(*parts, seen, seed, p), "torch": theirs}


def errors(parts: list[Tensor], mask: Tensor, grad: Tensor) -> dict[str, float]:
    """Return each way's largest error against float32, of output and gradients, over the largest value."""
    wide = [part.detach().float().requires_grad_() for part in parts]
    exact = functional.scaled_dot_product_attention(*wide, mask)
    expected = [exact, *torch.autograd.grad(exact, wide, grad.float())]
    largest = {}
    for name, way in ways(parts, mask, 0.0).items():
        out = way()
        mine = [out, *torch.autograd.grad(out, parts, grad)]
        shares = [(a.float() - b).abs().max() / b.abs().max() for a, b in zip(mine, expected, strict=True)]
        largest[f"error, {name}"] = float(max(shares))
    return largest


def measure(shape: tuple[int, ...], p: float) -> dict[str, Any]:
    parts, mask, grad = make(shape)
    row: dict[str, Any] = {"shape": shape, "dropout": p}
    for name, way in ways(parts, mask, p).items():

        def both(way: Callable[[], Tensor] = way) -> Any:
            return torch.autograd.grad(way(), parts, grad)

        with torch.no_grad():
            row[f"forward, {name}"] = microseconds(way)
        row[f"both, {name}"] = microseconds(both)
    return row | errors(parts, mask, grad)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--dropout", type=float, nargs="+", default=[0.1, 0.0])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("this measures kernels of a GPU, and torch sees none on this machine.")
    rows = []
    for p in options.dropout:
        for shape in SHAPES:
            row = measure(shape, p)
            rows.append(row)
            print(
                "  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()),
                flush=True,
            )
    if options.out:
        device = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
        options.out.write_text(json.dumps(device | {"rows": rows}, indent=1))


if __name__ == "__main__":
    main()
