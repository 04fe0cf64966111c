"""Milliseconds to choose the masks of BERT-base's 72 matrices (84.9 M scores) on a GPU, in a CUDA graph.

    python benchmarks/choose.py                    one model
    python benchmarks/choose.py --models 10 --width 384     ten models side by side, 213 M scores

For each rank (score, size = |W|·σ(S), magnitude) and scope: the first call (kernels compiled before), the
steady state with drifting scores (S += 1e-3·noise before each choice, not timed), all scores equal (the slow
route), and sorting. Every choice is held against the sorted one, and must be the same. Prints JSON.
"""

import argparse
import json
import statistics
from collections.abc import Callable

import torch
from torch import Tensor

from bermo.nn.fast.select import TopSelector
from bermo.nn.masks import top_masks_at


def milliseconds(way: Callable[[], object], before: Callable[[], object], repeats: int) -> float:
    """The median time of a captured call, each after an uncaptured and untimed one."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        way()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        way()
    times = []
    for _ in range(repeats):
        before()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return round(statistics.median(times), 4)


def ranked(scores: list[Tensor], weights: list[Tensor], rank: str) -> list[Tensor]:
    """What the twin sorts."""
    if rank == "score":
        return scores
    sizes = [weight.abs() for weight in weights]
    if rank == "magnitude":
        return sizes
    return [size * torch.sigmoid(score) for size, score in zip(sizes, scores, strict=True)]


def same(masks: list[Tensor], items: list[Tensor], kept: Tensor, segments: list[int]) -> bool:
    """Tell whether the masks are those of sorting, segment by segment."""
    for segment in range(len(kept)):
        own = [index for index, owner in enumerate(segments) if owner == segment]
        slow = top_masks_at([items[index] for index in own], kept[segment : segment + 1], True)
        if not all(torch.equal(masks[p], other) for p, other in zip(own, slow, strict=True)):
            return False
    return True


def measure(options: argparse.Namespace, rank: str, is_global: bool) -> dict[str, object]:
    """Time one rank and scope."""
    width = options.width
    matrices = ([(width, width)] * 4 + [(4 * width, width), (width, 4 * width)]) * 12
    shapes = matrices * options.models
    scores = [torch.randn(shape, device="cuda") for shape in shapes]
    weights = [0.05 * torch.randn(shape, device="cuda") for shape in shapes]
    masks = [torch.ones(shape, dtype=torch.bool, device="cuda") for shape in shapes]
    segments = [index // 72 if is_global else index for index in range(len(shapes))]
    sizes = [0] * (segments[-1] + 1)
    for segment, score in zip(segments, scores, strict=True):
        sizes[segment] += score.numel()
    kept = torch.tensor([int(options.density * size) for size in sizes], device="cuda")
    selector = TopSelector(
        masks,
        scores=None if rank == "magnitude" else scores,
        weights=None if rank == "score" else weights,
        segments=segments,
    )
    row: dict[str, object] = {"rank": rank, "scope": "global" if is_global else "matrix"}
    row["scores"] = sum(sizes)

    def choose() -> None:
        selector.select_(kept)

    def drift() -> None:
        for item in (*scores, *weights):
            item.add_(torch.randn_like(item), alpha=1e-3 * options.drift)

    # Compiles.
    choose()
    row["first_same"] = same(masks, ranked(scores, weights, rank), kept, segments)
    row["steady_ms"] = milliseconds(choose, drift, options.repeats)
    row["steady_same"] = same(masks, ranked(scores, weights, rank), kept, segments)
    row["candidates"] = round(int(selector.inside.sum()) / sum(sizes), 5)
    row["fullest_slots"] = int(selector.fullest.max())
    row["segments_by_slow_route"] = int((selector.routes == 2).sum())
    row["segments_with_ties"] = int(selector.is_tied.sum())
    if options.trace:
        row["kernels_us"] = trace(choose)
    items = ranked(scores, weights, rank)
    if not is_global:
        row["sort_ms"] = milliseconds(
            lambda: [item.flatten().sort(descending=True) for item in items], lambda: None, 5
        )
    for item in (*scores, *weights):
        item.fill_(1.0)
    row["all_equal_ms"] = milliseconds(choose, lambda: None, 5)
    row["all_equal_same"] = same(masks, ranked(scores, weights, rank), kept, segments)
    return row


def trace(choose: Callable[[], None]) -> dict[str, float]:
    """Microseconds of each kernel in one call."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        choose()
        torch.cuda.synchronize()
    events = profile.key_averages()
    return {event.key[:60]: round(event.device_time_total, 1) for event in events}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=768, help="768 is BERT-base, 384 gte-small")
    parser.add_argument("--models", type=int, default=1, help="how many side by side")
    parser.add_argument("--density", type=float, default=0.1)
    parser.add_argument("--drift", type=float, default=1.0, help="thousandths a step")
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--trace", action="store_true", help="also each kernel's time")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("this measures kernels of a GPU, and torch sees none on this machine.")
    print(json.dumps({"device": torch.cuda.get_device_name(), "torch": torch.__version__}))
    for rank, is_global in (
        ("score", False),
        ("size", False),
        ("magnitude", False),
        ("score", True),
    ):
        print(json.dumps(measure(options, rank, is_global)), flush=True)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
