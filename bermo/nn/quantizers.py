"""Fake int8: a forward pass computes with the numbers that an int8 graph computes with, in floating point.

    matrices     w → s · round(w / s), one s for each output: max(max|w_k|, max|w_k + w_{k+1}|) / 127
    tables       w → s · round(w / s), one s for each row: max|w| / 127
    inputs       x → s · (round(x / s) + z − z), codes 0 … 255, s and z from the smallest and largest x of the
                 batch, 0 among them (ONNX's DynamicQuantizeLinear)
    gradients    dL/dw = dL/dx = G, as if nothing had been rounded (straight through)
    ternary      w → α · sign(w) where |w| > Δ = 0.7 · mean|w|, else 0; α = mean|w| over those (TernaryBERT)
    binary       w → mean|w| · sign(w) (BinaryBERT); both with one α for a matrix, or for a row of a table
    split        w = w₁ + w₂ with binary(w₁) + binary(w₂) = ternary(w): one of three values as two of two
                 each (BinaryBERT's ternary weight splitting)

The sum of two neighbours keeps every product inside 16 bits on x86 without VNNI (bermo.ship.runtimes.overflow
has the same scales in numpy). Biases, norms, softmax and GELU stay as they are, as in Q8BERT (Zafrir et al.
2019). O outputs, I inputs of a matrix; B texts, T tokens.
"""

from collections.abc import Callable
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

LARGEST_CODE = 127
NUM_CODES = 255
SMALLEST_SCALE = 1e-12
Kind = Literal["matrix", "transposed matrix", "table"]
Codes = Literal["int8", "ternary", "binary"]
TERNARY_SHARE = 0.7


class Switch(nn.Module):
    """Whether fake quantisers quantise: a number on the device, so that a captured step reads it anew.

    It moves and is saved with the model that it is a part of.
    """

    is_on: Tensor

    def __init__(self, is_saved: bool = False) -> None:
        """`is_saved`: whether the weights are saved as their codes say them, or as they are."""
        super().__init__()
        self.is_saved = is_saved
        self.register_buffer("is_on", torch.zeros((), dtype=torch.bool), persistent=False)

    def set_(self, is_on: bool) -> None:
        """Turn all quantisers of this switch on or off."""
        self.is_on.fill_(is_on)

    def apply_to(self, x: Tensor, quantize: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the quantised tensor with x's gradient, or x where the switch is off."""
        if x.numel() == 0 or (x.device.type == "cpu" and not self.is_on):
            return x
        return cast(Tensor, _Straight.apply(x, quantize, self.is_on))


class WeightQuantizer(nn.Module):
    """A weight parametrization: the weights as their codes say them, int8's as in a graph."""

    def __init__(self, switch: Switch, kind: Kind, codes: Codes = "int8") -> None:
        super().__init__()
        # In a tuple, so that the switch is no part of every quantiser.
        self.switches, self.kind, self.codes = (switch,), kind, codes

    def forward(self, weight: Tensor) -> Tensor:
        return self.switches[0].apply_to(weight, self._quantize)

    def _quantize(self, weight: Tensor) -> Tensor:
        if self.codes != "int8":
            rows = weight if self.kind == "table" else weight.reshape(1, -1)
            few = quantize_ternary if self.codes == "ternary" else quantize_binary
            return few(rows).view_as(weight)
        match self.kind:
            case "matrix":
                return quantize_matrix(weight)
            case "transposed matrix":
                return quantize_matrix(weight.T).T
            case "table":
                return quantize_table(weight)


class SplitQuantizer(WeightQuantizer):
    """A weight parametrization: the sum of two matrices of two values each, both trained.

    It stands on the first of them; the second is its own, and is part of the weight that is saved.
    """

    def __init__(self, switch: Switch, kind: Kind, second: Tensor) -> None:
        super().__init__(switch, kind, "binary")
        self.second = nn.Parameter(second)

    def forward(self, weight: Tensor) -> Tensor:
        return super().forward(weight) + super().forward(self.second)


class InputQuantizer:
    """A forward pre-hook: the module reads its input as the codes of an int8 graph say it.

    Where only the first token of each text is computed in the graph, the range is that of the first tokens.
    """

    def __init__(self, switch: Switch, reads_first: bool = False) -> None:
        self.switch, self.quantize = switch, quantize_firsts if reads_first else quantize_batch

    def __call__(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return self.switch.apply_to(args[0], self.quantize), *args[1:]


def quantize_matrix(weight_OI: Tensor) -> Tensor:
    """Round a matrix to the codes of each output's own scale."""
    wide_OI = weight_OI.float()
    largest_O1 = wide_OI.abs().amax(1, keepdim=True)
    if wide_OI.shape[1] > 1:
        sums_OI = wide_OI[:, :-1] + wide_OI[:, 1:]
        largest_O1 = largest_O1.maximum(sums_OI.abs().amax(1, keepdim=True))
    return _round(wide_OI, largest_O1).to(weight_OI.dtype)


def quantize_table(weight: Tensor) -> Tensor:
    """Round a table of embeddings to the codes of each row's own scale."""
    wide = weight.float()
    return _round(wide, wide.abs().amax(1, keepdim=True)).to(weight.dtype)


def quantize_ternary(weight: Tensor) -> Tensor:
    """Turn each row into −α, 0 and α."""
    sizes = weight.float().abs()
    is_large = sizes > TERNARY_SHARE * sizes.mean(1, keepdim=True)
    total, count = torch.where(is_large, sizes, 0).sum(1, keepdim=True), is_large.sum(1, keepdim=True)
    return torch.where(is_large, weight.sign() * (total / count.clamp(min=1)), 0).to(weight.dtype)


def quantize_binary(weight: Tensor) -> Tensor:
    """Turn each row into −α and α; a zero stays one."""
    return (weight.sign() * weight.float().abs().mean(1, keepdim=True)).to(weight.dtype)


def split_ternary(weight: Tensor, is_table: bool = False) -> tuple[Tensor, Tensor]:
    """Split a matrix into two whose binary codes add up to its ternary ones, and they to it.

    where ternary(w) ≠ 0    (m·w, (1 − m)·w)                 J
    elsewhere, w > 0        (w + b, −b)                      P
               w ≤ 0        (b, w − b)                       N
    m = (Σ_J|w| + Σ_N|w| − Σ_P|w|) / 2Σ_J|w|                 both halves have the same mean size …
    b = (α·n − Σ|w|) / 2·#(P ∪ N)                            … which is α/2
    """
    rows = (weight if is_table else weight.reshape(1, -1)).detach().float()
    codes, sizes = quantize_ternary(rows), rows.abs()
    is_kept, is_over = codes != 0, rows > 0

    def total(chosen: Tensor) -> Tensor:
        return torch.where(chosen, sizes, 0).sum(1, keepdim=True)

    kept, over, under = total(is_kept), total(~is_kept & is_over), total(~is_kept & ~is_over)
    share = torch.where(kept > 0, (kept + under - over) / (2 * kept).clamp(min=SMALLEST_SCALE), 0.5)
    num_zeros = (~is_kept).sum(1, keepdim=True)
    largest = codes.abs().amax(1, keepdim=True)
    shift = (largest * rows.shape[1] - sizes.sum(1, keepdim=True)) / (2 * num_zeros.clamp(min=1))
    first = torch.where(is_kept, share * rows, torch.where(is_over, rows + shift, shift))
    return first.to(weight.dtype).view_as(weight), (rows - first).to(weight.dtype).view_as(weight)


def quantize_firsts(x_BTI: Tensor) -> Tensor:
    """Round a batch to 256 codes between the smallest and the largest number of its first tokens."""
    return quantize_batch(x_BTI, x_BTI[:, :1])


def quantize_batch(x: Tensor, ranged: Tensor | None = None) -> Tensor:
    """Round a batch to 256 codes between its smallest and largest number, or those of `ranged`."""
    ranged = x if ranged is None else ranged
    low, high = ranged.amin().float().clamp(max=0), ranged.amax().float().clamp(min=0)
    scale = ((high - low) / NUM_CODES).clamp(min=torch.finfo(torch.float32).tiny)
    zero = (-low / scale).round().clamp(0, NUM_CODES)
    # In float32: a bfloat16 quotient of 255 is off by a half.
    codes = ((x.float() / scale).round() + zero).clamp(0, NUM_CODES)
    return ((codes - zero) * scale).to(x.dtype)


def _round(weight: Tensor, largest: Tensor) -> Tensor:
    """Round to 127 codes on either side of 0, the last of which stands for `largest`."""
    scales = (largest / LARGEST_CODE).clamp(min=SMALLEST_SCALE)
    return (weight / scales).round().clamp(-LARGEST_CODE, LARGEST_CODE) * scales


class _Straight(torch.autograd.Function):
    """Quantised forwards, the identity backwards."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, quantize: Callable[[Tensor], Tensor], is_on: Tensor) -> Tensor:
        return torch.where(is_on, quantize(x), x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, None, None]:
        return grads[0], None, None
