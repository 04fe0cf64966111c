"""Attention over long texts, in memory linear in their length: to all tokens, or to those near each one.

    o_i = Σ_j softmax_j(scale · q_i k_j) v_j      over the real tokens j, with a window w those of |i − j| ≤ w

With a window, queries are taken in blocks of W: each block is a small attention of its own, to the W + 2w
keys that its queries can see. One small mask for each block holds window and padding.

On a GPU, inside `flash`, torch's flash kernel computes both kinds. It reads runs of tokens, one behind the
other, and knows no mask: the real tokens of a text and its padding are two runs, so a text's real tokens must
stand together. Without a window all queries of a text read its real tokens. With one, the kernel counts from
the ends of a run, so that padding sees the padding near it: here as in blocks. Nothing reads what it gives.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

SHORTEST = 384
"""Tokens of a text from which on no mask for all pairs of tokens is made."""
NARROWEST = 64
"""Queries of a block, at least."""
WIDEST = 256
"""Units of a head that the flash kernel reads at most."""
KEYS_AT_ONCE = 8
"""Keys of a mask that a GPU's memory-efficient kernel reads together."""
OUTSIDE = 2
"""The kind of what is no token of a text; 1 are real tokens, 0 is padding."""

_IS_FLASH = ContextVar("is_flash", default=False)


@contextmanager
def flash() -> Iterator[None]:
    """Let torch's flash kernel compute attention over long texts in this context, where it can."""
    token = _IS_FLASH.set(True)
    try:
        yield
    finally:
        _IS_FLASH.reset(token)


@dataclass(frozen=True, eq=False)
class Sight:
    """What the queries of a batch see: the real tokens (B, T), within a window to each side if it has one."""

    real: Tensor
    window: int | None
    is_whole: bool = False
    """No token is padding."""
    is_flash: bool = False
    """The flash kernel may compute it."""

    @cached_property
    def bounds(self) -> tuple[Tensor, Tensor]:
        """Where runs of queries and of keys end, from 0 on, (2 B + 1) each: two runs for each text."""
        keys = self._ends((_changes(self.real).cumsum(1) == 0).sum(1) + 1)
        if self.window is not None:
            return keys, keys
        # All queries of a text go with its real tokens, whichever run these are.
        return self._ends(self.real[:, 0] * self.real.shape[1]), keys

    def _ends(self, lengths: Tensor) -> Tensor:
        """Where the runs end if the first run of each text has this length."""
        texts, num_tokens = self.real.shape
        starts = torch.arange(0, texts * num_tokens, num_tokens, device=self.real.device)
        ends = torch.stack((starts + lengths, starts + num_tokens), dim=1)
        return functional.pad(ends.flatten(), (1, 0)).int()

    @cached_property
    def blocks(self) -> Tensor:
        """Which keys of its block a query can see, (B · blocks, 1, W, W + 2 w): those of its own kind, real
        tokens or padding or what is outside of a text, so that each sees one at least.
        """
        window, width, device = self.window or 0, self.width, self.real.device
        places = torch.arange(-window, width + window, device=device)
        near = (places - places[window : window + width, None]).abs() <= window
        kinds = self.real.to(torch.int8)
        after = -self.real.shape[1] % width
        own = functional.pad(kinds, (0, after), value=OUTSIDE).view(-1, 1, width, 1)
        beside = functional.pad(kinds, (window, after + window), value=OUTSIDE)
        seen = beside.unfold(1, width + 2 * window, width).flatten(0, 1)[:, None, None]
        return near & (own == seen)

    @property
    def width(self) -> int:
        """The queries of a block."""
        return max(self.window or 0, NARROWEST)


def _changes(real: Tensor) -> Tensor:
    """Tell of each token but the last whether the next one is of the other kind."""
    return real[:, 1:] != real[:, :-1]


def look(real: Tensor, window: int | None) -> Sight:
    """Return what can be seen of real tokens (B, T); inside `flash`, for its kernel if each text stands
    together.
    """
    is_captured = real.is_cuda and torch.cuda.is_current_stream_capturing()
    if real.is_cuda and _IS_FLASH.get():
        stands_together = (_changes(real).sum(1) <= 1).all()
        if is_captured:
            # The graph is replayed with other texts, for which this cannot be decided here.
            torch._assert_async(stands_together, "real tokens and padding of a long text are mixed")
        return Sight(real, window, is_flash=is_captured or bool(stands_together))
    return Sight(real, window, is_whole=not is_captured and bool(real.all()))


def attend_long(q: Tensor, k: Tensor, v: Tensor, sight: Sight, p: float, scale: float) -> Tensor:
    """Attention of (B, H, T, D), with dropout of chance p."""
    if sight.is_flash and _fits_flash(q):
        return _attend_in_runs(q, k, v, sight, p, scale)
    if sight.window is not None:
        return _attend_in_blocks(q, k, v, sight, p, scale)
    mask = None
    if not sight.is_whole:
        # A GPU's kernel reads masks by eight keys: torch would write one for all pairs to have room for more.
        after = -k.shape[2] % KEYS_AT_ONCE
        k, v = (_longer(one, after) for one in (k, v))
        mask = functional.pad(sight.real, (0, after))[:, None, None]
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=p, scale=scale)


def _fits_flash(q: Tensor) -> bool:
    is_half, size = q.dtype in (torch.bfloat16, torch.float16), q.shape[-1]
    return (
        is_half and size % 8 == 0 and size <= WIDEST and torch.cuda.get_device_capability(q.device) >= (8, 0)
    )


def _attend_in_runs(q: Tensor, k: Tensor, v: Tensor, sight: Sight, p: float, scale: float) -> Tensor:
    texts, heads, num_tokens, size = q.shape
    q, k, v = (one.transpose(1, 2).flatten(0, 1) for one in (q, k, v))
    of_queries, of_keys = sight.bounds
    out = run_flash(q, k, v, of_queries, of_keys, num_tokens, sight.window, p, scale)
    return out.view(texts, num_tokens, heads, size).transpose(1, 2)


def run_flash(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    of_queries: Tensor,
    of_keys: Tensor,
    longest: int,
    window: int | None,
    p: float,
    scale: float,
) -> Tensor:
    """torch's flash kernel on rows (N, H, D): the queries of each run see the keys of the same run."""
    side = -1 if window is None else window
    results = torch.ops.aten._flash_attention_forward(
        q,
        k,
        v,
        of_queries,
        of_keys,
        longest,
        longest,
        p,
        False,
        False,
        scale=scale,
        window_size_left=side,
        window_size_right=side,
    )
    out: Tensor = results[0]
    return out


def _attend_in_blocks(q: Tensor, k: Tensor, v: Tensor, sight: Sight, p: float, scale: float) -> Tensor:
    texts, heads, num_tokens, size = q.shape
    width, after = sight.width, -num_tokens % sight.width
    rows = [_longer(x, after).transpose(1, 2).flatten(0, 1) for x in (q, k, v)]
    keys, values = (Neighbours.apply(x, width, sight.window).transpose(1, 2) for x in rows[1:])
    queries = rows[0].unflatten(0, (-1, width)).transpose(1, 2)
    out = functional.scaled_dot_product_attention(
        queries, keys, values, attn_mask=sight.blocks, dropout_p=p, scale=scale
    )
    return out.transpose(1, 2).reshape(texts, -1, heads, size)[:, :num_tokens].transpose(1, 2)


def _longer(x: Tensor, after: int) -> Tensor:
    """Add zeros as tokens behind those of (B, H, T, D)."""
    return functional.pad(x, (0, 0, 0, after)) if after else x


class Neighbours(torch.autograd.Function):
    """Rows (N, H, D), W, w <= W -> blocks of W rows with w more to each side, (N / W, W + 2 w, H, D).

    What torch itself does backwards is slow on a CPU: it looks up every row's blocks.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, width: int, side: int) -> Tensor:
        ctx.width, ctx.side = width, side
        padded = functional.pad(rows, (0, 0, 0, 0, side, side))
        return padded.unfold(0, width + 2 * side, width).movedim(-1, 1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        width, side = ctx.width, ctx.side
        summed = grad[:, side : side + width].clone()
        summed[:-1, width - side :] += grad[1:, :side]
        summed[1:, :side] += grad[:-1, side + width :]
        return summed.flatten(0, 1), None, None
