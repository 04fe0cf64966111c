"""Slow parts of a training step on a CPU, torch against bermo/nn/fast/cpu.py: attention, gelu, whole steps.

    python benchmarks/host.py [--threads 2] [--out results/host-cpu.json]

Milliseconds, the median of many calls: a batch of products whose second factor is transposed, as it lies and
after a copy; attention and gelu, forward and backward; a step of the box with AdamW. 32 texts, heads of 32
units, feed-forward units 4 × width. Ours are used where `are_slow_in_torch` says so; a ratio well over 1 on
another kind of CPU is a reason to add it there.
"""

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from bermo.files import write_json
from bermo.models.tasks import BermoForSequenceClassification
from bermo.nn.fast.cpu import CpuOverrides, is_slow_here

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

    def call(kind: type[Any]) -> None:
        with kind():
            out = make()
        torch.autograd.grad(out, inputs, grad)

    return [median_ms(partial(call, kind)) for kind in (nullcontext, CpuOverrides)]


def steps_of_the_box(tokens: int) -> list[float]:
    """Return the milliseconds of a whole training step, by torch and by ours."""
    model = BermoForSequenceClassification.from_backbone("box", num_labels=2).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    batch = {"input_ids": torch.randint(5, 8000, (TEXTS, tokens)), "labels": torch.randint(0, 2, (TEXTS,))}

    def step(kind: type[Any]) -> None:
        with kind():
            loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return [median_ms(partial(step, kind), 2.0) for kind in (nullcontext, CpuOverrides)]


def products(heads: int, tokens: int) -> list[float]:
    """Return the milliseconds of a batch of products g vᵀ, as v lies and after a copy."""
    g, v = torch.randn(2, TEXTS * heads, tokens, SIZE)
    turned = v.transpose(1, 2)
    return [median_ms(lambda: torch.bmm(g, turned)), median_ms(lambda: torch.bmm(g, turned.contiguous()))]


def measured(heads: int, tokens: int) -> dict[str, list[float]]:
    """Return what each part takes, torch's milliseconds before ours."""
    q, k, v = (torch.randn(TEXTS, tokens, heads, SIZE).transpose(1, 2).requires_grad_() for _ in range(3))
    x = torch.randn(TEXTS * tokens, 4 * heads * SIZE, requires_grad=True)
    attend = partial(functional.scaled_dot_product_attention, q, k, v, dropout_p=0.1)
    return {
        "products": products(heads, tokens),
        "attention": both_ways(attend, (q, k, v)),
        "gelu": both_ways(partial(functional.gelu, x), (x,)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = []
    for tokens in (8, 16, 24, 32, 48):
        measured_pairs = {
            f"{name}, {heads} heads": pair
            for heads in (7, 12)
            for name, pair in measured(heads, tokens).items()
        }
        for name, (theirs, ours) in (
            measured_pairs | {"a step of the box": steps_of_the_box(tokens)}
        ).items():
            rows.append(
                {"what": name, "tokens": tokens, "torch_ms": round(theirs, 2), "ours_ms": round(ours, 2)}
            )
            print(
                f"{tokens:>3} tokens  {name:<20} torch {theirs:8.2f}   ours {ours:8.2f}"
                f"   {theirs / ours:5.2f} ×",
                flush=True,
            )
    if options.out is not None:
        write_json(
            options.out,
            {
                "machine": platform.machine(),
                "threads": options.threads,
                "torch": torch.__version__,
                "serves_here": is_slow_here(),
                "rows": rows,
            },
        )


if __name__ == "__main__":
    main()
