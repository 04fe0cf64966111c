"""Where do MPNet's fused gradients leave the plain ones? Attention with a trained position bias, by shape.

    python benchmarks/bias_gap.py [--attention | --model | --trained]

    attention   softmax(q kᵀ / √d + bias + mask) v alone, in bfloat16, by torch's kernels: how far output and
                gradients are from float32's, with a bias that lies as the encoder makes it, or row by row
    model       MPNet at base shape, random weights: how far the gradients of a step are from float32's,
                plain in bfloat16 and fused, whole or without a part, and the three kinds of weights that are
                furthest off
    trained     the same after 40 steps on texts of 32 tokens, as when a new shape is met within a training

A fused pass that is as near to float32 as the plain one is right, however far the two are from each other.
"""

import argparse
import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from step_shapes import BASE, SHAPED
from step_ways import METHODS, Ours, make_batch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from bermo.encoders import position_bias
from bermo.training.gradient_gap import TINY_DROPOUT, nearly_no_dropout
from bermo.training.step import WeightedBatch, to_device

SHAPES = ((32, 32), (64, 32), (128, 32), (32, 128), (64, 128))
NUM_STEPS = 40
MODEL_SHAPES = ((64, 32), (32, 128))
WAYS = (("", False), ("", True), ("attention", False), ("residual", False), ("linear", False))
"""Which part of the model is left to torch, and whether the bias lies row by row."""
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HEADS, SIZE, MIDDLE = 12, 64, 5000
LAYOUT = {False: "as made", True: "row by row"}
PARTS = ("output", "q", "k", "v", "bias")
BACKENDS = {"math": SDPBackend.MATH, "efficient": SDPBackend.EFFICIENT_ATTENTION}
Attention = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def eager(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """Attention as transformers writes it."""
    scores = q @ k.transpose(-1, -2) / math.sqrt(SIZE) + bias.to(q.dtype)
    return scores.float().softmax(-1).to(v.dtype) @ v


def by_kernel(name: str) -> Attention:
    """Attention by one of torch's kernels, with hardly any dropout."""

    def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        with sdpa_kernel(BACKENDS[name]):
            return functional.scaled_dot_product_attention(q, k, v, bias.to(q.dtype), dropout_p=TINY_DROPOUT)

    return attend


def run_attention(
    attend: Attention, rows: int, length: int, dtype: torch.dtype, is_row_by_row: bool
) -> list[Tensor]:
    """Return the output and the gradients of q, k, v and the table of biases, in float32."""
    generator = torch.Generator(DEVICE).manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device=DEVICE)

    joined = draw(rows, length, 3, HEADS, SIZE).to(dtype).requires_grad_()
    table = draw(length, length, HEADS).mul_(0.1).requires_grad_()
    weights = draw(rows, HEADS, length, SIZE)
    # As the encoder makes it: heads lie side by side, and every text reads the same numbers.
    bias = table.permute(2, 0, 1)[None].expand(rows, -1, -1, -1)
    mask = torch.zeros(rows, 1, 1, length, device=DEVICE)
    mask[::2, ..., length - length // 8 :] = torch.finfo(torch.float32).min
    bias = bias + mask
    q, k, v = (joined[:, :, part].transpose(1, 2) for part in range(3))
    out = attend(q, k, v, bias.contiguous() if is_row_by_row else bias).float()
    grads = torch.autograd.grad((out * weights).sum(), [joined, table])
    return [out.detach(), *grads[0].float().unbind(2), grads[1]]


def show_attention() -> None:
    """Print the gaps of every kernel, layout and shape."""
    ways = {"eager": eager, "math": by_kernel("math"), "efficient": by_kernel("efficient")}
    for rows, length in SHAPES:
        right = run_attention(eager, rows, length, torch.float32, True)
        for name, attend in ways.items():
            for is_row_by_row in (False, True):
                said = f"{rows} x {length} {name:9} {LAYOUT[is_row_by_row]:10}"
                try:
                    found = run_attention(attend, rows, length, torch.bfloat16, is_row_by_row)
                except RuntimeError as error:
                    print(said, str(error).partition("\n")[0])
                    continue
                gaps = (
                    f"{part} {relative(a, b):.2%}" for part, a, b in zip(PARTS, right, found, strict=True)
                )
                print(said, *gaps, flush=True)


def relative(a: Tensor, b: Tensor) -> float:
    """Return |b − a| / |a|."""
    return float((b - a).norm() / a.norm())


@contextmanager
def rows_of_bias(is_row_by_row: bool) -> Iterator[None]:
    """Let the encoder's bias lie row by row inside the block, so that torch's faster kernels take it."""
    made = position_bias._position_bias
    if is_row_by_row:
        position_bias._position_bias = lambda encoder, x: made(encoder, x).contiguous()
    try:
        yield
    finally:
        position_bias._position_bias = made


@dataclass(frozen=True)
class Pass:
    """The loss of a forward pass and the gradient of every parameter."""

    loss: float
    grads: dict[str, Tensor]


def run_pass(step: Ours, batch: dict[str, Tensor], is_fused: bool) -> Pass:
    """Run one pass with hardly any dropout; no weight changes."""
    plain = step.plain
    for hook in step.hooks:
        hook.plan(MIDDLE)
        hook.apply()
    if plain.shadow is not None:
        plain.shadow.refresh()
    plain.is_fused = is_fused
    with nearly_no_dropout(plain.model):
        loss = plain._backward([WeightedBatch(to_device(batch, torch.device(DEVICE)), 1.0, True)])
    plain.is_fused = False
    if plain.shadow is not None:
        plain.shadow.collect()
    named = zip(plain.names, plain.parameters, strict=True)
    grads = {name: p.grad.float() for name, p in named if p.grad is not None}
    plain.optimizer.zero_grad(set_to_none=True)
    return Pass(loss.item(), grads)


def made(*arguments: Any, **options: Any) -> Ours:
    """Return a step whose masks have scores without ties, the same for every precision."""
    step = Ours(*arguments, **options)
    generator = torch.Generator(DEVICE).manual_seed(1)
    for scores in step.pruner.score_parameters() if step.pruner is not None else ():
        scores.data.normal_(generator=generator)
    return step


def compared(right: Pass, found: Pass) -> str:
    """Name the three kinds of parameters that are furthest off, and all together."""
    kinds: dict[str, list[float]] = {}
    for name, grad in right.grads.items():
        sums = kinds.setdefault(re.sub(r"\d+", "", name).removeprefix("bermo.backbone."), [0.0, 0.0])
        sums[0] += float((found.grads[name] - grad).square().sum())
        sums[1] += float(grad.square().sum())
    total = sum(size for _, size in kinds.values())
    gaps = {kind: math.sqrt(gap / max(size, 1e-4 * total)) for kind, (gap, size) in kinds.items()}
    worst = ", ".join(f"{kind} {gaps[kind]:.0%}" for kind in sorted(gaps, key=lambda kind: -gaps[kind])[:3])
    whole = math.sqrt(sum(gap for gap, _ in kinds.values()) / total)
    losses = f"loss {found.loss:.5f} (not {right.loss:.5f})"
    return f"{losses}, gradients of {math.sqrt(total):.1e} {whole:.1%}; {worst}"


def show_model(family: str) -> None:
    """Print how far the gradients of steps are from those of float32."""
    options = argparse.Namespace(batch=32, without=[], scores="equal")
    config = SHAPED[family](BASE)
    batches = {shape: make_batch(*shape, seed=0) for shape in MODEL_SHAPES}
    for mix, method in (("none", None), ("across", METHODS["movement"])):
        right_step = made(options, mix, method, "off", precision="fp32", encoder=config)
        position_bias.set_position_bias_(right_step.plain.model)
        right = {shape: run_pass(right_step, batch, False) for shape, batch in batches.items()}
        for without, is_row_by_row in WAYS:
            options.without = [without] if without else []
            with rows_of_bias(is_row_by_row):
                step = made(options, mix, method, "auto", encoder=config)
                for shape, batch in batches.items():
                    for is_fused in (True, False) if (without, is_row_by_row) == WAYS[0] else (True,):
                        way = f"fused without {without or 'nothing'}" if is_fused else "plain"
                        found = run_pass(step, batch, is_fused)
                        print(
                            f"mix {mix}, {shape[0]} x {shape[1]}, {way}, {LAYOUT[is_row_by_row]}:",
                            compared(right[shape], found),
                            flush=True,
                        )


def show_trained(family: str) -> None:
    """Print how far the gradients of bfloat16 are from those of float32 after some steps."""
    options = argparse.Namespace(batch=32, without=[], scores="equal")
    config = SHAPED[family](BASE)
    seen = [make_batch(32, 32, seed) for seed in range(4)]
    for mix, method in (("none", None), ("across", METHODS["movement"])):
        step = Ours(options, mix, method, "auto", encoder=config)
        right_step = Ours(options, mix, method, "off", precision="fp32", encoder=config)
        position_bias.set_position_bias_(right_step.plain.model)
        for number in range(NUM_STEPS):
            step(MIDDLE + number, {name: tensor.to(DEVICE) for name, tensor in seen[number % 4].items()})
        right_step.plain.model.load_state_dict(step.plain.model.state_dict())
        for rows, length in ((32, 32), (32, 64), (32, 128)):
            batch = make_batch(rows, length, seed=9)
            right = run_pass(right_step, batch, False)
            plain, fused = (run_pass(step, batch, is_fused) for is_fused in (False, True))
            name = f"mix {mix}, {rows} x {length} after {NUM_STEPS} steps"
            print(f"{name}, plain:", compared(right, plain))
            print(f"{name}, fused:", compared(right, fused))
            print(f"{name}, fused beside plain:", compared(plain, fused), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--attention", action="store_true")
    parser.add_argument("--model", action="store_true")
    parser.add_argument("--trained", action="store_true")
    parser.add_argument("--family", default="mpnet")
    options = parser.parse_args()
    is_whole = not (options.attention or options.model or options.trained)
    if options.attention or is_whole:
        show_attention()
    if options.model or is_whole:
        show_model(options.family)
    if options.trained or is_whole:
        show_trained(options.family)


if __name__ == "__main__":
    main()
