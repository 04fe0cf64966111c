"""The best form on this machine: all forms are written, what cannot be is reported, and the winner for the
aim is kept.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from bermo.cli import main
from bermo.errors import BermoError
from bermo.machine import processor
from bermo.progress import Quiet
from bermo.ship.bench.run import read_bench, write_bench
from bermo.ship.compress import best as choosing
from bermo.ship.compress import forms
from bermo.ship.compress.best import pick_form
from bermo.ship.compress.forms import LEFT_OUT, FormsSpec, write_forms
from bermo.ship.compress.spec import Aim
from bermo.ship.export import write
from bermo.ship.runtimes.forms import FORMS
from bermo.sums import SUMS_FILE
from tests.ship.folders import make_model, save, write_rows
from tests.ship.rows import make_bench


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("best")
    save(make_model(), root / "model")
    write_rows(root / "dev.tsv")
    return root


@pytest.mark.usefixtures("bench_here")
def test_the_best_form_is_kept_with_a_card_that_names_the_processor(
    folders: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out, rows = tmp_path / "best", tmp_path / "texts.tsv"
    write_rows(rows)
    command = f"export {folders / 'model'} --to best --for latency --forms onnx,onnx-int8-signed"
    command += f" --data {folders / 'dev.tsv'} --max-loss 100 --batch 1 --lengths 8 --rounds 1 --out {out}"
    assert main(command.split()) == 0
    shown = capsys.readouterr().out
    result = json.loads((out / "result.json").read_text())
    assert result["picked"] in ("onnx", "onnx-int8-signed")
    assert result["processor"] == processor().name
    assert f"is best for latency on {processor().name}" in shown
    assert processor().name in (out / "README.md").read_text()
    assert json.loads((out / "model" / "export.json").read_text())["to"] == result["picked"]
    assert main(["predict", str(out), str(rows)]) == 0, "the folder answers as any trained model's does"
    monkeypatch.setattr(choosing, "write_forms", lambda *_: pytest.fail("other options start no work"))
    assert main((command + " --threads 1").split()) == 2
    assert "other options" in capsys.readouterr().err


def test_a_form_that_was_damaged_since_is_not_taken(folders: Path, tmp_path: Path) -> None:
    spec = FormsSpec(forms=("torch-bf16",))
    sums = write_forms(folders / "model", tmp_path, spec, Quiet()).folders["torch-bf16"] / SUMS_FILE
    sums.write_bytes(sums.read_bytes()[:100])
    with pytest.raises(BermoError, match=rf"{SUMS_FILE}.*Delete .*torch-bf16, and the same command"):
        write_forms(folders / "model", tmp_path, spec, Quiet())


def test_every_form_is_written_or_its_reason_is_reported(
    folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Display:
        def __init__(self) -> None:
            self.sentences: list[str] = []

        def start(self, what: str, total: int, done: int) -> None: ...
        def step(self, done: int, loss: float | None) -> None: ...
        def close(self) -> None: ...

        def tell(self, sentence: str) -> None:
            self.sentences.append(sentence)

    display, traces = Display(), list[Path]()

    def trace(model: Any, example: Any, path: Path) -> None:
        traces.append(path)
        traced_once(model, example, path)

    traced_once = write.write_onnx
    monkeypatch.setattr(write, "write_onnx", trace)
    spec = FormsSpec(calibrate=folders / "dev.tsv", data=folders / "dev.tsv", max_loss=100)
    written = write_forms(folders / "model", tmp_path / "forms", spec, display)
    assert {*written.folders, *written.refused} == {*FORMS} - {*LEFT_OUT}
    assert {"onnx", "onnx-int8-signed", "onnx-int8-unsigned"} <= {*written.folders}
    assert len(traces) == 1, "all forms are made from one graph"
    assert ("torch-bf16" in written.folders) == processor().has_bf16, "what is known to be slow is not tried"
    for name, reason in written.refused.items():
        assert f"{name} is left out. {reason}" in display.sentences
    for name, folder in written.folders.items():
        assert json.loads((folder / "export.json").read_text())["to"] == name


def test_ctrl_c_in_a_library_of_one_form_ends_them_all(
    folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> None:
        raise BermoError("torch could not write this model") from KeyboardInterrupt()

    monkeypatch.setattr(forms, "export", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_forms(folders / "model", tmp_path / "forms", FormsSpec(forms=("onnx", "torch-bf16")), Quiet())


def test_where_no_form_passes_nothing_is_chosen(folders: Path, tmp_path: Path) -> None:
    with pytest.raises(BermoError, match="No form of"):
        write_forms(folders / "model", tmp_path / "forms", FormsSpec(forms=("openvino-int8",)), Quiet())


@pytest.mark.parametrize(("aim", "name"), [("throughput", "b"), ("latency", "b"), ("size", "c")])
def test_the_winner_depends_on_the_aim(aim: Aim, name: str) -> None:
    times = {"torch fp32": 8.0, "a": 4.0, "b": 2.0, "c": 3.0}
    sizes = {"a": 5.0, "b": 9.0, "c": 5.05}
    assert pick_form(aim, make_bench(times, sizes)).name == name


def test_a_bench_comes_back_from_its_file_with_its_spread(tmp_path: Path) -> None:
    result = make_bench({"torch fp32": 8.0, "a": 4.0})
    write_bench(tmp_path / "bench.json", result)
    assert read_bench(tmp_path / "bench.json") == result
    row = json.loads((tmp_path / "bench.json").read_text())["rows"][1]
    assert row["speedup_spread"] == [2.0, 2.0]
