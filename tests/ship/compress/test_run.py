"""Compress: every form is measured, smaller models are tried in the leading ones, and a stopped command
goes on.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

from bermo.cli import main
from bermo.errors import BermoError
from bermo.progress import Quiet
from bermo.ship.compress import forms as writing
from bermo.ship.compress import plan as planning
from bermo.ship.compress import run as compressing
from bermo.ship.compress.run import compress
from bermo.ship.compress.spec import CompressSpec
from bermo.ship.runtimes.forms import FormName
from tests.ship.folders import make_model, prune_randomly_, save, write_rows

INT8: FormName = "onnx-int8-signed"
FORMS = (INT8,)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with zeros, and rows for it."""
    root = tmp_path_factory.mktemp("compress")
    model = make_model(layers=2)
    prune_randomly_(model, 0.5)
    save(model, root / "model")
    write_rows(root / "dev.tsv")
    return root


@pytest.mark.usefixtures("bench_here")
def test_compress_goes_the_whole_way_and_takes_up_where_it_stopped(
    folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "AROUND", (1.0,))
    rows = str(folders / "dev.tsv")
    spec = CompressSpec(
        run=folders / "model",
        size="0.1kB",
        train=rows,
        valid=rows,
        is_quick=True,
        forms=FORMS,
        max_loss=100,
        batches=(1,),
        lengths=(8,),
        rounds=1,
    )
    out = tmp_path / "small"
    sentences: list[str] = []
    display = Quiet()
    monkeypatch.setattr(display, "tell", sentences.append)
    made = compress(spec, out, display)
    assert any("--vocabulary" in sentence for sentence in sentences)
    assert not made.is_met
    assert "Nothing met the goal" in made.sentence
    assert {row.name for row in made.bench.rows} == {"dense", f"dense {INT8}", f"2 layers at 0.05 {INT8}"}
    for name in ("model/model.onnx", "torch/model.safetensors", "bench.json", "README.md"):
        assert (out / name).is_file()
    card = ModelCard.load(out / "README.md")
    assert made.sentence in card.text
    assert card.data.eval_results[0].metric_value == pytest.approx(made.picked.score, abs=1e-3)

    def never(*_: object) -> None:
        raise AssertionError("a finished stage ran again")

    monkeypatch.setattr(writing, "export", never)
    monkeypatch.setattr(compressing, "make_small", never)
    again = compress(spec, out, Quiet())
    assert again.picked.name == made.picked.name
    with pytest.raises(BermoError, match="other options"):
        compress(replace(spec, max_loss=5), out, Quiet())


@pytest.mark.usefixtures("bench_here")
def test_models_made_elsewhere_take_part_and_nothing_is_trained(
    folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compressing, "finetune", None)
    elsewhere = save(make_model(layers=1), tmp_path / "elsewhere")
    rows = str(folders / "dev.tsv")
    spec = CompressSpec(
        run=folders / "model",
        size="30kB",
        train=rows,
        valid=rows,
        candidates=(elsewhere,),
        with_training=False,
        forms=FORMS,
        max_loss=100,
        batches=(1,),
        lengths=(8,),
        rounds=1,
    )
    made = compress(spec, tmp_path / "small", Quiet())
    assert [row.name for row in made.bench.rows] == ["dense", f"dense {INT8}", f"elsewhere {INT8}"]
    assert made.picked.name == f"elsewhere {INT8}"
    for wrong, sentence in (
        ((), "leaves nothing to choose from"),
        ((elsewhere, elsewhere), "Two candidates are called"),
        ((tmp_path / "small" / "model",), "is an export already"),
    ):
        with pytest.raises(BermoError, match=sentence):
            compress(replace(spec, candidates=wrong), tmp_path / "other", Quiet())
    assert not (tmp_path / "other").exists()


@pytest.mark.usefixtures("bench_here")
def test_by_default_students_are_trained_with_the_run_as_teacher(
    folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(planning, "AROUND", (1.0,))
    monkeypatch.setattr(planning, "needed_share", lambda *_: 0.5)
    taught = []
    finetune = compressing.finetune

    def record(spec: object, *rest: object) -> object:
        taught.append(spec)
        return finetune(spec, *rest)

    monkeypatch.setattr(compressing, "finetune", record)
    rows, out = folders / "dev.tsv", tmp_path / "small"
    command = (
        f"compress {folders / 'model'} --train {rows} --valid {rows} --speedup 1000 --epochs 1 --batch-size 8"
    )
    command += f" --forms {INT8} --max-loss 100 --batch 1 --lengths 8 --rounds 1 --out {out}"
    assert main(command.split()) == 3, (
        "the goal is out of reach, so the nearest is kept and the exit code says so"
    )
    assert [spec.distill.teacher for spec in taught] == [str(folders / "model")] * len(taught) != []
    assert any(spec.prune.method == "heads-and-neurons" for spec in taught)
    text = (out / "README.md").read_text()
    assert "1 layer" in text
    assert "Measured with" in text
    assert "Nothing met the goal" in capsys.readouterr().out


def test_smaller_models_are_tried_in_the_forms_that_lead() -> None:
    from bermo.ship.compress.goal import Goal, leading_forms
    from tests.ship.rows import make_bench

    dense = make_bench({"dense": 8.0, "dense onnx": 6.0, f"dense {INT8}": 2.0, "dense openvino-bf16": 2.5})
    assert leading_forms(Goal(what="latency", value=1), dense) == (INT8, "openvino-bf16")
