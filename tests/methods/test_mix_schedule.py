"""Mixes that open or close while a model learns."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bermo.errors import BermoError
from bermo.methods.checks import check_methods
from bermo.methods.finetune import finetune
from bermo.methods.mix_schedule import MixHook, openness, shipped_form
from bermo.models.tasks import BermoForSequenceClassification
from bermo.nn.mix import LayerMix
from bermo.runs.rows import METRICS_FILE, read_rows
from bermo.spec import MixSpec, PruneSpec, RunSpec, replace_in
from tests.methods.resumed import check_resumes_to_the_bit
from tests.ship.folders import make_model
from tests.specs import TINY
from tests.tiny import make_batch

pytestmark = pytest.mark.usefixtures("shallow_box")
CLOSES = replace_in(
    replace(TINY, prune=PruneSpec()),
    train={"epochs": 2, "evaluations": 4},
    model={"mix": MixSpec(kind="raw")},
    method={"mix_path": "closes"},
)


def test_layers_enter_from_the_top_one_after_the_other_and_leave_the_other_way() -> None:
    def opened(done: float) -> list[float]:
        return openness("opens", 4, done).tolist()

    assert opened(0.0) == [0, 0, 0, 1]
    assert opened(0.5 / 3) == pytest.approx([0, 0, 1, 1])
    assert opened(0.25) == pytest.approx([0, 0.5, 1, 1])
    assert opened(0.5) == opened(1.0) == [1, 1, 1, 1]
    assert openness("closes", 4, 0.3).tolist() == [1, 1, 1, 1]
    assert openness("closes", 4, 0.7).tolist() == pytest.approx([0, 0.5, 1, 1])
    assert openness("closes", 4, 0.9).tolist() == openness("closes", 4, 1.0).tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize("path", ["opens", "closes"])
def test_a_layer_that_is_not_open_is_not_read_and_has_no_gradient(path: str) -> None:
    model = make_model(layers=3, mix="raw")
    hook = MixHook(model, path, num_steps=10)  # type: ignore[arg-type]
    hook.move_(0.0 if path == "opens" else 1.0)
    assert isinstance(model.mix, LayerMix)
    assert model.mix.weights.tolist() == [0, 0, 0, 1]
    hidden = [torch.randn(2, 3, 16) for _ in range(4)]
    mixed = model.mix(hidden)
    torch.testing.assert_close(mixed, hidden[-1] * model.mix.scale, rtol=0, atol=0)
    mixed.sum().backward()
    assert torch.isfinite(model.mix.logits.grad).all()
    with torch.no_grad():
        stream = model.mix.stream()
        for index, layer in enumerate(hidden):
            stream.add(index, layer)
        torch.testing.assert_close(stream.result(), mixed)


def test_a_closed_mix_is_saved_as_a_plain_encoder_with_the_same_answers(tmp_path: Path) -> None:
    model = make_model(layers=3, mix="raw")
    MixHook(model, "closes", num_steps=10).move_(1.0)
    batch = make_batch("bert")
    with torch.no_grad():
        expected = model(**batch).logits
    with shipped_form(model, "closes"):
        model.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["mix"]["kind"] == "none"
    plain = BermoForSequenceClassification.from_pretrained(tmp_path).eval()
    with torch.no_grad():
        torch.testing.assert_close(plain(**batch).logits, expected, rtol=0, atol=0)
        torch.testing.assert_close(model(**batch).logits, expected, rtol=0, atol=0)
    assert isinstance(model.mix, LayerMix)


def test_a_run_that_closes_resumes_to_the_bit_and_ships_a_plain_encoder(tmp_path: Path) -> None:
    saved = check_resumes_to_the_bit(CLOSES, tmp_path, step=1)
    assert not any("layer_mix" in name for name in saved)
    rows = read_rows(next((tmp_path / "whole").glob("seed-*")) / METRICS_FILE)
    last = [row for row in rows if "mix/0" in row][-1]
    shares = [value for name, value in last.items() if name.startswith("mix/")]
    assert shares[-1] == 1
    assert sum(float(value or 0) for value in shares) == 1


def test_a_run_that_opens_keeps_its_learned_mix(tmp_path: Path) -> None:
    spec = replace_in(CLOSES, method={"mix_path": "opens"}, model={"mix": MixSpec()})
    result = finetune(spec, tmp_path / "run")
    assert min(result.seeds[0].mix_weights) > 0


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"method": {"mix_path": "closes"}}, 'the mix "across" changes what it reads. Add --mix raw'),
        ({"method": {"mix_path": "opens"}, "model": {"mix": MixSpec(kind="none")}}, "Add --mix across"),
        (
            {"method": {"mix_path": "opens"}, "train": {"together": 2}},
            "together with a mix that opens or closes",
        ),
    ],
)
def test_options_that_cannot_work_are_refused(changes: dict[str, dict[str, object]], sentence: str) -> None:
    with pytest.raises(BermoError, match=sentence):
        check_methods(replace_in(RunSpec(), **changes))
