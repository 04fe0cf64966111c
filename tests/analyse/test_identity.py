"""Identity and attribution: against loops and whole Jacobians."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from bermo.analyse.attribution import attribution_section, contributions, jacobian_norms, measure_attribution
from bermo.analyse.identity import RIDGE, LinearMap, found_again, identity_section, measure_identity
from bermo.encoders.backbone import hidden_states, make_inputs
from bermo.figures.data import Lines
from bermo.vectors import Encoder, stream_vectors
from tests.analyse.conftest import TEXTS
from tests.tiny import FAMILIES


def test_tokens_found_again_equal_a_loop() -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(3, 6, 4, generator=generator)
    hidden = inputs + torch.randn(3, 6, 4, generator=generator)
    is_token = torch.arange(6) < torch.tensor([6, 4, 1])[:, None]
    hits = [0, 0, 0]
    for text in range(3):
        real = [k for k in range(6) if is_token[text, k]]
        for i in real:
            cosines = [float(torch.cosine_similarity(hidden[text, i], inputs[text, j], dim=0)) for j in real]
            hits[text] += real[cosines.index(max(cosines))] == i
    assert found_again(hidden, inputs, is_token).tolist() == hits
    assert 1 < sum(hits) < 11


def test_the_linear_map_is_ridge_regression_with_an_intercept() -> None:
    generator = torch.Generator().manual_seed(0)
    h, x = torch.randn(50, 4, generator=generator) + 2, torch.randn(50, 4, generator=generator)
    linear = LinearMap(4)
    for start in range(0, 50, 7):
        linear.add(h[start : start + 7], x[start : start + 7])
    weight, shift = linear.solve()
    a, b = (h - h.mean(0)).double(), (x - x.mean(0)).double()
    penalty = RIDGE * a.var(0, correction=0).mean() * 50
    rows = torch.cat([a, penalty.sqrt() * torch.eye(4)])
    expected = torch.linalg.lstsq(rows, torch.cat([b, torch.zeros(4, 4)])).solution
    torch.testing.assert_close(weight, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(h.double().mean(0) @ weight + shift, x.double().mean(0), atol=1e-5, rtol=0)


def test_identity_of_the_embeddings_is_whole_and_the_counts_are_those_of_texts_alone(
    encoder: Encoder,
) -> None:
    measured = measure_identity(encoder, TEXTS, 60)
    assert measured.nearest[0] == 1
    assert measured.linear[0] == 1
    hits = total = 0
    for text in TEXTS[::2]:
        batch = next(iter(stream_vectors(encoder, [text], max_length=60)))
        hits += int(found_again(batch.vectors[3], batch.vectors[0], batch.is_token))
        total += int(batch.is_token.sum())
    assert measured.nearest[3] == pytest.approx(hits / total)
    assert measured.num_tokens == total
    assert measured.chance == pytest.approx(5 / total)
    assert "at the last layer" in identity_section({"tiny": measured}).text
    alone = measure_identity(encoder, ["cat"], 60)
    assert alone.linear == (None,) * 4
    assert "linear" not in identity_section({"tiny": alone}).text


def whole_jacobian(encoder: Encoder, embeddings: Tensor) -> Tensor:
    """‖∂h_j/∂x_i‖_F by reverse mode, one output at a time: slow and obvious."""
    length = len(embeddings)

    def run(x: Tensor) -> Tensor:
        inputs = make_inputs(encoder.backbone, None, torch.ones(1, length), None, x[None])
        layers = hidden_states(encoder.backbone, inputs).hidden_states or ()
        mixed = () if encoder.mix is None else (encoder.mix(layers),)
        return torch.stack([h[0] for h in (*layers, *mixed)])

    # (layers, j, D, i, D).
    jacobian = torch.autograd.functional.jacobian(run, embeddings)
    return jacobian.pow(2).sum((2, 4)).sqrt().transpose(1, 2)


def test_norms_along_all_unit_vectors_are_those_of_the_whole_jacobian(encoder: Encoder) -> None:
    embeddings = torch.randn(4, 16, generator=torch.Generator().manual_seed(0))
    # A mean over 16 tangents, not a sum.
    norms = jacobian_norms(encoder, embeddings, torch.eye(16)) * 4
    torch.testing.assert_close(norms.float(), whole_jacobian(encoder, embeddings), atol=1e-4, rtol=1e-3)


def test_the_mixed_vector_has_norms_of_its_own(mixed: Encoder) -> None:
    embeddings = torch.randn(4, 16, generator=torch.Generator().manual_seed(0))
    norms = jacobian_norms(mixed, embeddings, torch.eye(16)) * 4
    assert len(norms) == 5
    torch.testing.assert_close(norms.float(), whole_jacobian(mixed, embeddings), atol=1e-4, rtol=1e-3)
    measured = measure_attribution(mixed, TEXTS)
    section = attribution_section({"tiny": measured})
    assert "Of the mixed vector" in section.text
    own = section.figures[0]
    assert isinstance(own, Lines)
    assert own.series["tiny: mix"] == (measured.own[-1],) * 4
    assert len(own.series["tiny"]) == 4


def test_random_tangents_come_near_the_whole_jacobian(encoder: Encoder) -> None:
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.randn(4, 16, generator=generator)
    shares = contributions(jacobian_norms(encoder, embeddings, torch.randn(40, 16, generator=generator)))
    torch.testing.assert_close(
        shares.float(), contributions(whole_jacobian(encoder, embeddings)), atol=0.08, rtol=0
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_attributions_of_a_token_sum_to_one_in_every_family(
    family: str, make_encoder: Callable[[str], Encoder]
) -> None:
    encoder = make_encoder(family)
    size = encoder.backbone.get_input_embeddings().weight.shape[1]
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.randn(5, size, generator=generator)
    shares = contributions(jacobian_norms(encoder, embeddings, torch.randn(1, size, generator=generator)))
    torch.testing.assert_close(shares.sum(-2), torch.ones(4, 5, dtype=shares.dtype))
    # Its embeddings read their neighbours.
    if family != "mobilebert":
        torch.testing.assert_close(shares[0], torch.eye(5, dtype=shares.dtype))
    # Nothing comes from a later token.
    if family == "gpt2":
        assert shares[1:].tril(-1).abs().max() == 0


def test_what_is_reported_of_attribution_is_what_the_shares_say(encoder: Encoder) -> None:
    measured = measure_attribution(encoder, TEXTS)
    assert measured.own[0] == pytest.approx(1)
    assert measured.not_main[0] == 0
    assert measured.own[0] > measured.own[3]
    assert measured.by_distance[0][0] == pytest.approx(1)
    assert measured.num_tokens == sum(len(text.split()) + 2 for text in TEXTS)
    assert len(attribution_section({"tiny": measured}).figures) == 4
