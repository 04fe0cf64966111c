"""The mix inside an encoder: each layer reads a learned mix of all layers below it, not only the one below.

    layer k reads  γ_k · Σ_{j<k} softmax(α_k)_j · norm(h_j)      k = 2 … L; layer 1 has only h_0 to read

BERMo's paper names this as later work; DenseFormer (Pagliardini et al. 2024) does the like in decoders. It
starts near the plain encoder: most of the share is on the layer just below.
"""

import threading
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from bermo.errors import BermoError
from bermo.nn.layers import check_choice
from bermo.nn.stream import standardise, wide

InnerNorm: TypeAlias = Literal["within", "raw"]
# Logit of the layer just below: 0.89 of the share, beside seven others.
START = 4.0


class InnerMix(nn.Module):
    """γ_k Σ_{j<k} softmax(α_k)_j norm(h_j); `read` takes h_0, h_1, … one at a time.

    >>> mix = bermo.InnerMix(num_layers=3)
    >>> [mix.read(index, torch.randn(2, 5, 8)).shape for index in range(3)][-1]
    torch.Size([2, 5, 8])
    """

    def __init__(self, num_layers: int, norm: InnerNorm = "within", eps: float = 1e-5) -> None:
        super().__init__()
        check_choice("inner_mix", norm, ("within", "raw"))
        self.num_layers, self.norm, self.eps = num_layers, norm, eps
        self.logits = nn.Parameter(torch.empty(num_layers - 1, num_layers))
        self.scale = nn.Parameter(torch.empty(num_layers - 1))
        self._seen: dict[int, list[Tensor]] = {}
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start with most of each share on the layer just below, and a scale of 1."""
        with torch.no_grad():
            self.logits.copy_(START * torch.eye(self.num_layers)[1:])
            self.scale.fill_(1.0)

    @property
    def weights(self) -> Tensor:
        """Row k − 2 holds what layer k reads: its shares of h_0 … h_{k−1}, then zeros."""
        return self._shares().detach()

    def _shares(self) -> Tensor:
        above = torch.ones_like(self.logits, dtype=torch.bool).triu(2)
        return torch.softmax(self.logits.float().masked_fill(above, float("-inf")), dim=1)

    def read(self, index: int, hidden: Tensor) -> Tensor:
        """Take h_index, which would enter layer index + 1, and return what that layer reads instead."""
        # Each thread that runs the encoder has layers of its own.
        seen = self._seen.setdefault(threading.get_ident(), [])
        if index == 0:
            seen.clear()
        if len(seen) != index:
            raise BermoError(
                f"The inner mix was given h_{index} after {len(seen)} layers. It reads every layer once, in"
                " order; gradient checkpointing calls them again and cannot be used with it."
            )
        norm = None if self.norm == "raw" else self.norm
        with torch.autocast(hidden.device.type, enabled=False):
            seen.append(standardise(wide(hidden), norm, None, self.eps))
            mixed = hidden if index == 0 else self._mixed(seen)
        if index == self.num_layers - 1:
            seen.clear()
        return mixed.to(hidden.dtype)

    def _mixed(self, seen: list[Tensor]) -> Tensor:
        row = len(seen) - 2
        shares = self._shares()[row].unbind()
        mixed = shares[0] * seen[0]
        for share, hidden in zip(shares[1:], seen[1:], strict=False):
            mixed = mixed + share * hidden
        return self.scale[row] * mixed

    def extra_repr(self) -> str:
        return f"layers={self.num_layers}, norm={self.norm!r}"
