"""Noise by row: parts of a batch get what the whole batch gets, for every family."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from bermo.training.noise import OwnRows, RowNoise, can_draw_by_row
from tests.small_models import model_of
from tests.tiny import ENCODERS, make_batch

NUM_ROWS = 5
HALVES = (torch.tensor([0, 2, 4]), torch.tensor([1, 3]))
EVERY = torch.arange(NUM_ROWS)


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1)], ids=["contiguous", "turned"])
def test_all_rows_have_the_bits_of_torchs_own_dropout(order: tuple[int, ...]) -> None:
    x = torch.randn(NUM_ROWS, 6, 8).permute(order)
    torch.manual_seed(1)
    plain = functional.dropout(x, 0.3)
    torch.manual_seed(1)
    with RowNoise(OwnRows(EVERY, NUM_ROWS), nn.Identity()).active():
        by_row = nn.Dropout(0.3)(x)
    assert torch.equal(plain, by_row)


def _logits(model: nn.Module, batch: dict[str, Tensor], places: Tensor | None) -> Tensor:
    torch.manual_seed(3)
    if places is None:
        return model(**batch).logits
    with RowNoise(OwnRows(places, NUM_ROWS), model).active():
        return model(**{name: tensor[places] for name, tensor in batch.items()}).logits


@pytest.mark.parametrize("family", [family for family in ENCODERS if family != "xlnet"])
def test_halves_of_a_batch_compute_what_the_whole_batch_does(family: str) -> None:
    """One half has as many rows as the mix has layers, which must not be taken for rows."""
    model, batch = model_of(family, layers=2).train(), make_batch(family, NUM_ROWS, 9)
    whole = _logits(model, batch, None)
    assert not torch.allclose(whole, model.eval()(**batch).logits), "there is dropout"
    model.train()
    for places in HALVES:
        torch.testing.assert_close(_logits(model, batch, places), whole[places], rtol=1e-4, atol=1e-5)


def test_noise_is_not_drawn_by_row_where_passes_are_repeated_or_on_a_gpu() -> None:
    model = model_of("bert", layers=2)
    assert can_draw_by_row(model, torch.device("cpu"))
    assert not can_draw_by_row(model, torch.device("cuda"))
    model.gradient_checkpointing_enable()
    assert not can_draw_by_row(model, torch.device("cpu"))
