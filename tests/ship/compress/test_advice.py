"""An export that was made on another processor: the bench times all forms of its shape and says which is
better here.
"""

import json
from pathlib import Path

import pytest

from bermo.cli import main
from bermo.machine import processor
from bermo.ship.compress import advice
from bermo.ship.compress.advice import compare_forms, is_asked, own_form
from bermo.ship.compress.forms import FormsSpec
from bermo.ship.export.run import export
from bermo.ship.export.spec import ExportSpec
from bermo.sums import write_sums
from tests.ship.folders import make_model, save, write_rows
from tests.ship.rows import make_bench


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("advice")
    save(make_model(), root / "model")
    write_rows(root / "dev.tsv")
    export(root / "model", root / "int8", ExportSpec(to="onnx-int8", max_loss=100))
    return root


def pretend_made_on(folder: Path, name: str) -> None:
    path = folder / "export.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"processor": name}))
    write_sums(folder)


def test_other_forms_are_timed_only_where_another_processor_made_the_export(exported: Path) -> None:
    assert not is_asked(exported / "int8", always=False)
    assert is_asked(exported / "int8", always=True)
    assert not is_asked(exported / "model", always=True), "a torch model is no form of its own"
    pretend_made_on(exported / "int8", "Another CPU")
    assert is_asked(exported / "int8", always=False)


@pytest.mark.usefixtures("bench_here")
def test_the_bench_says_which_form_is_better_here(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend_made_on(exported / "int8", "Another CPU")
    asked = FormsSpec(forms=("onnx", "onnx-int8-signed", "onnx-int8-unsigned"), max_loss=100)
    monkeypatch.setattr(advice, "FormsSpec", lambda **_: asked)
    out = tmp_path / "bench"
    command = f"bench {exported / 'int8'} --batch 1 --lengths 8 --rounds 1 --threads 1 --out {out}"
    assert main(command.split()) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"was made on Another CPU; this is {processor().name}." in shown


def test_advice_names_what_is_much_better_and_nothing_else() -> None:
    result = make_bench({"onnx": 8.0, "onnx-int8-unsigned": 6.0, "openvino-bf16": 2.0})
    sentence = compare_forms(result, "onnx-int8-unsigned", "Another CPU").sentence("small")
    assert "openvino-bf16 has 3.0 times its throughput" in sentence
    assert "--to best" in sentence
    level = make_bench({"onnx": 5.5, "onnx-int8-unsigned": 6.0})
    assert "No other form is better here" in compare_forms(level, "onnx-int8-unsigned", "X").sentence("small")


def test_the_better_of_two_signs_is_compared_by_its_sign() -> None:
    assert own_form({"to": "onnx-int8", "details": {"weights": "unsigned"}}) == "onnx-int8-unsigned"
    assert own_form({"to": "openvino", "details": {}}) == "openvino"
