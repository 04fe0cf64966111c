"""The table of export forms: what each needs, and the sentence where it cannot be written or run."""

import pytest

from bermo.errors import BermoError
from bermo.machine import Processor
from bermo.ship.runtimes import forms, openvino
from bermo.ship.runtimes.forms import FORM_NAMES, FORMS, find_form, why_not, why_slow


def processor(*instructions: str) -> Processor:
    return Processor(
        name="a processor",
        architecture="x86_64",
        system="Linux",
        cores=2,
        instructions=frozenset(instructions),
    )


def test_every_name_has_its_form_and_every_int8_form_its_signs() -> None:
    assert tuple(FORMS) == FORM_NAMES
    for name, form in FORMS.items():
        assert form.name == name
        assert bool(form.signs) == (form.precision == "int8")


def test_an_unknown_form_gets_the_nearest_name() -> None:
    with pytest.raises(BermoError, match='Did you mean "onnx-int8-signed"'):
        find_form("onnx-int8-sign")


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "find_spec", lambda name: None if name == "openvino" else object())
    assert 'pip install "bermo[openvino]"' in (why_not(FORMS["openvino"]) or "")
    assert why_not(FORMS["onnx"]) is None


def test_calibrated_forms_need_texts() -> None:
    assert "--calibrate FILE" in (why_not(FORMS["openvino-int8"], has_texts=False) or "")
    assert why_not(FORMS["openvino-int8"], has_texts=True) is None
    assert why_not(FORMS["onnx-int8"], has_texts=False) is None


@pytest.mark.parametrize("has_bf16", [True, False])
def test_openvino_computes_in_bf16_only_where_it_says_it_can(
    has_bf16: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        openvino, "openvino_precisions", lambda: frozenset({"FP32", *(["BF16"] if has_bf16 else [])})
    )
    reason = why_not(FORMS["openvino-bf16"])
    assert reason is None if has_bf16 else "computes in bf16" in (reason or "")


def test_bf16_is_slow_without_its_instructions() -> None:
    assert "no instructions for bf16" in (why_slow(FORMS["torch-bf16"], processor("AVX2")) or "")
    assert why_slow(FORMS["torch-bf16"], processor("AMX bf16")) is None
    assert why_slow(FORMS["onnx"], processor()) is None
