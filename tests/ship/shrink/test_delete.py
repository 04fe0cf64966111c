"""Top layers without a reader, and the command: a smaller model that answers, or one sentence and no file."""

import json
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard
from torch import Tensor
from transformers import AutoModelForSequenceClassification, BertConfig, BertForSequenceClassification

import bermo
from bermo.cli import main
from bermo.encoders.sites import layers_of
from bermo.encoders.structure import groups_of, structure_of
from bermo.errors import BermoError
from bermo.files import write_json
from bermo.methods.student import student_from_teacher
from bermo.nn.mix import LayerMix
from bermo.ship.shrink.delete import is_shrinkable, shrink, top_layer
from tests.tiny import make_batch, make_config

FAMILIES = ("bert", "albert", "modernbert", "gpt2", "xlnet")


def model_of(family: str, mix: object) -> bermo.BermoForSequenceClassification:
    torch.manual_seed(0)
    kind = bermo.BermoForSequenceClassification
    return kind.from_backbone(make_config(family), num_labels=2, mix=mix).double()  # type: ignore[arg-type]


def logits(model: torch.nn.Module, batch: dict[str, Tensor]) -> Tensor:
    with torch.no_grad():
        return model(**batch).logits


@pytest.mark.parametrize("mix", [{"kind": "across", "layers": (0, 1)}, {"kind": "second-to-last"}])
@pytest.mark.parametrize("family", FAMILIES)
def test_layers_above_the_mix_go_and_the_logits_stay(
    family: str, mix: dict[str, object], tmp_path: Path
) -> None:
    model, batch = model_of(family, mix), make_batch(family)
    expected = logits(model, batch)
    small = shrink(model)
    top = 2 if mix["kind"] == "second-to-last" else 1
    assert small.config.num_hidden_layers == top
    assert len(layers_of(small)) == (1 if family == "albert" else top)
    torch.testing.assert_close(logits(small, batch), expected, rtol=0, atol=1e-12)
    small.save_pretrained(tmp_path)
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path).double()
    torch.testing.assert_close(logits(again, batch), expected, rtol=0, atol=1e-12)


def test_a_top_layer_with_next_to_no_share_goes_and_the_others_weigh_what_they_weighed() -> None:
    model, batch = model_of("bert", "within"), make_batch("bert")
    assert isinstance(model.mix, LayerMix)
    with torch.no_grad():
        model.mix.logits.copy_(torch.tensor([[0.0, 1.0, 0.5, -9.0]]))
    share = float(model.mix.weights[-1])
    assert 0 < share < 1e-3
    small = shrink(model)
    assert small.config.num_hidden_layers == 2
    torch.testing.assert_close(small.mix.weights * small.mix.scale, model.mix.weights[:3] * model.mix.scale)
    assert (logits(small, batch) - logits(model, batch)).abs().max() < 10 * share
    assert not is_shrinkable(model, read_share=0.0)


@pytest.mark.parametrize("mix", ["none", "gate", "across"])
def test_a_layer_that_is_read_or_counted_in_the_mean_never_goes(mix: str) -> None:
    model = model_of("bert", mix)
    if isinstance(model.mix, LayerMix):
        with torch.no_grad():
            model.mix.logits.copy_(torch.tensor([[0.0, 1.0, 0.5, -20.0]]))
    assert top_layer(model) == 3
    assert not is_shrinkable(model)


SMALL = "--task box/tense --limit 32 --epochs 2 --batch-size 16 --lr 1e-3 --device cpu"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dense run and one with half its heads and neurons closed by a teacher's help."""
    folder = tmp_path_factory.mktemp("runs")
    assert main(f"train {SMALL} --out {folder}/dense".split()) == 0
    prune = f"--prune heads-and-neurons --density 0.5 --prune-warmup 1 --teacher {folder}/dense"
    assert main(f"train {SMALL} --out {folder}/pruned {prune}".split()) == 0
    return folder


def test_a_run_pruned_by_units_becomes_half_a_model_that_predicts(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [json.loads(line) for line in (runs / "pruned/seed-1/metrics.jsonl").read_text().splitlines()]
    last = [row for row in rows if "loss" in row][-1]
    assert last["density"] == pytest.approx(0.5)
    assert last["kept/layer.1.heads"] == 0.5
    assert last["score_std/layer.6.neurons"] > 0
    out = tmp_path / "small"
    assert main(["shrink", str(runs / "pruned"), "--out", str(out)]) == 0
    assert "24       12" in capsys.readouterr().out
    kind = AutoModelForSequenceClassification
    small, pruned = kind.from_pretrained(out), kind.from_pretrained(runs / "pruned" / "model")
    batch = make_batch("bert")
    torch.testing.assert_close(logits(small, batch), logits(pruned, batch), rtol=0, atol=1e-6)
    assert json.loads((out / "shrink.json").read_text())["after"]["neurons"] == 384
    card = ModelCard.load(out / "README.md")
    assert "| heads | 24 | 12 |" in card.text
    assert card.data.pipeline_tag == "text-classification"
    (tmp_path / "texts.txt").write_text("the dog sees the cat .\nthe dogs saw a cat .\n")
    capsys.readouterr()
    assert main(["predict", str(out), str(tmp_path / "texts.txt")]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_a_shrunk_model_trains_on_is_pruned_again_and_shrinks_again(runs: Path, tmp_path: Path) -> None:
    small, again, smaller = (tmp_path / name for name in ("small", "again", "smaller"))
    assert main(["shrink", str(runs / "pruned"), "--out", str(small)]) == 0
    prune = f"--model {small} --prune heads-and-neurons --density 0.5 --prune-warmup 1"
    assert main(f"train {SMALL} {prune} --out {again}".split()) == 0
    assert main(["shrink", str(again), "--out", str(smaller)]) == 0
    sizes = json.loads((smaller / "shrink.json").read_text())
    assert (sizes["before"]["heads"], sizes["after"]["heads"]) == (12, 6)
    assert (sizes["before"]["neurons"], sizes["after"]["neurons"]) == (384, 192)


def test_a_student_of_a_shrunk_teachers_layers_has_their_shapes() -> None:
    model, batch = model_of("bert", "none"), make_batch("bert")
    with torch.no_grad():
        for group in groups_of(model):
            group.zero_units_(torch.arange(group.count) < group.layer - 1)
    teacher = shrink(model)
    student = student_from_teacher(teacher, (1, 3))
    shapes = structure_of(teacher).layers
    assert structure_of(student).layers == (shapes[0], shapes[2])
    assert logits(student, batch).shape == (3, 2)


def test_fisher_needs_no_training_and_cuts_the_vocabulary_in_the_same_command(
    runs: Path, tmp_path: Path
) -> None:
    (tmp_path / "texts.txt").write_text("the dog sees the cat .\n")
    out = tmp_path / "small"
    command = f"shrink {runs}/dense --fisher --density 0.6 --examples 32 --device cpu --out {out}"
    assert main([*command.split(), "--vocabulary", str(tmp_path / "texts.txt")]) == 0
    result = json.loads((out / "shrink.json").read_text())
    assert result["metric"] == "accuracy"
    assert result["after"]["vocabulary"] < result["before"]["vocabulary"]
    kept = result["after"]["heads"] * 4 * 32 * 8 + result["after"]["neurons"] * 2 * 32
    assert 0.55 <= kept / (24 * 4 * 32 * 8 + 768 * 2 * 32) <= 0.6
    assert main(["predict", str(out), str(tmp_path / "texts.txt")]) == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("{runs}/dense", "There is nothing dead in"),
        ("{runs}/none", "There is no folder"),
        ("{empty}", "there is neither config.json"),
        ("{bert}", "holds a bert model, not one that bermo trained"),
        ("{strange}", "Could not load the config"),
        ("{t5}", "is not an encoder that bermo can read"),
        ("{runs}/dense --fisher", "takes --density"),
        ("{runs}/dense --fisher --density 2", "at most 1"),
        ("{runs}/dense --fisher --speedup 0.5", "speedup must be at least 1"),
        ("{runs}/dense --density 0.5", "Add --fisher"),
        ("{runs}/dense/model --fisher --density 0.5", "does not say which data"),
        ("{runs}/dense --vocabulary {runs}/none.txt", "none.txt"),
        ("{runs}/pruned --read-share 2", "read-share must be at least 0 and under 1"),
        ("{runs}/pruned --densty 1", 'Did you mean "--density"'),
    ],
)
def test_a_mistake_gets_its_sentence_and_nothing_is_written(
    arguments: str, sentence: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"runs": runs, **{name: tmp_path / name for name in ("empty", "bert", "strange", "t5")}}
    (tmp_path / "empty").mkdir()
    if "{bert}" in arguments:
        BertForSequenceClassification(
            BertConfig(
                vocab_size=9, hidden_size=4, num_hidden_layers=1, num_attention_heads=1, intermediate_size=4
            )
        ).save_pretrained(tmp_path / "bert")
    write_json(tmp_path / "strange" / "config.json", {"model_type": "newest"})
    write_json(tmp_path / "t5" / "config.json", {"model_type": "bermo", "backbone": {"model_type": "t5"}})
    out = tmp_path / "small"
    assert main(["shrink", *arguments.format(**names).split(), "--out", str(out)]) == 2
    assert sentence in capsys.readouterr().err.replace("\n", " ")
    assert not out.exists()


def test_nothing_is_overwritten(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    assert main(["shrink", str(runs / "pruned"), "--out", str(tmp_path)]) == 2
    assert "nothing there is overwritten" in capsys.readouterr().err


@pytest.mark.parametrize("options", ["--block 2,2", "--prune-by l0 --scope global", "--penalty 3", ""])
def test_options_that_units_cannot_use_are_refused(
    options: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    density = "--density 0.5" if options else ""
    command = f"train {SMALL} --prune heads-and-neurons {density} {options} --out {tmp_path}/run"
    assert main(command.split()) == 2
    assert "means nothing" in (message := capsys.readouterr().err) or "needs --density" in message


def test_a_masked_model_is_not_shrunk() -> None:
    model = model_of("bert", "none")
    bermo.prune_(
        model, bermo.Movement(density=0.5, rank="score"), bermo.CubicSchedule(total_steps=9, warmup_steps=1)
    )
    with pytest.raises(BermoError, match="still has masks"):
        shrink(model)
