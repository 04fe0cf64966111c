"""A teacher beside masked words: learned, resumed to the bit, and named on the card."""

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from transformers import AutoModel

from bermo.cli import main
from bermo.encoders.backbone import load_tokenizer
from bermo.errors import BermoError
from bermo.methods.pretraining.build import build_model, load_text, make_batches
from bermo.methods.pretraining.guess import GuessLoss
from bermo.methods.pretraining.run import pretrain
from bermo.methods.pretraining.teach import TaughtLoss, Teacher
from bermo.pretrain_spec import ObjectiveSpec, PretrainSpec
from bermo.progress import Quiet
from bermo.runs.rows import read_rows
from bermo.training.job import Stopped, compute_loss
from tests.methods.pretraining.world import make_spec, write_documents, write_teacher
from tests.tiny import save_backbone


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("place")
    write_teacher(write_documents(folder), folder / "teacher")
    return folder


def taught_spec(place: Path, layers: Any = "all", kind: Any = "mlm", **pace: Any) -> PretrainSpec:
    objective = ObjectiveSpec(kind=kind, teacher=str(place / "teacher"), teach_layers=layers)
    return replace(make_spec(str(place / "text.txt"), place / "cache", **pace), objective=objective)


@pytest.mark.parametrize(("kind", "layers"), [("mlm", "all"), ("mlm", "last"), ("electra", "all")])
def test_the_loss_is_that_of_a_slow_loop_over_words(kind: Any, layers: Any, place: Path) -> None:
    spec = taught_spec(place, layers, kind)
    corpus = load_text(spec, print)
    teacher = Teacher(spec.objective.teacher or "", 2, layers, Accelerator(cpu=True))
    assert teacher.layers == ({1: 2, 2: 3} if layers == "all" else {2: 3})
    batches: Any = make_batches(spec, corpus, teacher)
    teacher.measure_(batches)
    model = build_model(spec, corpus, teacher).eval()
    batch = batches.collate(batches.epoch(0)[0][:3])
    loss = TaughtLoss(teacher, words=5.0, rows=2.0)
    read: list[torch.Tensor] = []
    hook = model.encoder.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
    torch.manual_seed(1)  # ELECTRA's generator draws words
    found = compute_loss(model, loss, batch)
    hook.remove()

    inputs = {name: batch[name] for name in ("input_ids", "places", "targets", "weights")}
    hidden = model.encoder(read[0], output_hidden_states=True).hidden_states
    encoder = AutoModel.from_pretrained(place / "teacher").eval()
    theirs = encoder(batch["teacher_ids"], batch["teacher_mask"], output_hidden_states=True).hidden_states
    maps: Any = model.maps
    torch.manual_seed(1)
    expected = compute_loss(model, GuessLoss(), inputs)
    counts = batch["weights"].sum(1)
    for row in range(3):
        errors = []
        for own in {int(word) for word in batch["own_words"][row] if word >= 0}:
            there = batch["teacher_words"][row] == own
            if not there.any():
                continue
            here = batch["own_words"][row] == own
            for number, (mine, other) in enumerate(teacher.layers.items()):
                standard = teacher.standards[number]
                wanted = (theirs[other][row, there].mean(0) - standard.mean_D) / standard.deviation_D
                errors.append((maps.words[number](hidden[mine][row, here].mean(0)) - wanted).square().mean())
        real = batch["teacher_mask"][row].bool()
        vector = torch.nn.functional.normalize(theirs[-1][row, real].mean(0), dim=0)
        wanted = (vector - teacher.standards[-1].mean_D) / teacher.standards[-1].deviation_D
        whole = (maps.row(hidden[-1][row, 0]) - wanted).square().mean()
        share = counts[row] / counts.sum()
        expected = expected + share * (5.0 * torch.stack(errors).mean() + 2.0 * whole)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_more_and_more_of_the_teacher_is_explained_and_the_card_names_it(place: Path, tmp_path: Path) -> None:
    spec = taught_spec(place, steps=60, lr=5e-3, batch_size=16)
    result = pretrain(spec, tmp_path / "run")
    seen = [
        row["valid/words"] for row in read_rows(tmp_path / "run" / "metrics.jsonl") if "valid/words" in row
    ]
    # What words are there explains most of a random teacher's vectors; a student of some steps knows a part.
    assert 3 < seen[0] < seen[-1] == result.values["words"]
    left = 5 * (1 - result.values["words"] / 100) + 1 - result.values["rows"] / 100
    assert result.values["objective"] == pytest.approx(result.values["likelihood"] - left)
    card = (tmp_path / "run" / "model" / "README.md").read_text()
    assert "the vectors of teacher: words × 5 in all layers, rows × 1" in card
    assert "--teacher teacher" in card
    assert str(place) not in card
    # What is saved is the encoder alone.
    assert not [
        name for name in AutoModel.from_pretrained(tmp_path / "run" / "model").state_dict() if "map" in name
    ]


@pytest.mark.parametrize(("kind", "decides"), [("mlm", "objective"), ("electra", "detection")])
def test_a_stopped_run_with_a_teacher_goes_on_to_the_same_bits(
    kind: str, decides: str, place: Path, tmp_path: Path
) -> None:
    class StopAtThree(Quiet):
        def step(self, done: int, loss: float | None) -> None:
            if done == 3:
                signal.raise_signal(signal.SIGINT)

    spec = taught_spec(place, kind=kind)
    whole = pretrain(spec, tmp_path / "whole")
    assert next(iter(whole.values)) == decides
    with pytest.raises(Stopped):
        pretrain(spec, tmp_path / "parts", StopAtThree())
    assert pretrain(spec, tmp_path / "parts").values == whole.values
    files = [tmp_path / name / "model" / "model.safetensors" for name in ("whole", "parts")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_accumulated_batches_have_the_loss_of_whole_ones(place: Path, tmp_path: Path) -> None:
    losses = [
        pretrain(taught_spec(place, steps=2, accumulation=parts), tmp_path / str(parts)).loss
        for parts in (1, 4)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_another_teacher_of_the_same_name_is_noticed(place: Path, tmp_path: Path) -> None:
    write_teacher(str(place / "text.txt"), tmp_path / "teacher")
    spec = taught_spec(place, steps=1)
    spec = replace(spec, objective=replace(spec.objective, teacher=str(tmp_path / "teacher")))
    pretrain(spec, tmp_path / "run")
    model = AutoModel.from_pretrained(tmp_path / "teacher")
    model.embeddings.word_embeddings.weight.data += 1
    model.save_pretrained(tmp_path / "teacher")
    with pytest.raises(BermoError, match="The data or the teacher of"):
        pretrain(spec, tmp_path / "run")


@pytest.mark.parametrize("family", ["mpnet", "roberta", "distilbert", "modernbert"])
def test_encoders_of_other_families_teach(family: str, place: Path, tmp_path: Path) -> None:
    folder = save_backbone(family, tmp_path / family)
    load_tokenizer(place / "teacher").save_pretrained(folder)
    model = AutoModel.from_pretrained(folder)
    model.resize_token_embeddings(420)
    model.save_pretrained(folder)
    spec = taught_spec(place, steps=1)
    spec = replace(spec, objective=replace(spec.objective, teacher=str(folder)))
    assert pretrain(spec, tmp_path / "run").loss > 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--teacher /no/where", 'There is no folder "/no/where"'),
        ("--teacher box --objective mlm+nsp", "A teacher goes with --objective mlm or electra, not mlm+nsp"),
        ("--teach-rows 3", "--teach-rows needs a teacher"),
        ("--teacher box --teach-words 0 --teach-rows 0", "both 0, so nothing is taught"),
        ("--teacher GPT", "reads from left to right only and cannot teach"),
    ],
)
def test_mistakes_are_told_in_one_sentence(
    words: str, sentence: str, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if "GPT" in words:
        folder = save_backbone("gpt2", tmp_path / "gpt2")
        load_tokenizer(place / "teacher").save_pretrained(folder)
        words = words.replace("GPT", str(folder))
    text = f"--text {place}/text.txt --held-out 0.1 --cache {place}/cache --vocabulary 600"
    command = f"pretrain {text} --steps 2 --device cpu {words} --out {tmp_path}/run"
    assert main(command.split()) == 2
    assert sentence in capsys.readouterr().err
