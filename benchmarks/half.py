"""Attention and dropout in bf16 on a CPU, torch against bermo/nn/fast/cpu_half.py, forward and backward.

    python benchmarks/half.py [--out results/half-x86.json]

Milliseconds of processor time on one thread, the median of calls that alternate; 32 texts, 12 heads of 32
units, hidden size 384, one key in eight masked in half of the texts. Ours are used where `has_fast_half`
says so.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import sdpa_kernel

from bermo.files import write_json
from bermo.machine import processor
from bermo.nn.fast.cpu_half import HalfOverrides, has_fast_half
from bermo.nn.fast.overrides import ATTENTION, FunctionOverrides

TEXTS, HEADS, SIZE, CALLS = 32, 12, 32, 11
HALF = torch.bfloat16


def both_ways(make: Callable[[], Tensor], inputs: tuple[Tensor, ...]) -> tuple[float, float]:
    """Return the milliseconds of a pass and its gradients, by torch and by ours."""
    grad = torch.randn_like(make())
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(CALLS):
        for times, kind in zip(taken, (FunctionOverrides, HalfOverrides), strict=True):
            started = time.process_time()
            with torch.autocast("cpu", HALF), sdpa_kernel(ATTENTION), kind():
                out = make()
            torch.autograd.grad(out, inputs, grad)
            times.append(1000 * (time.process_time() - started))
    # The first calls set libraries up.
    theirs, ours = (statistics.median(times[2:]) for times in taken)
    return theirs, ours


def measured(tokens: int) -> dict[str, tuple[float, float]]:
    """Return what each part takes, torch's milliseconds before ours."""
    drawn = torch.randn(3, TEXTS, tokens, HEADS, SIZE).to(HALF)
    q, k, v = (x.transpose(1, 2).detach().requires_grad_() for x in drawn)
    mask = torch.ones(TEXTS, 1, tokens, tokens, dtype=torch.bool)
    mask[::2, ..., tokens - tokens // 8 :] = False
    attend = partial(functional.scaled_dot_product_attention, q, k, v, attn_mask=mask)
    x = torch.randn(TEXTS, tokens, HEADS * SIZE).to(HALF).requires_grad_()
    return {
        "attention with dropout": both_ways(partial(attend, dropout_p=0.1), (q, k, v)),
        "attention without": both_ways(attend, (q, k, v)),
        "dropout": both_ways(partial(functional.dropout, x, 0.1), (x,)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for tokens in (8, 16, 32, 64, 128):
        for what, (theirs, ours) in measured(tokens).items():
            rows.append(
                {"what": what, "tokens": tokens, "torch_ms": round(theirs, 2), "ours_ms": round(ours, 2)}
            )
            print(
                f"{tokens:>3} tokens  {what:<24} torch {theirs:8.2f}   ours {ours:8.2f}"
                f"   {theirs / ours:5.2f} ×",
                flush=True,
            )
    if options.out is not None:
        own = processor()
        facts = {"machine": own.name, "torch": torch.__version__, "serves_here": has_fast_half(own)}
        write_json(options.out, facts | {"rows": rows})


if __name__ == "__main__":
    main()
