"""Attention: shares, distances and effective attention against loops; classes of maps of known class."""

import math

import pytest
import torch
from torch import Tensor

from bermo.analyse.attention import attention_section, head_distances, measure_attention, plane
from bermo.analyse.effective import effective_attention, effective_section, measure_effective
from bermo.analyse.patterns import CLASSES, map_features, pattern_classifier
from bermo.encoders.attention import AttentionCall, attending
from bermo.vectors import Encoder
from tests.analyse.conftest import TEXTS


def maps(heads: int, length: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.softmax(2 * torch.randn(heads, length, length, generator=generator), -1)


def test_shares_equal_a_loop_over_texts_and_tokens(encoder: Encoder) -> None:
    measured = measure_attention(encoder, TEXTS, 60)
    expected = {name: torch.zeros(3, 2) for name in ("first token", "separators", "punctuation", "itself")}
    for text in TEXTS:
        tokens = ["<cls>", *text.split(), "<sep>"]
        seen: list[Tensor] = []
        batch = encoder.tokenizer(text, return_tensors="pt", return_token_type_ids=False)
        with (
            torch.no_grad(),
            attending(encoder.backbone, lambda call, seen=seen: seen.append(call.probabilities[0])),
        ):
            encoder.backbone(**batch)
        for layer in range(3):
            for head in range(2):
                p = seen[layer][head]
                for i in range(len(tokens)):
                    for name, targets in {
                        "first token": [0],
                        "separators": [len(tokens) - 1],
                        "itself": [i],
                        "punctuation": [k for k, token in enumerate(tokens) if token == "."],
                    }.items():
                        expected[name][layer, head] += float(p[i, targets].sum()) / len(tokens) / len(TEXTS)
    for name, values in expected.items():
        torch.testing.assert_close(torch.tensor(measured.shares[name]), values, atol=1e-5, rtol=1e-4)
    assert all(
        sum(shares[k] for shares in measured.class_shares.values()) == pytest.approx(1) for k in range(3)
    )
    section = attention_section({"tiny": measured})
    assert "of 6 heads" in section.text
    assert len(section.figures) == 6


def test_distances_equal_a_loop_over_pairs_of_heads() -> None:
    attention = maps(4, 6).double()
    distances = head_distances(attention)
    for a in range(4):
        for b in range(4):
            total = 0.0
            for i in range(6):
                p, q = attention[a, i], attention[b, i]
                m = (p + q) / 2
                total += sum(float(x * math.log2(x / y)) for x, y in zip(p, m, strict=True)) / 2
                total += sum(float(x * math.log2(x / y)) for x, y in zip(q, m, strict=True)) / 2
            assert float(distances[a, b]) == pytest.approx(total / 6, abs=1e-9)


def test_the_plane_keeps_distances_of_points_that_lie_in_one() -> None:
    points = torch.randn(7, 2, generator=torch.Generator().manual_seed(0)).double()
    distances = torch.cdist(points, points)
    laid = plane(distances)
    torch.testing.assert_close(torch.cdist(laid, laid), distances, atol=1e-8, rtol=0)


@pytest.mark.parametrize(("length", "size"), [(12, 4), (5, 8)])
def test_effective_attention_gives_the_same_output_and_has_no_part_in_the_null_space(
    length: int, size: int
) -> None:
    generator = torch.Generator().manual_seed(1)
    attention, value = maps(3, length), torch.randn(3, length, size, generator=generator)
    effective = effective_attention(attention, value)
    torch.testing.assert_close(effective @ value, attention @ value, atol=1e-5, rtol=1e-5)
    left, _, _ = torch.linalg.svd(value.double())
    null = left[..., min(length, size) :]
    assert (effective.double() @ null).abs().max() < 1e-6 if null.numel() else True
    gone = (attention - effective).abs().max()
    assert gone > 0.01 if length > size else gone < 1e-5


def test_effective_attention_of_equal_values_keeps_one_direction() -> None:
    value = torch.ones(6, 4)
    effective = effective_attention(maps(1, 6)[0], value)
    torch.testing.assert_close(effective, torch.full((6, 6), 1 / 6), atol=1e-6, rtol=0)


def test_correlation_is_one_on_short_texts_and_falls(encoder: Encoder) -> None:
    measured = measure_effective(encoder, TEXTS * 4, 32)
    assert measured.lengths == (8, 16, 32)
    assert measured.head_size == 8
    means = [sum(row) / len(row) for row in measured.correlations]
    assert means[0] == pytest.approx(1, abs=1e-5)
    assert means[0] > means[1] > means[2]
    assert "goes from 1.000" in effective_section({"tiny": measured}).text
    nothing = measure_effective(encoder, ["the"], 32)
    assert "too short" in effective_section({"tiny": nothing}).text


def test_the_classifier_knows_pure_maps_and_states_its_accuracy() -> None:
    classify = pattern_classifier()
    assert 0.9 < classify.accuracy <= 1
    length, one = 16, torch.zeros(16, dtype=torch.long)
    two = (torch.arange(16) >= 8).long()
    vertical = torch.full((16, 16), 0.1 / 15)
    vertical[:, 3] = 0.9
    diagonal = torch.eye(16) * 0.9 + 0.1 / 16
    block = (two[:, None] == two).float() / 8
    known = {
        "vertical": (vertical, one),
        "diagonal": (diagonal, one),
        "both": ((vertical + diagonal) / 2, one),
        "block": (block, two),
        "heterogeneous": (maps(1, length)[0], one),
    }
    for name, (attention, sentence) in known.items():
        label = int(classify(map_features(attention[None], sentence))[0])
        assert CLASSES[label] == name


def test_a_text_of_one_token_has_a_map_too(encoder: Encoder) -> None:
    measured = measure_attention(encoder, ["cat"], 60)
    assert len(measured.classes) == 3
    visited: list[AttentionCall] = []
    with torch.no_grad(), attending(encoder.backbone, lambda call: visited.append(call)):
        encoder.backbone(input_ids=torch.tensor([[7]]))
    assert map_features(visited[0].probabilities[0], torch.zeros(1)).isfinite().all()
