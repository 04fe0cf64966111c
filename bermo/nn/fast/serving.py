"""A mode in which torch's attention and gelu are computed by other functions, where these can serve."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode


@dataclass(frozen=True)
class Asked:
    """What a call of attention asks for: softmax(scale · q kᵀ + mask) v over (B, H, T, D), shares dropped with chance p."""

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None
    p: float
    is_causal: bool
    scale: float


class Serving(TorchFunctionMode):
    """While this holds, `attention` and `gelu` are asked first; where they answer None, torch computes."""

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        found = None
        if func is functional.scaled_dot_product_attention:
            found = self._attention(*args, **kwargs)
        elif func is functional.gelu:
            found = self.gelu(*args, **kwargs)
        return func(*args, **kwargs) if found is None else found

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
        """Ask for what torch's signature says, less groups of heads and a dropout of everything, which nobody serves."""
        if enable_gqa or not 0 <= dropout_p < 1:
            return None
        factor = query.shape[-1] ** -0.5 if scale is None else scale
        return self.attention(Asked(query, key, value, attn_mask, dropout_p, is_causal, factor))

    def attention(self, asked: Asked) -> Tensor | None:
        """The attention, or None where torch has to compute it."""
        return None

    def gelu(self, x: Tensor, approximate: str = "none") -> Tensor | None:
        """x Φ(x), or None where torch has to compute it."""
        return None


def is_checkpointing(model: nn.Module) -> bool:
    """Tell whether a model computes parts of its pass again in the backward pass, when nothing holds it any more."""
    return any(getattr(module, "gradient_checkpointing", False) for module in model.modules())
