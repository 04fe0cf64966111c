"""Quantisation-aware training through the command's own path: it helps, resumes, and leaves a plain model."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForSequenceClassification

from bermo.errors import BermoError
from bermo.fields import check
from bermo.method_spec import MethodSpec
from bermo.methods.checks import check_methods
from bermo.methods.finetune import finetune
from bermo.models.quantized import MARK, attach_quantizers_, int8_copy
from bermo.spec import PruneSpec, RunSpec, replace_in
from tests import tiny
from tests.methods.resumed import check_resumes_to_the_bit
from tests.ship.folders import make_model
from tests.specs import TINY

pytestmark = pytest.mark.usefixtures("shallow_box")
INT8 = replace_in(replace(TINY, prune=PruneSpec()), method={"quantize": "int8"}, train={"epochs": 2})


def test_a_run_ends_in_int8_and_leaves_a_plain_model_that_says_so_and_resumes_to_the_bit(
    tmp_path: Path,
) -> None:
    spec = replace_in(INT8, train={"evaluations": 3})
    saved = check_resumes_to_the_bit(spec, tmp_path, step=3)
    assert not any("parametrizations" in name or "quantization" in name for name in saved)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "whole" / "model")
    assert getattr(model.config, MARK) == "int8"
    rows = [json.loads(line) for line in (tmp_path / "whole/seed-1/metrics.jsonl").read_text().splitlines()]
    assert [row["quantized"] for row in rows if "loss" in row] == [0, 0, 0, 0, 1, 1]
    result = json.loads((tmp_path / "whole" / "seed-1" / "result.json").read_text())
    assert result["best_step"] > 4, "no model counts before its numbers are int8's"


def test_pruned_weights_stay_zeros_beside_int8(tmp_path: Path) -> None:
    result = finetune(replace(INT8, prune=TINY.prune), tmp_path)
    assert result.seeds[0].kept == pytest.approx(0.2, abs=1e-3)
    assert 0.2 < result.seeds[0].encoder_density < 0.25


@pytest.mark.parametrize(("codes", "most"), [("ternary", 3), ("binary", 2)])
def test_a_run_saves_weights_of_few_values_and_resumes_to_the_bit(
    codes: str, most: int, tmp_path: Path
) -> None:
    saved = check_resumes_to_the_bit(replace_in(INT8, method={"quantize": codes}), tmp_path, step=3)
    for name, tensor in saved.items():
        if ".encoder.layer." in name and tensor.ndim == 2:
            assert len(tensor.unique()) == most, name
        if "word_embeddings" in name:
            assert max(len(row.unique()) for row in tensor) <= most


def test_training_with_int8_numbers_wins_back_what_rounding_afterwards_loses() -> None:
    """One unit of a norm is 300 times as large and read 300 times as weakly: fp32 answers the same, int8
    has few codes left for the other units.
    """
    model, batch = make_model(), tiny.make_batch("bert", texts=8)
    with torch.no_grad():
        layer = model.bermo.backbone.encoder.layer[0]
        norm = layer.attention.output.LayerNorm
        norm.weight[3], norm.bias[3] = 300, 300
        layer.intermediate.dense.weight[:, 3] /= 300
        expected = model(**batch).logits
        lost = _distance(int8_copy(model)(**batch).logits, expected)
    attach_quantizers_(model).set_(True)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(40):
        loss = _distance(model(**batch).logits, expected)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert lost > 0.01
    assert _distance(model(**batch).logits, expected) < 0.2 * lost


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (RunSpec(method=MethodSpec(quantize_from=0.5)), "--quantize-from belongs to --quantize"),
        (replace(replace_in(INT8, method={"quantize": "binary"}), prune=TINY.prune), "chooses its own zeros"),
        (replace_in(INT8, train={"together": 2}), "cannot be trained together with quantised weights"),
    ],
)
def test_options_that_cannot_work_are_refused(spec: RunSpec, sentence: str) -> None:
    with pytest.raises(BermoError, match=sentence):
        check_methods(check(spec))


def _distance(logits: Tensor, expected: Tensor) -> Tensor:
    return (logits - expected).norm() / expected.norm()
