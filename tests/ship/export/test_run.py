"""Export as a user meets it: what is written, what is refused, and that nothing is left of a refusal."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

from bermo.cli import main
from bermo.data.features import Features, TokenFacts
from bermo.data.load import own_task
from bermo.data.rows import TextRows
from bermo.data.tasks import Kind
from bermo.errors import BermoError
from bermo.runs.loading import reading_of
from bermo.runs.trained import open_trained
from bermo.ship.export import compare, openvino_int8
from bermo.ship.export.compare import (
    TOLERANCES,
    Compared,
    Reference,
    agreement,
    check_accepted,
    same_answers,
    same_share,
)
from bermo.ship.export.run import ExportSpec, export
from bermo.ship.runtimes.candidate import open_candidate
from bermo.ship.runtimes.texts import built_in
from tests import tiny
from tests.ship.folders import make_model, prune_randomly_, save, write_rows


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, rows for it, and its export to int8."""
    root = tmp_path_factory.mktemp("export")
    save(make_model(), root / "model")
    write_rows(root / "dev.tsv")
    export(root / "model", root / "int8", ExportSpec(to="onnx-int8", data=root / "dev.tsv"))
    return root


def test_an_export_says_what_it_is_and_how_it_compares(folders: Path) -> None:
    said = json.loads((folders / "int8" / "export.json").read_text())
    assert said["precision"] == "int8"
    assert said["compared"]["texts"] == 24
    assert 0 < said["compared"]["relative_error"] <= said["compared"]["tolerance"]
    assert said["compared"]["score_before"] is not None
    tried = said["details"]["tried"]
    assert set(tried) == {"signed", "unsigned"}
    assert said["details"]["weights"] in tried
    assert all(item["relative_error"] > 0 and item["seconds"] > 0 for item in tried.values())
    assert str(folders) not in json.dumps(said)
    names = {item.name for item in (folders / "int8").iterdir()}
    assert {"model.onnx", "task.json", "config.json", "tokenizer.json"} <= names
    assert not [name for name in names if "graph" in name or "tmp" in name]
    assert open_trained(folders / "int8").reading == reading_of(folders / "int8")


def test_predict_answers_with_an_export_as_with_the_model(
    folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "texts.txt").write_text("a good film\nthe bad cats saw dogs\n")
    answers = []
    for name in ("model", "int8"):
        assert main(["predict", str(folders / name), str(tmp_path / "texts.txt")]) == 0
        answers.append([json.loads(line) for line in capsys.readouterr().out.splitlines()])
    for one, other in zip(*answers, strict=True):
        assert one["probability"] == pytest.approx(other["probability"], abs=0.05)


def test_embeddings_are_bytes_with_a_scale_for_each_word(folders: Path) -> None:
    import onnx

    stored = onnx.load(folders / "int8" / "model.onnx").graph.initializer
    shapes = {item.name: (tuple(item.dims), item.data_type) for item in stored}
    tables = [kind for dims, kind in shapes.values() if dims == (64, 16)]  # the positions
    assert tables == [onnx.TensorProto.INT8]


@pytest.mark.parametrize("quantizer", ["nncf", "onnxruntime"])
def test_calibrated_int8_runs_in_openvino(
    quantizer: str, folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openvino_int8, "has_nncf", lambda: quantizer == "nncf")
    spec = ExportSpec(to="openvino-int8", data=folders / "dev.tsv", calibrate=folders / "dev.tsv")
    out = folders / f"openvino-{quantizer}"
    exported = export(folders / "model", out, spec)
    assert exported.details["activations"] == "calibrated ranges"
    # Where nncf's model answers otherwise than the original, as on some processors, our own takes its place.
    is_refused = exported.details.get("nncf_relative_error", 0.0) > 0.25
    assert exported.details["quantizer"] == ("onnxruntime" if is_refused else quantizer)
    assert exported.compared.relative_error < 0.25
    batch = {name: value.numpy() for name, value in tiny.make_batch("bert").items()}
    batch["token_type_ids"] = np.zeros_like(batch["input_ids"])
    (logits,) = open_candidate(open_trained(out), 1)(batch)
    assert logits.shape == (3, 2)


def test_torch_in_bf16_is_half_as_large_and_runs_in_bf16(folders: Path, tmp_path: Path) -> None:
    exported = export(folders / "model", tmp_path / "bf16", ExportSpec(to="torch-bf16"))
    opened = open_trained(tmp_path / "bf16")
    assert (opened.runtime, opened.precision, opened.is_export) == ("torch", "bf16", True)
    assert exported.num_bytes < 0.65 * open_trained(folders / "model").num_bytes
    assert 1e-6 < exported.compared.relative_error < 0.05
    candidate = open_candidate(opened)
    assert next(candidate.model.parameters()).dtype == torch.bfloat16
    with pytest.raises(BermoError, match="is an export already"):
        export(tmp_path / "bf16", tmp_path / "again", ExportSpec(to="onnx"))


def test_a_bad_result_is_refused_and_nothing_is_written(
    folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model()
    prune_randomly_(model, 0.1)
    folder = save(model, tmp_path / "model")
    monkeypatch.setattr(compare, "TOLERANCES", {"fp16": 1e-9})
    with pytest.raises(BermoError, match=r"differ by .* Nothing was written"):
        export(folder, tmp_path / "out", ExportSpec(to="sparse"))
    assert [item.name for item in tmp_path.iterdir()] == ["model"]


def test_a_fall_of_the_score_is_refused() -> None:
    compared = Compared(
        texts=900,
        on="dev.tsv",
        relative_error=0.01,
        tolerance=0.25,
        same_answers=0.9,
        score_before=91.0,
        score_after=89.5,
    )
    with pytest.raises(BermoError, match=r"1\.50 points less.*--max-loss 1\.5"):
        check_accepted(compared, "onnx-int8", 1.0)
    check_accepted(compared, "onnx-int8", 2.0)


def test_one_row_of_few_may_be_lost_but_not_two_and_none_where_none_may_be() -> None:
    one = Compared(
        texts=24,
        on="dev.tsv",
        relative_error=0.01,
        tolerance=0.25,
        same_answers=23 / 24,
        score_before=75.0,
        score_after=75.0 - 100 / 24,
    )
    check_accepted(one, "onnx-int8", 1.0)
    with pytest.raises(BermoError, match=r"4\.17 points less"):
        check_accepted(one, "onnx-int8", 0.0)
    with pytest.raises(BermoError, match=r"8\.33 points less"):
        check_accepted(replace(one, score_after=75.0 - 200 / 24), "onnx-int8", 1.0)


def reference_of(kind: Kind, targets: np.ndarray, answers: np.ndarray) -> Reference:
    """A model's answers to one short row for each target."""
    rows = TextRows(["one"] * len(targets), None)
    features = Features(
        task=own_task(kind),
        labels=("no", "yes"),
        rows=rows,
        facts=TokenFacts(unknown_share=0.0, truncated_share=0.0, lost_words=0, num_tokens=1),
        ids=np.zeros(len(targets), dtype=np.int32),
        starts=np.arange(len(targets) + 1),
        targets=targets,
    )
    return Reference(features=features, on="dev.tsv", logits=list(answers), max_loss=1.0)


def compared_with(reference: Reference, answers: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> Compared:
    """How other answers to the same rows compare."""
    monkeypatch.setattr(compare, "answer", lambda *given: list(answers))
    return reference.compare(None, "int8")  # type: ignore[arg-type]


@pytest.mark.parametrize(("num_lost", "num_won", "decides"), [(2, 0, False), (8, 5, False), (8, 0, True)])
def test_a_fall_within_the_noise_of_few_rows_decides_nothing(
    num_lost: int, num_won: int, decides: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    targets = np.array([0, 1] * 60)
    before = np.eye(2)[np.where(np.arange(120) < 100, targets, 1 - targets)]
    now = before.copy()
    for rows in (slice(0, num_lost), slice(100, 100 + num_won)):
        now[rows] = 1 - now[rows]
    compared = compared_with(reference_of("classification", targets, before), now, monkeypatch)
    assert compared.loss == pytest.approx(100 * (num_lost - num_won) / 120)
    assert compared.is_within_noise is not decides
    if decides:
        with pytest.raises(BermoError, match="points less"):
            check_accepted(compared, "onnx-int8", 1.0)
    else:
        check_accepted(compared, "onnx-int8", 1.0)
        assert "which 120 rows cannot tell from chance" in compared.doubt
        with pytest.raises(BermoError, match="points less"):  # none at all was allowed
            check_accepted(compared, "onnx-int8", 0.0)


def test_numbers_are_compared_by_their_largest_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    targets = np.linspace(0, 5, 40)
    now = targets.copy()
    now[7] += 0.25
    compared = compared_with(reference_of("regression", targets, targets[:, None]), now[:, None], monkeypatch)
    assert compared.farthest == pytest.approx(0.25)
    assert agreement(compared.same_answers, compared.farthest) == "no answer is off by more than 0.25"
    assert agreement(0.5, None) == "50.0% of answers are the same"


def test_the_score_alone_judges_a_form_that_rounds_where_rows_have_answers() -> None:
    far = Compared(texts=900, on="dev.tsv", relative_error=1.1, tolerance=0.25, same_answers=0.99)
    with pytest.raises(BermoError, match=r"differ by 110\.00%"):
        check_accepted(far, "onnx-int8", 1.0)
    judged = replace(far, score_before=91.0, score_after=90.5)
    assert judged.is_judged_by_score
    assert not far.is_judged_by_score
    assert not replace(judged, tolerance=TOLERANCES["fp32"]).is_judged_by_score
    check_accepted(judged, "onnx-int8", 1.0)
    check_accepted(replace(judged, relative_error=0.04, tolerance=TOLERANCES["fp16"]), "sparse", 1.0)
    with pytest.raises(BermoError, match=r"0\.50 points less"):
        check_accepted(judged, "onnx-int8", 0.2)
    for refused in (replace(judged, tolerance=1e-4), replace(judged, relative_error=float("inf"))):
        with pytest.raises(BermoError, match="Nothing was written"):
            check_accepted(refused, "onnx", 100.0)


def test_not_a_number_is_never_accepted() -> None:
    compared = Compared(texts=9, on="x", relative_error=float("nan"), tolerance=0.25, same_answers=1.0)
    with pytest.raises(BermoError, match="Nothing was written"):
        check_accepted(compared, "onnx-int8", 1.0)


def test_same_answers_counts_rows_and_tags() -> None:
    before = [np.array([1.0, 0.0]), np.array([0.0, 1.0])]
    after = [np.array([0.9, 0.1]), np.array([0.6, 0.4])]
    assert same_answers(after, before, "classification") == 0.5


def test_of_questions_the_same_answers_are_those_that_are_given(tmp_path: Path) -> None:
    opened = open_trained(save(make_model(kind="span"), tmp_path / "model", "span"))
    features = built_in(opened)
    before = [np.zeros((2, length)) for length in np.diff(features.starts)]
    for piece, logits in enumerate(before):
        tokens = features.spans[features.starts[piece] : features.starts[piece + 1]]  # type: ignore[index]
        logits[:, 0] = 9.0  # training puts "the answer is not in this piece" there: it is no answer
        logits[:, np.flatnonzero(tokens[:, 0] >= 0)[0]] = 5.0
    after = [logits.copy() for logits in before]
    assert same_share(features, after, before) == 1.0
    changed = int(features.row_of[0])  # type: ignore[index]
    for piece in np.flatnonzero(np.asarray(features.row_of) == changed):
        after[piece][:, -2:] = 6.0
    assert same_share(features, after, before) == 1 - 1 / len(features.rows)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("export nothing --to onnx", "There is no folder"),
        ("export empty --to onnx", "holds no model"),
        ("export odd --to onnx", "is not an encoder that bermo can read"),
        ("export bare --to onnx", "without a head"),
        ("export half --to onnx", "is not finished"),
        ("export model --to onx", 'Did you mean "onnx"'),
        ("export model --to sparse --values fp8", '--values cannot be "fp8"'),
        ("export model --to openvino-int8", "--calibrate FILE"),
        ("export model --to sparse", "never pruned"),
        ("export model --to onnx --out taken", "is not overwritten"),
        ("export model --to onnx --data wrong.tsv", "does not know"),
        ("export int8 --to onnx", "is an export already"),
    ],
)
def test_every_mistake_gets_its_sentence_and_nothing_is_written(
    command: str,
    sentence: str,
    folders: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folders)
    for name, content in (("empty", None), ("odd", {"model_type": "t5"}), ("taken", None)):
        (folders / name).mkdir(exist_ok=True)
        if content:
            (folders / name / "config.json").write_text(json.dumps(content))
    bare = {**BertConfig(**tiny.SIZES).to_dict(), "architectures": ["BertModel"]}
    (folders / "bare").mkdir(exist_ok=True)
    (folders / "bare" / "config.json").write_text(json.dumps(bare))
    (folders / "half").mkdir(exist_ok=True)
    (folders / "half" / "spec.json").write_text("{}")
    (folders / "wrong.tsv").write_text("text\tlabel\na film\tgreat\n")
    before = sorted(folders.rglob("*"))
    assert main(command.split()) == 2
    assert sentence in capsys.readouterr().err
    assert sorted(folders.rglob("*")) == before


def test_a_plain_transformers_model_is_known_by_its_config(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(**tiny.SIZES, num_labels=2))
    model.save_pretrained(tmp_path / "plain")
    tiny.make_tokenizer().save_pretrained(tmp_path / "plain")
    source = open_trained(tmp_path / "plain")
    assert (source.runtime, source.trained.labels) == ("torch", ("0", "1"))
    batch = {name: value.numpy() for name, value in tiny.make_batch("bert").items()}
    (logits,) = open_candidate(source)(batch)
    with torch.no_grad():
        expected = model.eval()(**tiny.make_batch("bert")).logits.numpy()
    assert np.array_equal(logits, expected)
