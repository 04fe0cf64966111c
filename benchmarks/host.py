"""Attention with dropout, and gelu, forward and backward on this processor: torch's own passes against ours (bermo/nn/host.py).

    python benchmarks/host.py [--threads 2] [--out results/host-cpu.json]

Milliseconds, the median of many calls; 32 texts, heads of 32 units, feed-forward units 4 × width. Ours serve where `IS_SLOW` says so; a ratio well
over 1 on another kind of processor is a reason to say so there, too.
"""

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import torch
from torch.nn import functional

from bermo.files import write_json
from bermo.nn.host import IS_SLOW, Hosting

TEXTS, SIZE = 32, 32


def median_ms(call: Callable[[], object], seconds: float = 0.5) -> float:
    """Return the median of calls that take so long together, after three."""
    for _ in range(3):
        call()
    taken, ends = [], time.perf_counter() + seconds
    while time.perf_counter() < ends or len(taken) < 5:
        start = time.perf_counter()
        call()
        taken.append(1000 * (time.perf_counter() - start))
    return statistics.median(taken)


def both_ways(make: Callable[[], torch.Tensor], inputs: tuple[torch.Tensor, ...]) -> list[float]:
    """Return the milliseconds of a pass and its gradients, by torch and by ours."""
    grad = torch.randn_like(make())
    found = []
    for kind in (nullcontext, Hosting):

        def call(kind: Callable[[], object] = kind) -> None:
            with kind():  # type: ignore[attr-defined]
                out = make()
            torch.autograd.grad(out, inputs, grad)

        found.append(median_ms(call))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = []
    for heads in (7, 12):
        for tokens in (8, 16, 24, 32, 64):
            q, k, v = (torch.randn(TEXTS, tokens, heads, SIZE).transpose(1, 2).requires_grad_() for _ in range(3))  # fmt: skip
            x = torch.randn(TEXTS * tokens, 4 * heads * SIZE, requires_grad=True)
            for name, make, inputs in (
                ("attention", lambda q=q, k=k, v=v: functional.scaled_dot_product_attention(q, k, v, dropout_p=0.1), (q, k, v)),
                ("gelu", lambda x=x: functional.gelu(x), (x,)),
            ):  # fmt: skip
                theirs, ours = both_ways(make, inputs)  # type: ignore[arg-type]
                rows.append({"what": name, "heads": heads, "tokens": tokens, "torch_ms": round(theirs, 2), "ours_ms": round(ours, 2)})  # fmt: skip
                print(f"{name:<10} {heads:>2} heads {tokens:>3} tokens   torch {theirs:7.2f}   ours {ours:7.2f}   {theirs / ours:5.2f} ×", flush=True)  # fmt: skip
    if options.out is not None:
        write_json(options.out, {
            "machine": platform.machine(), "threads": options.threads, "torch": torch.__version__, "serves_here": IS_SLOW, "rows": rows,
        })  # fmt: skip


if __name__ == "__main__":
    main()
