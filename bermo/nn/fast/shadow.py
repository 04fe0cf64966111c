"""Copies that the forward pass reads instead of the matrices: masked, in the working dtype, made once a step.

    W̃ = M ⊙ W                      before the forward pass, for all matrices in one pass, unless what chose
                                    the masks has written them (nn.fast.select)
    dW = M ⊙ G,  dS = G ⊙ W         after the backward pass, from the gradient G of W̃, in one pass
    dW = z ⊙ G,  dS = z' ⊙ G ⊙ W    for hard-concrete masks, M = z

The results are those of the masks' own forward and backward, to the bit. On a GPU Triton does each pass in
one launch; elsewhere a loop in plain torch does it, which is also the reference.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from bermo.nn.fast.available import has_kernels
from bermo.nn.fast.penalty import PenaltySize
from bermo.nn.masks import HardConcrete, Mask, ScoreMask, TopMask

if TYPE_CHECKING:
    from bermo.nn.fast.rows import Tables


class Shadow:
    """The copies of masked and of plain weights.

    Call `refresh` before each pass through the model, and `collect` after it.
    """

    def __init__(
        self,
        masked: Sequence[tuple[Mask, nn.Parameter]],
        plain: Mapping[str, nn.Parameter],
        dtype: torch.dtype,
        num_models: int = 1,
    ) -> None:
        """The first axis of each masked weight is one of `num_models`, which have penalties of their own."""
        self.masked, self.dtype = list(masked), dtype
        self.sources = list(plain.values())
        self.plain = _copies(plain, dtype)
        weights = [weight for _, weight in self.masked]
        numbered = {str(index): weight for index, weight in enumerate(weights)}
        for (mask, _), copy in zip(self.masked, _copies(numbered, dtype).values(), strict=True):
            mask.copy, mask.is_copied = copy, False
        self.grad_views: dict[int, Tensor] = {}
        self.free_views: dict[int, Tensor] = {}
        self.renewed: set[int] = set()
        self.penalty_size: PenaltySize | None = None
        self.hard_concrete: Any = None
        self.tables: list[Tables] = []
        """Whose gradients stay rows until the update."""
        self.num_models = num_models
        self.has_kernels = bool(weights) and weights[0].is_cuda and has_kernels()
        if weights and isinstance(self.masked[0][0], HardConcrete):
            can_split = num_models == 1 or all(w[0].numel() % 16 == 0 for w in weights)
            if self.has_kernels and can_split:
                self._use_hard_concrete_kernels()
            self.has_kernels = False
        elif self.has_kernels:
            from bermo.nn.fast.kernels import Chunks, addresses

            self.chunks = Chunks([weight.numel() for weight in weights], weights[0].device)
            self.weights = addresses([weight.detach() for weight in weights])
            self.masks = addresses([mask.mask for mask, _ in self.masked])
            self.copies = addresses([_given(mask.copy).detach() for mask, _ in self.masked])

    def _use_hard_concrete_kernels(self) -> None:
        from bermo.nn.fast.score_kernels import HardConcreteKernels

        weights = [weight.detach() for _, weight in self.masked]
        noises = [mask.noise for mask, _ in self.masked if isinstance(mask, HardConcrete)]
        copies = [copy.detach() for copy in self.masked_copies()]
        self.hard_concrete = HardConcreteKernels(weights, noises, copies, self.track_penalty_())

    def track_penalty_(self) -> PenaltySize:
        """From now on a penalty's gradient is one number for each model, and `collect` adds dS from it."""
        scored = self._scored()
        self.penalty_size = PenaltySize(scored, self.num_models)
        for mask in scored:
            mask.penalty_size = self.penalty_size
        return self.penalty_size

    def _scored(self) -> list[ScoreMask | HardConcrete]:
        return [mask for mask, _ in self.masked if not isinstance(mask, TopMask)]

    @torch.no_grad()
    def refresh(self) -> None:
        """Write the copies again, from the current weights and masks.

        Masked copies that were written with their masks are taken as they are, once.
        """
        self.free_views = dict(self.grad_views)
        for tables in self.tables:
            tables.found.clear()
        if self.penalty_size is not None:
            self.penalty_size.grad.zero_()
        self._copy_plain([pair for pair in self.pairs() if id(pair[1]) not in self.renewed])
        is_done = bool(self.masked) and all(mask.is_copied for mask, _ in self.masked)
        for mask, _ in self.masked:
            mask.is_copied = False
        if not is_done:
            self._copy_masked()

    def _copy_masked(self) -> None:
        if self.has_kernels:
            from bermo.nn.fast.kernels import mask_copy_

            mask_copy_(self.chunks, self.weights, self.masks, self.copies, self._is_half())
            return
        if self.hard_concrete is not None:
            self.hard_concrete.copy_(self._is_half())
            return
        for mask, weight in self.masked:
            values = mask.values() if isinstance(mask, HardConcrete) else mask.mask
            _given(mask.copy).copy_(weight * values.view_as(weight))

    def pairs(self) -> list[tuple[nn.Parameter, Tensor]]:
        """The plain weights, each with its copy."""
        return list(zip(self.sources, self.plain.values(), strict=True))

    @torch.no_grad()
    def renew(self, copies: Sequence[Tensor]) -> None:
        """Write these plain copies now, but not in `refresh`: whatever changes their weights writes them."""
        self.renewed |= {id(copy) for copy in copies}
        self._copy_plain([pair for pair in self.pairs() if id(pair[1]) in self.renewed])

    def _copy_plain(self, pairs: Sequence[tuple[nn.Parameter, Tensor]]) -> None:
        if pairs:
            torch._foreach_copy_([copy.detach() for _, copy in pairs], [weight for weight, _ in pairs])

    def keep_grads_(self, copies: Sequence[Tensor]) -> Tensor:
        """Return one buffer that holds these copies' gradients from now on; see `take` and `gather`."""
        sizes = [-(-copy.numel() // 16) * 16 for copy in copies]
        flat = torch.zeros(sum(sizes), dtype=self.dtype, device=copies[0].device)
        for copy, part in zip(copies, flat.split(sizes), strict=True):
            self.grad_views[id(copy)] = part[: copy.numel()].view(copy.shape)
        return flat

    def take(self, copies: Sequence[Tensor]) -> Tensor | None:
        """The part of the buffer for the gradient of neighbouring copies; None if it is taken or missing.

        Each part is given once a step: what reads a copy a second time must add to it, and not overwrite it.
        """
        views = [self.free_views.pop(id(copy), None) for copy in copies]
        first = views[0]
        if first is None or not are_side_by_side(views):
            return None
        return first.as_strided((len(views) * first.shape[0], *first.shape[1:]), first.stride())

    @torch.no_grad()
    def gather(self, copies: Sequence[Tensor]) -> None:
        """Copy these gradients into their buffer, if they are not there yet, and reset the copies' `grad`."""
        pairs = [(self.grad_views[id(copy)], copy.grad) for copy in copies]
        absent = [(to, grad) for to, grad in pairs if grad is None or grad.data_ptr() != to.data_ptr()]
        for to, grad in absent:
            if grad is None:
                to.zero_()
        moved = [(to, grad) for to, grad in absent if grad is not None]
        if moved:
            torch._foreach_copy_([to for to, _ in moved], [grad for _, grad in moved])
        for copy in copies:
            copy.grad = None

    def masked_copies(self) -> list[Tensor]:
        """The copies of the masked weights."""
        return [_given(mask.copy) for mask, _ in self.masked]

    @torch.no_grad()
    def collect(self, left: Sequence[Tensor] = (), as_rows: Sequence["Tables"] = ()) -> None:
        """Turn the copies' gradients into those of weights and scores, and rows into tables' gradients.

        The copies `left` keep theirs, and the tables `as_rows`; among the copies are all masked ones or none.
        """
        for tables in self.tables:
            if tables not in as_rows:
                tables.spread_()
        ids = {id(copy) for copy in left}
        pairs = [(w, c) for w, c in self.pairs() if c.grad is not None and id(c) not in ids]
        for weight, _ in pairs:
            weight.grad = torch.empty_like(weight)
        if pairs:
            torch._foreach_copy_([_given(w.grad) for w, _ in pairs], [_given(c.grad) for _, c in pairs])
        masked = self.masked_copies()
        if masked and id(masked[0]) not in ids:
            self._collect_masked()
        for copy in (*self.plain.values(), *masked):
            if id(copy) not in ids:
                copy.grad = None

    @contextmanager
    def shaken(self, seed: int) -> Iterator[None]:
        """Move each number of the copies at random inside the block, by half a unit of rounding at most."""
        copies = [copy.detach() for copy in (*self.plain.values(), *self.masked_copies())]
        kept = [copy.clone() for copy in copies]
        generator = torch.Generator(copies[0].device).manual_seed(seed)
        unit = torch.finfo(self.dtype).eps / 2
        for copy in copies:
            share = torch.rand(copy.shape, generator=generator, device=copy.device)
            copy.copy_(copy.float() * (1 + unit * (2 * share - 1)))
        try:
            yield
        finally:
            torch._foreach_copy_(copies, kept)

    def close(self) -> None:
        """Let the masks compute for themselves again."""
        for mask, _ in self.masked:
            mask.copy = None
        for mask in self._scored():
            mask.penalty_size = None

    def _collect_masked(self) -> None:
        copies = self.masked_copies()
        unread = [w for (_, w), c in zip(self.masked, copies, strict=True) if c.grad is None]
        grads = [torch.zeros_like(c) if c.grad is None else c.grad for c in copies]
        added = [mask.scores.grad for mask in self._scored()]
        if self.has_kernels or self.hard_concrete is not None:
            self._collect_by_kernels(grads)
        else:
            for (mask, weight), grad in zip(self.masked, grads, strict=True):
                _collect_one_(mask, weight, grad.to(weight.dtype))
        if added and added[0] is not None:
            # The penalty's gradient, which came first.
            new = [_given(mask.scores.grad) for mask in self._scored()]
            torch._foreach_add_(new, [_given(grad) for grad in added])
        if self.penalty_size is not None and self.penalty_size.is_used and self.hard_concrete is None:
            self.penalty_size.add_grads_()
        # Weights of layers that no head reads: torch's optimisers leave a weight without a gradient alone.
        for weight in unread:
            weight.grad = None

    def _collect_by_kernels(self, grads: list[Tensor]) -> None:
        from bermo.nn.fast.kernels import mask_grads

        if self.hard_concrete is not None:
            of_weights, of_scores = self.hard_concrete.grads(grads)
        else:
            is_scored = bool(self._scored())
            of_weights, of_scores = mask_grads(self.chunks, self.weights, self.masks, grads, is_scored)
        for (_, weight), grad in zip(self.masked, of_weights, strict=True):
            weight.grad = grad.view_as(weight)
        for mask, grad in zip(self._scored(), of_scores, strict=True):
            mask.scores.grad = grad.view_as(mask.scores)

    def _is_half(self) -> bool:
        return self.dtype == torch.bfloat16


def _collect_one_(mask: Mask, weight: nn.Parameter, grad: Tensor) -> None:
    """The gradients of a weight and its scores from that of its copy; of a hard-concrete mask by autograd."""
    if isinstance(mask, HardConcrete):
        with torch.enable_grad():
            copy = weight * mask.values().view_as(weight)
        weight.grad, mask.scores.grad = torch.autograd.grad(copy, (weight, mask.scores), grad)
        return
    weight.grad = grad * mask.mask.view_as(weight)
    if isinstance(mask, ScoreMask):
        mask.scores.grad = (grad * weight).view_as(mask.scores)


def _copies(weights: Mapping[str, nn.Parameter], dtype: torch.dtype) -> dict[str, Tensor]:
    """Empty leaves of the same shapes that take gradients, in one buffer: matrices first, then vectors.

    So the matrices of neighbouring layers are neighbours in memory, and so are their biases; each starts at a
    multiple of 16 elements.
    """
    if not weights:
        return {}
    order = sorted(weights, key=lambda name: weights[name].dim() < 2 or name.endswith(".bias"))
    sizes = [-(-weights[name].numel() // 16) * 16 for name in order]
    device = next(iter(weights.values())).device
    parts = torch.empty(sum(sizes), dtype=dtype, device=device).split(sizes)
    copies = {}
    for name, part in zip(order, parts, strict=True):
        shape = weights[name].shape
        copies[name] = part[: shape.numel()].view(shape).detach().requires_grad_()
    return {name: copies[name] for name in weights}


def are_side_by_side(tensors: Sequence[Tensor | None]) -> bool:
    """Tell whether tensors of one shape follow each other in one storage."""
    first = tensors[0]
    if first is None:
        return False
    size = first.numel() * first.element_size()
    return all(
        tensor is not None
        and tensor.is_contiguous()
        and (tensor.shape, tensor.dtype) == (first.shape, first.dtype)
        and tensor.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()
        and tensor.data_ptr() == first.data_ptr() + index * size
        for index, tensor in enumerate(tensors)
    )


def _given(value: Tensor | None) -> Tensor:
    assert value is not None
    return value
