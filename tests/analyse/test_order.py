"""Numbers, positions and shuffled texts, read from vectors."""

import pytest
import torch

from bermo.analyse.curves import Curve, curves_by_layer
from bermo.analyse.numbers import Numbers, measure_numbers, number_vectors, numbers_section
from bermo.analyse.order import measure_order, order_section
from bermo.analyse.read_out import ReadOut, read_out
from bermo.figures.data import as_table
from bermo.vectors import Encoder, stream_vectors
from tests.analyse.conftest import TEXTS


@pytest.mark.usefixtures("whole_fits")
def test_a_number_that_is_in_the_vectors_is_read_and_noise_is_as_good_as_guessing() -> None:
    torch.manual_seed(0)
    x, noise = torch.randn(200, 8), torch.randn(200, 8)
    y = 3 * x[:, 0] - x[:, 1] + 5
    (found,) = read_out((x[:100], y[:100]), (x[100:], y[100:]))
    (nothing,) = read_out((noise[:100], y[:100]), (noise[100:], y[100:]))
    assert found.error < 0.02
    assert found.low <= found.error <= found.high
    assert found.guess == pytest.approx(float((y[100:] - y[:100].mean()).abs().mean()), abs=1e-4)
    assert nothing.error > 0.8 * nothing.guess


def test_the_vector_of_a_number_is_the_mean_of_its_pieces(encoder: Encoder) -> None:
    vectors = number_vectors(encoder)
    assert len(vectors) == encoder.num_layers
    (batch,) = stream_vectors(encoder, ["The number 7 is written here."], max_length=32)
    torch.testing.assert_close(vectors[2][7], batch.vectors[2][0, 3])


def test_numbers_and_order_have_a_sentence_with_intervals(encoder: Encoder, mixed: Encoder) -> None:
    numbers = measure_numbers(mixed)
    assert numbers.names[-1] == "mix"
    assert len(numbers.inside) == len(numbers.beyond) == 5
    assert "guessing is off by" in numbers_section({"tiny": numbers}).text
    order = measure_order(encoder, TEXTS, 32)
    middles = [(low + high) / 2 for low, high in order.ends]
    assert middles == pytest.approx(list(order.shuffled))
    assert "Shuffling moves words most" in order_section({"tiny": order}).text


def test_a_mix_is_a_level_and_never_the_best_layer() -> None:
    names = ("0", "1", "mix")
    lines = curves_by_layer(
        "Error",
        "words",
        {
            "mixed": Curve(names=names, values=(3.0, 2.0, 1.0), ends=((2, 4), (1, 3), (0, 2))),
            "plain": Curve(names=names[:1], values=(5.0,), ends=((4, 6),)),
        },
        "",
    )
    assert lines.x == (0.0, 1.0)
    assert lines.series == {"mixed": (3.0, 2.0), "mixed: mix": (1.0, 1.0), "plain": (5.0, None)}
    assert as_table(lines).rows[1] == (1.0, 2.0, 1, 3, 1.0, None, None, None)
    reads = [ReadOut(error=error, low=0.0, high=9.0, guess=9.0, rows=5) for error in (3.0, 2.0, 1.0)]
    numbers = Numbers(names=names, inside=tuple(reads), beyond=tuple(reads))
    assert "mixed: best at layer 1, off by 2.0" in numbers_section({"mixed": numbers}).text


def test_a_word_in_a_shuffled_text_is_compared_with_itself(encoder: Encoder) -> None:
    embeddings = encoder.backbone.embeddings.position_embeddings.weight
    kept = embeddings.clone()
    with torch.no_grad():
        embeddings.zero_()
    try:
        # Without positions an encoder is a bag of words.
        order = measure_order(encoder, TEXTS, 32)
    finally:
        with torch.no_grad():
            embeddings.copy_(kept)
    assert order.shuffled == pytest.approx([1.0] * 4, abs=1e-4)


def test_too_few_texts_are_said(encoder: Encoder) -> None:
    few = measure_order(encoder, ["a cat saw films", "dogs"], 32)
    section = order_section({"tiny": few})
    assert "four texts of three words or more, but got 1" in section.text
    assert section.figures == ()
