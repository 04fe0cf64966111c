"""ModernBERT on long texts: transformers' outputs and gradients, without a tensor of all pairs of tokens."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForSequenceClassification, PreTrainedModel

from bermo.encoders import windows
from bermo.encoders.backbone import create_encoder, load_encoder
from bermo.encoders.windows import NAME
from tests.small_models import model_of
from tests.tiny import make_batch, make_config

LENGTH = 400


def encoder(layers: int = 3) -> PreTrainedModel:
    torch.manual_seed(0)
    config = make_config("modernbert")
    config.num_hidden_layers = layers
    return create_encoder(config).eval()


def run(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, list[Tensor]]:
    """The vectors of real tokens, and the gradients from them."""
    model.zero_grad()
    hidden = model(**batch).last_hidden_state[batch["attention_mask"].bool()]
    hidden.square().sum().backward()
    return hidden, [p.grad for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("has_padding", [True, False])
def test_long_texts_give_the_vectors_and_gradients_of_transformers(has_padding: bool) -> None:
    batch = {"input_ids": torch.randint(5, 20, (2, LENGTH)), "attention_mask": torch.ones(2, LENGTH).long()}
    if has_padding:
        batch["attention_mask"][0, 333:] = 0
    model = encoder()
    found, slopes = run(model, batch)
    model.config._attn_implementation = "sdpa"
    expected, others = run(model, batch)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    for a, b in zip(slopes, others, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)


def test_short_texts_are_computed_to_the_bit_as_by_transformers() -> None:
    model, batch = encoder(), make_batch("modernbert")
    batch.pop("labels", None)
    found, _ = run(model, batch)
    model.config._attn_implementation = "sdpa"
    assert torch.equal(found, run(model, batch)[0])


class Largest(TorchDispatchMode):
    """Notes the most elements that one result has."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        results = out if isinstance(out, tuple) else (out,)
        bytes_of = [x.untyped_storage().nbytes() for x in results if isinstance(x, Tensor)]
        self.elements = max(self.elements, *bytes_of, 0)
        return out


def memory(model: nn.Module, length: int) -> tuple[int, int]:
    """Bytes kept for the backward pass, and the most bytes that a tensor takes in a step."""
    ids, mask = torch.randint(5, 20, (1, length)), torch.ones(1, length).long()
    mask[0, length - length // 8 :] = 0
    kept: dict[int, int] = {}

    def keep(x: Tensor) -> Tensor:
        kept[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    with Largest() as largest:
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            out = model(input_ids=ids, attention_mask=mask).last_hidden_state
        if length <= 2048:  # longer ones take seconds
            out.sum().backward()
    weights = sum(p.nbytes for p in model.parameters())
    return sum(kept.values()) - weights, largest.elements


def test_memory_grows_with_the_length_and_not_with_its_square() -> None:
    model = encoder(layers=2)
    assert set(model.config.layer_types[:2]) == {"full_attention", "sliding_attention"}
    kept, most = zip(*(memory(model, length) for length in (512, 2048, 8192)), strict=True)
    for values in (kept, most):
        assert values[2] < 4.1 * values[1] < 4.1 * 4.1 * values[0]
    assert most[2] < 8192 * 8192 / 8


def test_the_choice_is_made_anew_when_a_model_is_loaded_and_is_not_saved(tmp_path: Path) -> None:
    model_of("modernbert").save_pretrained(tmp_path)
    assert NAME not in (tmp_path / "config.json").read_text()
    load = AutoModelForSequenceClassification.from_pretrained
    assert load(tmp_path).bermo.backbone.config._attn_implementation == NAME
    eager = load(tmp_path, attn_implementation="eager")
    assert eager.bermo.backbone.config._attn_implementation == "eager"
    assert load_encoder(encoder()).encoder.config._attn_implementation == NAME
    assert create_encoder(make_config("bert")).config._attn_implementation == "sdpa"


def test_a_model_that_is_traced_gets_a_mask_that_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "SHORTEST", 4)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    seen: list[Any] = []
    monkeypatch.setattr(windows, "attend_long", lambda *given: seen.append(given))
    batch = make_batch("modernbert")
    model = encoder(layers=2)
    assert model(batch["input_ids"], batch["attention_mask"]).last_hidden_state.isfinite().all()
    assert not seen
