"""Contexts in which functions of ours take the place of torch's: attention, gelu, dropout, numbers as
tensors.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend
from torch.overrides import TorchFunctionMode

# Without cuDNN's: it builds a kernel for each new shape (1.5 s on an H200), and short texts gain nothing.
ATTENTION = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]

META = torch.device("meta")


@dataclass(frozen=True)
class AttentionCall:
    """The arguments of one attention: softmax(scale · q kᵀ + mask) v over (B, H, T, D), with dropout p."""

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None
    p: float
    is_causal: bool
    scale: float


class FunctionOverrides(TorchFunctionMode):
    """In this context `attention`, `gelu` and `dropout` are called first, and torch's own where they return
    None.
    """

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        out = None
        if func is functional.scaled_dot_product_attention:
            out = self._attention(*args, **kwargs)
        elif func is functional.gelu:
            out = self.gelu(*args, **kwargs)
        elif func is functional.dropout:
            out = self._dropout(*args, **kwargs)
        return func(*args, **kwargs) if out is None else out

    def _attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor | None:
        """torch's own signature; grouped heads and a dropout of everything are left to torch."""
        if enable_gqa or not 0 <= dropout_p < 1:
            return None
        factor = query.shape[-1] ** -0.5 if scale is None else scale
        return self.attention(AttentionCall(query, key, value, attn_mask, dropout_p, is_causal, factor))

    def _dropout(
        self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Tensor | None:
        """torch's own signature."""
        return self.dropout(input, p, training, inplace)

    def attention(self, call: AttentionCall) -> Tensor | None:
        """The attention, or None where torch has to compute it."""
        return None

    def gelu(self, x: Tensor, approximate: str = "none") -> Tensor | None:
        """x Φ(x), or None where torch has to compute it."""
        return None

    def dropout(self, x: Tensor, p: float, is_training: bool, in_place: bool) -> Tensor | None:
        """Zero elements with chance p and scale the others, or None where torch has to compute it."""
        return None


class NumbersOnDevice(TorchFunctionMode):
    """In this context `torch.tensor(0.5, device=…)` writes the number on that device, and `torch.eye(3)` is
    made on the context's.

    torch copies the first from the CPU, and some encoders copy the second from there, for their masks: what a
    CUDA graph cannot hold.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        is_number = func is torch.tensor and args and isinstance(args[0], int | float)
        if is_number and kwargs.get("device") is not None:
            return torch.full((), args[0], **kwargs)
        if func is torch.eye and kwargs.get("device") is None and kwargs.get("out") is None:
            return torch.eye(*args, **kwargs | {"device": self.device})
        return func(*args, **kwargs)


class NoSymbols(TorchFunctionMode):
    """In this context tensors without values (the meta device) are made without symbolic mathematics.

    To draw nothing, or to count without values, torch would import sympy.
    """

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is nn.init.normal_:
            tensor = args[0] if args else kwargs["tensor"]
            if tensor.is_meta:
                return tensor
        if func is torch.arange and kwargs.get("device") == META:
            return torch.arange(*args, **kwargs | {"device": "cpu"}).to(META)
        if func is torch.empty_like and args[0].is_meta and kwargs.keys() == {"device"}:
            return torch.empty(args[0].shape, dtype=args[0].dtype, **kwargs)
        return func(*args, **kwargs)


def is_checkpointing(model: nn.Module) -> bool:
    """Tell whether a model repeats parts of its forward pass in the backward pass, outside any context."""
    return any(getattr(module, "gradient_checkpointing", False) for module in model.modules())
