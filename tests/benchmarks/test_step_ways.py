"""The steps that are timed start where their options say."""

from argparse import Namespace
from typing import Any

import pytest
from transformers import BertConfig

from tests.benchmarks.tiny_step import BENCHMARKS


@pytest.mark.parametrize(("scores", "num_values"), [("spread", 64), ("equal", 1)])
def test_scores_of_masks_differ_unless_they_are_to_start_equal(
    scores: str, num_values: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    import step_ways

    options: Any = Namespace(batch=2, without=[], scores=scores)
    tiny = BertConfig(
        vocab_size=30, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    step = step_ways.Ours(options, "across", step_ways.METHODS["movement"], "off", encoder=tiny)
    assert len(step.pruner.score_parameters()[0].unique()) == num_values
