"""A function of a batch as CUDA graphs: one for each shape that comes again, replayed in one launch.

    replays = Replays(function);   replays(batch) -> the function's tensors, which the next call overwrites

A shape is computed plainly when it first comes and captured when it comes again, so that a short job captures
nothing. What a graph gives is compared once with the plain result. A function that cannot be captured, or
whose graph gives something else, is computed plainly from then on, and this is said once.
"""

import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bermo.nn.fast.available import has_kernels
from bermo.nn.fast.long import flash
from bermo.nn.fast.overrides import NumbersOnDevice

MOST_GRAPHS = 64
LARGEST_GAPS = {torch.float32: 1e-3, torch.float16: 0.03, torch.bfloat16: 0.1}
"""How far a graph with kernels of ours may be from the plain result, relative to it, by the precision."""

Batch = Mapping[str, Tensor]
Function = Callable[[Batch], tuple[Tensor, ...]]
Context = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Captured:
    """A graph of one shape: where its inputs and outputs lie, and how it is run again."""

    inputs: dict[str, Tensor]
    outputs: tuple[Tensor, ...]
    replay: Callable[[], None]

    def run(self, batch: Batch) -> tuple[Tensor, ...]:
        """Put a batch of the same shape in place of the inputs and run again."""
        for name, tensor in batch.items():
            self.inputs[name].copy_(tensor, non_blocking=True)
        self.replay()
        return self.outputs


class Replays:
    """A function of batches on a GPU, by graphs where they can be captured; threads may share it."""

    def __init__(
        self,
        function: Function,
        device: torch.device,
        precision: torch.dtype = torch.float32,
        context: Context = nullcontext,
        capture: "Callable[[Function, Batch, Any], Captured] | None" = None,
    ) -> None:
        """In `context` the captured function is computed by other kernels than the plain one."""
        self.function, self.device, self.context = function, device, context
        self.largest_gap = LARGEST_GAPS[precision]
        self.capture = capture or capture_graph
        self.seen: set[Any] = set()
        self.graphs: dict[Any, Captured] = {}
        self.can_capture = True
        self.pool: Any = None
        self.lock = threading.Lock()

    @torch.inference_mode()
    def __call__(self, batch: Batch, take: Callable[[Tensor], Tensor] = torch.clone) -> tuple[Tensor, ...]:
        """Return what `take` makes of the function's tensors, before another thread can overwrite them."""
        key = tuple((name, tuple(tensor.shape)) for name, tensor in batch.items())
        with self.lock:
            graph = self.graphs.get(key)
            if graph is not None:
                return tuple(map(take, graph.run(batch)))
            outputs = self.function({k: v.to(self.device, non_blocking=True) for k, v in batch.items()})
            if key in self.seen and self.can_capture and len(self.graphs) < MOST_GRAPHS:
                self._add(key, batch, outputs)
            self.seen.add(key)
            return tuple(map(take, outputs))

    def _add(self, key: Any, batch: Batch, expected: tuple[Tensor, ...]) -> None:
        """Capture a shape and keep its graph, if it gives what the plain function gave."""
        try:
            with self.context():
                graph = self.capture(self.function, batch, self.pool_handle)
            gap = max(_gap(a, b) for a, b in zip(graph.run(batch), expected, strict=True))
        except (RuntimeError, NotImplementedError) as error:
            self._give_up(f"cannot be captured as a CUDA graph ({str(error).strip().partition(chr(10))[0]})")
            return
        if gap <= self.largest_gap:
            self.graphs[key] = graph
        else:
            self._give_up(f"gives other numbers as a CUDA graph (off by {gap:.0%})")

    @property
    def pool_handle(self) -> Any:
        """The memory that all graphs share, since one runs at a time."""
        if self.pool is None and self.device.type == "cuda":
            self.pool = torch.cuda.graph_pool_handle()
        return self.pool

    def _give_up(self, why: str) -> None:
        self.can_capture = False
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        warnings.warn(f"The model {why}: going on with plain calls.", stacklevel=4)


def capture_graph(function: Function, batch: Batch, pool: Any) -> Captured:
    """Capture a call of the function; other threads may use the GPU meanwhile."""
    inputs = {name: tensor.cuda() for name, tensor in batch.items()}
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    # Libraries set themselves up in the first call of a shape, which cannot be captured. Without padding
    # transformers would leave the mask out here, and then read it in the graph.
    device = next(iter(inputs.values())).device
    with torch.cuda.stream(side), NumbersOnDevice(device):
        function(_with_padding(inputs))
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"), NumbersOnDevice(device):
        outputs = function(inputs)
    return Captured(inputs, outputs, graph.replay)


@contextmanager
def fused_attention(late: Any = None) -> Iterator[None]:
    """Let kernels of ours compute attention over texts, and torch's flash kernel over long ones.

    `late`, a `Late`, knows of the sums that products of queries, keys and values wait for.
    """
    with ExitStack() as stack:
        stack.enter_context(flash())
        if has_kernels():
            from bermo.nn.fast.attend import AttentionOverride

            stack.enter_context(AttentionOverride(late))
        yield


def _with_padding(inputs: Batch) -> dict[str, Tensor]:
    """Return the inputs with a mask whose last token is padding, where texts have more than one."""
    mask = inputs.get("attention_mask")
    if mask is None or mask.shape[-1] < 2:
        return dict(inputs)
    shorter = mask.clone()
    shorter[..., -1] = 0
    return {**inputs, "attention_mask": shorter}


def _gap(found: Tensor, expected: Tensor) -> float:
    """Return how far a tensor is from another, relative to that; what is not a number must be so in both."""
    difference = (found.float().nan_to_num() - expected.float().nan_to_num()).norm()
    return float(difference / expected.float().nan_to_num().norm().clamp(min=1e-6))
