"""Shrunk models: layers with fewer heads or none are measured by what they have left."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bermo.analyse.attention import attention_section, measure_attention
from bermo.analyse.head_figures import one_off_section
from bermo.analyse.heads import head_importance, heads_there, measure_one_off
from bermo.analyse.labelled import Labelled, load_labelled
from bermo.analyse.run import analyse
from bermo.analyse.subject import Request
from bermo.encoders.attention import AttentionCall, attending
from bermo.encoders.structure import groups_of
from bermo.errors import BermoError
from bermo.files import write_json
from bermo.models.tasks import BermoForSequenceClassification
from bermo.progress import Quiet
from bermo.runs.model_files import MODEL_FILES, Runtime
from bermo.ship.shrink.delete import shrink
from bermo.vectors import load_encoder
from tests.analyse.conftest import TEXTS
from tests.tiny import make_config, make_tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier with two heads in layer 1, none in layer 2 and one in layer 3, and rows with answers."""
    root = tmp_path_factory.mktemp("shrunk")
    torch.manual_seed(0)
    model = BermoForSequenceClassification.from_backbone(
        make_config("bert"), mix="within", num_labels=2, id2label={0: "no", 1: "yes"}
    )
    with torch.no_grad():
        model.head.out.weight.mul_(20)
        for group in groups_of(model):
            if group.kind == "heads":
                group.zero_units_(torch.arange(group.count) >= {1: 2, 2: 0, 3: 1}[group.layer])
    small = shrink(model)
    small.save_pretrained(root / "model")
    make_tokenizer().save_pretrained(root / "model")
    task = {"task": "own", "kind": "classification", "labels": ["no", "yes"], "text": ["text"]}
    write_json(root / "model" / "task.json", task | {"max_length": 32, "stride": 8})
    rows = [f"{text}\t{'yes' if 'cat' in text else 'no'}" for text in TEXTS]
    (root / "dev.tsv").write_text("text\tlabel\n" + "\n".join(rows) + "\n")
    return root


@pytest.fixture(scope="module")
def labelled(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Labelled:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BERMO_CACHE", str(tmp_path_factory.mktemp("cache")))
        return load_labelled(folder / "model", str(folder / "dev.tsv"), 100, cpu=True)


def test_a_layer_without_heads_is_never_called_and_the_others_keep_their_numbers(folder: Path) -> None:
    encoder = load_encoder(str(folder / "model"), device="cpu")
    seen: list[tuple[int, int]] = []

    def see(call: AttentionCall) -> None:
        seen.append((call.layer, call.probabilities.shape[1]))

    ids = encoder.tokenizer(TEXTS[0], return_tensors="pt")["input_ids"]
    with torch.no_grad(), attending(encoder.backbone, see):
        encoder.backbone(input_ids=ids)
    assert seen == [(1, 2), (3, 1)]


def test_grids_are_empty_where_heads_are_gone(folder: Path, labelled: Labelled) -> None:
    assert heads_there(labelled) == (2, 0, 1)
    scan = measure_one_off(labelled)
    assert [[value is None for value in row] for row in scan.scores] == [
        [False, False],
        [True, True],
        [False, True],
    ]
    judged = replace(scan, is_one_answer=False)
    assert "of 3 heads" in one_off_section({"small": judged}).text
    importance = head_importance(labelled)
    assert (importance[0] > 0).all()
    assert importance[1].tolist() == [0, 0]
    facts = measure_attention(load_encoder(str(folder / "model"), device="cpu"), TEXTS, 32)
    assert [len(row) for row in facts.classes] == [2, 0, 1]
    assert len(facts.plane) == 3
    assert "of 3 heads" in attention_section({"small": facts}).text


def test_every_measure_reads_a_shrunk_model(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BERMO_CACHE", str(tmp_path / "cache"))
    request = Request(
        models=(str(folder / "model"),),
        texts=TEXTS,
        measures=("geometry", "identity", "attention", "heads", "layers", "sentence"),
        data=str(folder / "dev.tsv"),
        device="cpu",
        max_unknown=1.0,
        sentences=(TEXTS[0],),
        heads=("3.1",),
    )
    findings = analyse(request, tmp_path / "out", Quiet())
    titles = {section.title for section in findings.sections}
    assert {"Attention", "Heads: one off", "Heads: pruning", "Layers", "Sentences"} <= titles
    with pytest.raises(BermoError, match=r"no head 2\.1: layer 2 of model has no heads"):
        analyse(replace(request, heads=("2.1",)), tmp_path / "other", Quiet())


@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino", "sparse"])
def test_an_export_has_no_layers_to_read(runtime: Runtime, folder: Path, tmp_path: Path) -> None:
    exported = tmp_path / runtime
    shutil.copytree(folder / "model", exported)
    (exported / MODEL_FILES[runtime]).write_bytes(b"")
    request = Request(models=(str(exported),), texts=TEXTS, measures=("geometry",), device="cpu")
    with pytest.raises(BermoError, match=f"is an export for {runtime}, whose layers cannot be read"):
        analyse(request, tmp_path / "out", Quiet())
    with pytest.raises(BermoError, match="Give the run or the model that it was made from"):
        load_encoder(exported)
