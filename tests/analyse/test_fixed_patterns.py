"""Fixed patterns: heads made to follow one are named so, by a slow count over tokens."""

import pytest
import torch

from bermo.analyse.fixed_patterns import (
    FIXED,
    fixed_patterns_section,
    measure_fixed_patterns,
    nearest,
    pattern_targets,
)
from bermo.analyse.tokens import run_encoder, token_batches
from bermo.encoders.attention import attending
from bermo.vectors import load_encoder

TEXTS = ["the dog sees a cat .", "a film , a good one !", "it was"]


def test_shares_are_those_of_a_slow_count() -> None:
    encoder = load_encoder("box", device="cpu")
    facts = measure_fixed_patterns(encoder, TEXTS, 32)
    right, total = 0, 0
    for tokens in token_batches(encoder, TEXTS, 32):
        seen: list[torch.Tensor] = []

        def keep(call: object, seen: list[torch.Tensor] = seen) -> None:
            seen.append(call.probabilities)  # type: ignore[attr-defined]

        with torch.inference_mode(), attending(encoder.backbone, keep):
            run_encoder(encoder, tokens.batch)
        for text in range(len(tokens.is_token)):
            count = int(tokens.is_token[text].sum())
            for at in range(1, count):
                total += 1
                right += int(seen[0][text, 0, at].argmax()) == at - 1
    assert facts.shares["previous"][0][0] == pytest.approx(right / total)
    assert "heads follow one fixed pattern" in fixed_patterns_section({"box": facts}).text
    assert {cell[0] for row in nearest(facts) for cell in row if cell} <= set(FIXED)


def test_targets_are_those_that_the_names_say() -> None:
    encoder = load_encoder("box", device="cpu")
    tokens = next(iter(token_batches(encoder, ["a cat ."], 32)))
    targets = pattern_targets(tokens)
    count = int(tokens.is_token.sum())
    assert targets["last"][0, 0].nonzero().flatten().tolist() == [count - 1]
    assert targets["first"][0, 2].nonzero().flatten().tolist() == [0]
    assert targets["next"][0, count - 1].sum() == 0
    assert bool(targets["punctuation"][0, 0].any())
