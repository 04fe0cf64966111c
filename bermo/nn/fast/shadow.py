"""Copies that the forward pass reads in place of the matrices: masked, in the working dtype, made once a step.

    W̃ = M ⊙ W                      before the forward pass, for all matrices in one pass
    dW = M ⊙ G,  dS = G ⊙ W         after the backward pass, from the gradient G of W̃, in one pass
    dW = z ⊙ G,  dS = z' ⊙ G ⊙ W    for hard-concrete gates z, which are M

The same numbers come out as from the masks' own forward and backward, to the bit. On a graphics card Triton does each
pass in one launch; elsewhere a loop in plain torch does, which is also their reference.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bermo.nn.fast.available import has_kernels
from bermo.nn.fast.penalty import Sizes
from bermo.nn.masks import HardConcrete, Mask, ScoreMask, TopMask


class Shadow:
    """The copies of masked and of plain weights, `refresh` before and `collect` after each pass through the model."""

    def __init__(
        self,
        masked: Sequence[tuple[Mask, nn.Parameter]],
        plain: Mapping[str, nn.Parameter],
        dtype: torch.dtype,
        num_models: int = 1,
    ) -> None:
        """`num_models` lie along the first axis of each masked weight; a penalty pulls at each with its own strength."""
        self.masked, self.dtype = list(masked), dtype
        self.sources = list(plain.values())
        self.plain = _copies(plain, dtype)
        weights = [weight for _, weight in self.masked]
        numbered = {str(place): weight for place, weight in enumerate(weights)}
        for (mask, _), copy in zip(self.masked, _copies(numbered, dtype).values(), strict=True):
            mask.copy = copy
        self.places: dict[int, Tensor] = {}
        self.free: dict[int, Tensor] = {}
        self.renewed: set[int] = set()
        self.sizes: Sizes | None = None
        self.gates: Any = None
        self.num_models = num_models
        self.has_kernels = bool(weights) and weights[0].is_cuda and has_kernels()
        if weights and isinstance(self.masked[0][0], HardConcrete):
            can_cut = num_models == 1 or all(w[0].numel() % 16 == 0 for w in weights)
            if self.has_kernels and can_cut:
                self._make_gates()
            self.has_kernels = False
        elif self.has_kernels:
            from bermo.nn.fast.kernels import Chunks, addresses

            self.chunks = Chunks([weight.numel() for weight in weights], weights[0].device)
            self.weights = addresses([weight.detach() for weight in weights])
            self.masks = addresses([mask.mask for mask, _ in self.masked])
            self.copies = addresses([_given(mask.copy).detach() for mask, _ in self.masked])

    def _make_gates(self) -> None:
        from bermo.nn.fast.gate_kernels import GateKernels

        weights = [weight.detach() for _, weight in self.masked]
        noises = [mask.noise for mask, _ in self.masked if isinstance(mask, HardConcrete)]
        copies = [copy.detach() for copy in self.masked_copies()]
        self.gates = GateKernels(weights, noises, copies, self.keep_pull_())

    def keep_pull_(self) -> Sizes:
        """From now on a penalty on the masks' sizes leaves one number a model, which is added with the other gradients."""
        scored = self._scored()
        self.sizes = Sizes(scored, self.num_models)
        for mask in scored:
            mask.sizes = self.sizes
        return self.sizes

    def _scored(self) -> list[ScoreMask | HardConcrete]:
        return [mask for mask, _ in self.masked if not isinstance(mask, TopMask)]

    @torch.no_grad()
    def refresh(self) -> None:
        """Make the copies anew from the weights and masks as they stand."""
        self.free = dict(self.places)
        if self.sizes is not None:
            self.sizes.pull.zero_()
        self._copy_plain([pair for pair in self.pairs() if id(pair[1]) not in self.renewed])
        if self.has_kernels:
            from bermo.nn.fast.kernels import mask_copy_

            mask_copy_(self.chunks, self.weights, self.masks, self.copies, self._is_half())
            return
        if self.gates is not None:
            self.gates.copy_(self._is_half())
            return
        for mask, weight in self.masked:
            values = mask.gates() if isinstance(mask, HardConcrete) else mask.mask
            _given(mask.copy).copy_(weight * values.view_as(weight))

    def pairs(self) -> list[tuple[nn.Parameter, Tensor]]:
        """The plain weights, each with its copy."""
        return list(zip(self.sources, self.plain.values(), strict=True))

    @torch.no_grad()
    def renew(self, copies: Sequence[Tensor]) -> None:
        """Make these plain copies anew, now and not by `refresh`: from now on whoever changes their weights does it."""
        self.renewed |= {id(copy) for copy in copies}
        self._copy_plain([pair for pair in self.pairs() if id(pair[1]) in self.renewed])

    def _copy_plain(self, pairs: Sequence[tuple[nn.Parameter, Tensor]]) -> None:
        if pairs:
            torch._foreach_copy_([copy.detach() for _, copy in pairs], [weight for weight, _ in pairs])

    def keep_grads_(self, copies: Sequence[Tensor]) -> Tensor:
        """From now on these copies' gradients lie in one buffer, which is returned; see `take` and `gather`."""
        sizes = [-(-copy.numel() // 16) * 16 for copy in copies]
        flat = torch.zeros(sum(sizes), dtype=self.dtype, device=copies[0].device)
        for copy, part in zip(copies, flat.split(sizes), strict=True):
            self.places[id(copy)] = part[: copy.numel()].view(copy.shape)
        return flat

    def take(self, copies: Sequence[Tensor]) -> Tensor | None:
        """Where the gradient of these copies, side by side, may be written; None if there is no such place or it is taken.

        A place is given once a step: what reads a copy a second time must add, and not write over.
        """
        found = [self.free.pop(id(copy), None) for copy in copies]
        first = found[0]
        if first is None or not are_side_by_side(found):
            return None
        return first.as_strided((len(found) * first.shape[0], *first.shape[1:]), first.stride())

    @torch.no_grad()
    def gather(self, copies: Sequence[Tensor]) -> None:
        """Bring these copies' gradients into their buffer, those that are not there yet, and forget them."""
        pairs = [(self.places[id(copy)], copy.grad) for copy in copies]
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
        return [_given(mask.copy) for mask, _ in self.masked]

    @torch.no_grad()
    def collect(self, left: Sequence[Tensor] = ()) -> None:
        """Turn the copies' gradients into those of weights and scores; `left` copies keep theirs, all masked ones or none of them."""
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

    def close(self) -> None:
        """Let the masks compute for themselves again."""
        for mask, _ in self.masked:
            mask.copy = None
        for mask in self._scored():
            mask.sizes = None

    def _collect_masked(self) -> None:
        copies = self.masked_copies()
        unread = [w for (_, w), c in zip(self.masked, copies, strict=True) if c.grad is None]
        grads = [torch.zeros_like(c) if c.grad is None else c.grad for c in copies]
        added = [mask.scores.grad for mask in self._scored()]
        if self.has_kernels or self.gates is not None:
            self._collect_by_kernels(grads)
        else:
            for (mask, weight), grad in zip(self.masked, grads, strict=True):
                _collect_one_(mask, weight, grad.to(weight.dtype))
        if added and added[0] is not None:  # the penalty's gradient came before
            new = [_given(mask.scores.grad) for mask in self._scored()]
            torch._foreach_add_(new, [_given(grad) for grad in added])
        if self.sizes is not None and self.sizes.is_used and self.gates is None:
            self.sizes.add_grads_()
        for weight in unread:  # of layers that no head reads: torch leaves such a weight alone
            weight.grad = None

    def _collect_by_kernels(self, grads: list[Tensor]) -> None:
        from bermo.nn.fast.kernels import mask_grads

        if self.gates is not None:
            of_weights, of_scores = self.gates.grads(grads)
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
    """The gradients of a weight and its scores from that of its copy; for gates by the backward pass of their own forward."""
    if isinstance(mask, HardConcrete):
        with torch.enable_grad():
            gated = weight * mask.gates().view_as(weight)
        weight.grad, mask.scores.grad = torch.autograd.grad(gated, (weight, mask.scores), grad)
        return
    weight.grad = grad * mask.mask.view_as(weight)
    if isinstance(mask, ScoreMask):
        mask.scores.grad = (grad * weight).view_as(mask.scores)


def _copies(weights: Mapping[str, nn.Parameter], dtype: torch.dtype) -> dict[str, Tensor]:
    """Empty leaves of the same shapes that take gradients, in one buffer: matrices first, then vectors.

    So the matrices of layers that follow each other lie side by side, and so do their biases; each starts at a multiple of 16.
    """
    if not weights:
        return {}
    order = sorted(weights, key=lambda name: weights[name].dim() < 2 or name.endswith(".bias"))
    sizes = [-(-weights[name].numel() // 16) * 16 for name in order]
    device = next(iter(weights.values())).device
    parts = torch.empty(sum(sizes), dtype=dtype, device=device).split(sizes)
    found = {}
    for name, part in zip(order, parts, strict=True):
        shape = weights[name].shape
        found[name] = part[: shape.numel()].view(shape).detach().requires_grad_()
    return {name: found[name] for name in weights}


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
        and tensor.data_ptr() == first.data_ptr() + place * size
        for place, tensor in enumerate(tensors)
    )


def _given(value: Tensor | None) -> Tensor:
    assert value is not None
    return value
