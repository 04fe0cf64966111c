"""Heads of a trained model: gradients against finite differences, scans against heads cut by hand."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModel

from bermo.analyse.certainty import FEWEST_ROWS
from bermo.analyse.effects import measure_effects
from bermo.analyse.head_figures import one_off_section, pruning_section
from bermo.analyse.heads import (
    PATTERNS,
    all_on,
    gate_gradients,
    head_importance,
    measure_fixed,
    measure_one_left,
    measure_one_off,
    measure_pruning,
    nearest_patterns,
    pattern_map,
    prune_order,
    score_with,
)
from bermo.analyse.labelled import Labelled, load_labelled
from bermo.analyse.layers import measure_cut
from bermo.cli import main
from bermo.encoders.attention import attending
from bermo.errors import BermoError
from bermo.figures.data import read_findings
from bermo.files import write_json
from bermo.models.tasks import BermoForSequenceClassification
from bermo.vectors import Encoder
from tests.analyse.conftest import TEXTS
from tests.tiny import make_config, make_tokenizer


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models as runs leave them, one with zeros, and rows with answers."""
    folder = tmp_path_factory.mktemp("runs")
    for name in ("dense", "pruned"):
        torch.manual_seed(0)
        model = BermoForSequenceClassification.from_backbone(
            make_config("bert"), mix="within", num_labels=2, id2label={0: "no", 1: "yes"}
        )
        with torch.no_grad():
            model.head.out.weight.mul_(5)
            if name == "pruned":
                model.core.backbone.encoder.layer[2].attention.self.query.weight[:8] = 0
        target = folder / name / "model"
        model.save_pretrained(target)
        make_tokenizer().save_pretrained(target)
        task = {"task": "own", "kind": "classification", "labels": ["no", "yes"], "text": ["text"]}
        write_json(target / "task.json", task | {"max_length": 32, "stride": 8})
        write_json(folder / name / "spec.json", {})
    rows = [f"{text}\t{'yes' if 'cat' in text else 'no'}" for text in TEXTS]
    (folder / "dev.tsv").write_text("text\tlabel\n" + "\n".join(rows) + "\n")
    (folder / "some.txt").write_text("\n".join(TEXTS) + "\n")
    return folder


@pytest.fixture(scope="module")
def labelled(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Labelled:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BERMO_CACHE", str(tmp_path_factory.mktemp("cache")))
        return load_labelled(runs / "dense", str(runs / "dev.tsv"), 100, cpu=True)


def test_gradients_of_gates_equal_finite_differences_row_by_row(labelled: Labelled) -> None:
    batch = next(labelled.batches(batch_size=3))
    gradients = gate_gradients(labelled, all_on(labelled), batch)
    assert gradients.shape == (3, 3, 2)
    for row in range(3):
        alone = {name: value[row : row + 1] for name, value in batch.items()}
        for layer, head in ((0, 0), (1, 1), (2, 0)):
            losses = []
            for step in (1e-2, -1e-2):
                gates = all_on(labelled)
                gates[layer, head] += step
                with torch.no_grad(), attending(labelled.model.core.backbone, gates=gates):
                    losses.append(float(labelled.model(**alone).loss))
            slope = abs(losses[0] - losses[1]) / 2e-2
            assert float(gradients[layer, row, head]) == pytest.approx(slope, rel=0.05, abs=2e-3)


def test_importance_is_the_mean_over_rows_however_they_are_batched(labelled: Labelled) -> None:
    rows = [gate_gradients(labelled, all_on(labelled), batch)[:, 0] for batch in labelled.batches(1)]
    expected = torch.stack(rows).double().mean(0)
    torch.testing.assert_close(head_importance(labelled), expected, atol=1e-5, rtol=1e-3)


def test_scans_score_what_cutting_a_head_by_hand_scores(labelled: Labelled) -> None:
    off, left = measure_one_off(labelled), measure_one_left(labelled)
    assert off.full == labelled.score()
    for layer in range(3):
        weight = labelled.model.core.backbone.encoder.layer[layer].attention.output.dense.weight
        kept = weight.clone()
        for head in range(2):
            with torch.no_grad():
                weight[:, 8 * head : 8 * head + 8] = 0
                assert off.scores[layer][head] == pytest.approx(labelled.score())
                weight.copy_(kept)
            # Of two heads, one off is the other left.
            assert left.scores[layer][1 - head] == off.scores[layer][head]
    assert len({score for row in off.scores for score in row}) > 1


def test_pruning_goes_from_all_heads_to_none_by_importance(labelled: Labelled) -> None:
    measured = measure_pruning(labelled)
    assert measured.kept[0] == 1
    assert measured.kept[-1] == 0
    assert measured.by_importance[0] == measured.at_random[0] == labelled.score()
    assert measured.by_importance[-1] == score_with(labelled, 0 * all_on(labelled))
    assert prune_order(torch.tensor([[3.0, 4.0], [0.1, 0.0]])) == [3, 0, 1, 2]
    assert measured.rows < FEWEST_ROWS
    assert "(too few rows for an interval) of the heads" in pruning_section({"tiny": measured}).text
    sure = replace(measured, least_ends=(0.2, 0.7), by_importance=(90.0, *measured.by_importance[1:]))
    assert "100 % (20 … 70) of the heads" in pruning_section({"tiny": sure}).text


def test_fixed_patterns_are_distributions_that_respect_the_mask() -> None:
    allowed = torch.tensor([[1, 1, 1, 0], [0, 1, 1, 1]], dtype=torch.bool)
    scores = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    attention = torch.softmax(scores.masked_fill(~allowed[:, None, None], float("-inf")), -1)
    for name in PATTERNS:
        pattern = pattern_map(name, attention)
        torch.testing.assert_close(pattern.sum(-1), torch.ones(2, 1, 4, 4)[..., 0])
        assert pattern.masked_select(~allowed[:, None, None].expand_as(pattern)).abs().max() == 0
    assert pattern_map("previous", attention)[0, 0, 2].tolist() == [0, 1, 0, 0]
    assert pattern_map("first", attention)[1, 0, 3].tolist() == [0, 1, 0, 0]
    assert pattern_map("last", attention)[0, 0, 0].tolist() == [0, 0, 1, 0]
    causal = torch.softmax(scores.masked_fill(~torch.ones(4, 4).tril().bool(), float("-inf")), -1)
    assert pattern_map("next", causal).triu(1).abs().max() == 0


def test_a_head_that_looks_at_itself_has_itself_as_its_pattern(labelled: Labelled) -> None:
    layer = labelled.model.core.backbone.encoder.layer[0].attention.self
    kept = layer.query.weight.clone(), layer.key.weight.clone()
    with torch.no_grad():
        layer.query.weight[:8] = 6 * torch.linalg.qr(torch.randn(16, 16))[0][:8]
        layer.key.weight[:8] = layer.query.weight[:8]
        assert nearest_patterns(labelled)[0][0] in ("itself", "all")
        layer.query.weight.copy_(kept[0])
        layer.key.weight.copy_(kept[1])
    measured = measure_fixed(labelled)
    assert len(measured.patterns) == 3
    assert set(measured.patterns[0]) <= set(PATTERNS)


def test_a_cut_after_the_last_layer_scores_as_the_whole(labelled: Labelled) -> None:
    measured = measure_cut(labelled)
    assert len(measured.scores) == 3
    assert measured.scores[-1] == labelled.score()


def test_effects_equal_a_loop_over_heads(encoder: Encoder) -> None:
    measured = measure_effects(encoder, TEXTS[:2], 60)
    batch = encoder.tokenizer(list(TEXTS[:2]), return_tensors="pt", padding=True, return_token_type_ids=False)
    mask = batch["attention_mask"].bool()
    gates = torch.ones(3, 2)
    gates[1, 1] = 0
    with torch.no_grad():
        before = encoder.backbone(**batch).last_hidden_state[mask]
        with attending(encoder.backbone, gates=gates):
            after = encoder.backbone(**batch).last_hidden_state[mask]
    expected = ((after - before).norm(dim=-1) / before.norm(dim=-1)).mean()
    assert measured.effects[1][1] == pytest.approx(float(expected), rel=1e-4)


def test_models_are_measured_side_by_side_and_a_second_run_measures_nothing(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BERMO_CACHE", str(tmp_path / "cache"))
    command = [
        "analyse",
        str(runs / "dense"),
        str(runs / "pruned"),
        "--data",
        str(runs / "dev.tsv"),
    ]
    command += ["--out", str(tmp_path / "look"), "--rows", "6", "--max-length", "32"]
    assert main(command) == 0, capsys.readouterr().err
    titles = [section.title for section in read_findings(tmp_path / "look" / "figures.json").sections]
    assert {"Geometry", "Attention", "Heads: fixed patterns", "Which layers are alive?"} <= set(titles)
    parts = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "look" / "parts").iterdir()}
    assert "pruned.between.json" in parts
    assert "dense.between.json" not in parts
    (tmp_path / "look" / "parts" / "dense.layers.json").unlink()
    first = (tmp_path / "look" / "figures.json").read_text()
    assert main(command) == 0
    again = json.loads((tmp_path / "look" / "figures.json").read_text())
    assert again["sections"] == json.loads(first)["sections"]
    for path in (tmp_path / "look" / "parts").iterdir():
        assert path.name == "dense.layers.json" or path.stat().st_mtime_ns == parts[path.name]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--text some.txt", "No model was given"),
        ("--model dense --text none.txt", "none.txt"),
        ("--model dense --measures geometri --text some.txt", 'Did you mean "geometry"'),
        ("--model dense", "No text was given"),
        ("dense dense --text some.txt", "given twice"),
        ("--model dense --text empty.txt", "empty.txt is empty"),
        ("--model dense --text emoji.txt", "unknown to the tokenizer"),
        ("--model dense --text some.txt --out full", "nothing there is overwritten"),
        ("--model dense --data other.tsv --measures heads", 'has the label "maybe"'),
        ("--model dense --text some.txt --measures senses", "Word senses need --senses"),
        ("--model dense --text some.txt --max-texts 0", "max-texts must be at least 1"),
    ],
)
def test_a_mistake_is_one_sentence_and_nothing_is_written(
    words: str,
    sentence: str,
    runs: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(runs)
    Path("empty.txt").write_text("\n \n")
    Path("emoji.txt").write_text("🙂 🙃 🙂\n🦊\n")
    Path("other.tsv").write_text("text\tlabel\nthe cat\tmaybe\na dog\tno\n")
    Path("full").mkdir(exist_ok=True)
    Path("full/mine.txt").write_text("keep")
    assert main(["analyse", *words.split()]) == 2
    assert sentence in capsys.readouterr().err
    assert not Path("look/figures.json").exists()
    assert Path("full/mine.txt").read_text() == "keep"


@pytest.mark.parametrize("text", ["cat", "cat " * 25_000, "."])
def test_one_word_a_very_long_line_and_a_full_stop_get_an_answer(
    text: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "one.txt").write_text(text)
    command = ["analyse", "--model", str(runs / "dense"), "--text", str(tmp_path / "one.txt")]
    assert main([*command, "--out", str(tmp_path / "look"), "--max-length", "16"]) == 0, (
        capsys.readouterr().err
    )
    assert "Geometry" in capsys.readouterr().out


def test_another_analysis_in_the_same_folder_is_refused(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["analyse", "--model", str(runs / "dense"), "--text", str(runs / "some.txt")]
    command += ["--measures", "layers", "--out", str(tmp_path / "look")]
    assert main(command) == 0
    assert main([*command, "--max-length", "16"]) == 2
    assert "What differs: --max-length was 128, now 16." in capsys.readouterr().err


def test_a_folder_without_a_model_is_refused(tmp_path: Path, runs: Path) -> None:
    (tmp_path / "bare").mkdir()
    with pytest.raises(BermoError, match="holds no model"):
        load_labelled(tmp_path / "bare", str(runs / "dev.tsv"), 10, cpu=True)


def test_a_model_of_one_layer_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = make_config("bert")
    config.num_hidden_layers = 1
    AutoModel.from_config(config).save_pretrained(tmp_path / "one")
    make_tokenizer().save_pretrained(tmp_path / "one")
    (tmp_path / "some.txt").write_text("\n".join(TEXTS))
    command = ["analyse", "--model", str(tmp_path / "one"), "--text", str(tmp_path / "some.txt")]
    assert main([*command, "--out", str(tmp_path / "look")]) == 0, capsys.readouterr().err
    printed = " ".join(capsys.readouterr().out.split())
    assert "of 2 heads" in printed
    assert "no trained masked-LM head" in printed


def test_a_finding_about_heads_says_how_sure_it_is(labelled: Labelled) -> None:
    scan = measure_one_off(labelled)
    assert scan.rows == len(TEXTS)
    text = one_off_section({"m": scan}).text
    assert "of 6 heads change the answers beyond chance" in text
    assert "(sign test over 10 rows, corrected for 6 tries)" in text
    assert "at no loss" not in text
    one = one_off_section({"m": replace(scan, is_one_answer=True)}).text
    assert one == "m: the model gives one answer to all of these rows, so no head can be judged."
    assert "has no exact test" in one_off_section({"m": replace(scan, chance=())}).text


def test_ten_rows_that_all_change_are_seen_and_one_is_not(labelled: Labelled) -> None:
    scan = measure_one_off(labelled)
    chance = tuple(tuple(2**-9 if (k, h) == (0, 0) else 1.0 for h in range(2)) for k in range(3))
    assert one_off_section({"m": replace(scan, chance=chance)}).text.startswith("m: 1 of 6 heads")
