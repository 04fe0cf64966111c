"""ELMo from bare text: what is guessed, the loss, a resumed run, and its folder in the other verbs."""

import signal
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from bermo.cli import main
from bermo.data.pretrain.corpus import load_corpus
from bermo.data.pretrain.neighbours import Neighbours
from bermo.elmo_spec import ELMOS, ElmoSpec
from bermo.encoders.attention import check_attention
from bermo.encoders.sites import prunable_sites
from bermo.encoders.structure import groups_of
from bermo.errors import BermoError
from bermo.fields import check
from bermo.methods.pretraining.build import build_model, make_batches
from bermo.methods.pretraining.guess import GuessLoss
from bermo.methods.pretraining.run import pretrain
from bermo.models.tasks import BermoForSequenceClassification
from bermo.pretrain_spec import ObjectiveSpec, PretrainSpec, ShapeSpec
from bermo.progress import Quiet
from bermo.training.job import Stopped, compute_loss
from bermo.vectors import load_encoder
from tests.methods.pretraining.world import make_spec, write_documents
from tests.tiny import make_batch, make_config


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_documents(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def elmo_spec(text: str, cache: Path, **pace: Any) -> PretrainSpec:
    return replace(
        make_spec(text, cache, **pace),
        shape=ShapeSpec(positions=64),
        objective=ObjectiveSpec(kind="elmo"),
        elmo=ElmoSpec(filters=("1:8", "2:8", "3:8"), cells=24, projection=12, characters=20),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One trained on documents that say one word again and again."""
    out = tmp_path_factory.mktemp("run")
    words = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    documents = [f"{words[(k + k // 10) % 10]} " * 60 + "." for k in range(63)]
    (out / "echoes.txt").write_text("\n\n".join(documents))
    spec = elmo_spec(str(out / "echoes.txt"), out, steps=20, lr=2e-2, batch_size=16)
    result = pretrain(spec, out / "elmo")
    assert result.diverged is None
    assert -result.values["likelihood"] < 0.8 * result.unigram_entropy
    return out / "elmo" / "model"


def test_every_word_is_guessed_once_from_each_side(text: str, cache: Path) -> None:
    spec = elmo_spec(text, cache)
    corpus = load_corpus(spec.text, 64, print)
    pieces = corpus.pieces
    names = corpus.tokenizer.convert_ids_to_tokens(list(range(pieces.size)))
    batches = make_batches(spec, corpus)
    rows = batches.epoch(0)[0]
    ids = batches.source.cut(rows)["input_ids"]
    masked = Neighbours(pieces)(ids, rows)
    assert np.array_equal(masked.ids_BT, ids)
    for row in range(len(rows)):
        # The slow way: words as lists of places, then their neighbours.
        words: list[list[int]] = []
        for place, index in enumerate(ids[row]):
            before = names[ids[row, place - 1]] if place else "[CLS]"
            if names[index].startswith("##") and not before.startswith("["):
                words[-1].append(place)
            else:
                words.append([place])
        expected = set()
        for left, right in pairwise(words):
            for way, (near, far) in enumerate(((left, right), (right, left))):
                name = names[ids[row, far[0]]]
                if name not in ("[CLS]", "[SEP]", "[PAD]", "[MASK]") and not name.startswith("##"):
                    expected.add((way, near[0], far[0]))
        count, found = len(ids[row]) - 1, set()
        for guess in np.flatnonzero(masked.weights_BK[row]):
            way = int(guess >= count)
            far = guess + 1 if way == 0 else guess - count
            assert masked.targets_BK[row, guess] == ids[row, far]
            found.add((way, int(masked.positions_BK[row, guess]), int(far)))
        assert found == expected


def test_no_word_is_guessed_by_what_has_read_it(text: str, cache: Path) -> None:
    spec = elmo_spec(text, cache)
    corpus = load_corpus(spec.text, 64, print)
    model = build_model(spec, corpus).eval()
    batches = make_batches(spec, corpus)
    batch = batches.collate(batches.epoch(0)[0])
    ids, inside = batch["input_ids"], torch.from_numpy(corpus.pieces.is_inside)
    guesses = model(**batch).words_BKV
    count = guesses.shape[1] // 2
    for row in range(len(ids)):
        # A word of one piece, in the middle.
        place = next(k for k in range(9, 30) if not inside[ids[row, k : k + 2]].any())
        changed = {**batch, "input_ids": ids.clone()}
        changed["input_ids"][row, place] = corpus.tokenizer.convert_tokens_to_ids("z")
        moved = (model(**changed).words_BKV - guesses)[row].abs().amax(-1) > 1e-6
        moved &= batch["weights"][row] > 0
        # Forward guesses up to that of the word itself, and backward ones from that on.
        assert not moved[:place].any()
        assert not moved[count + place :].any()
        assert moved[place : count + place].any()


def test_the_loss_is_the_mean_over_both_directions(text: str, cache: Path) -> None:
    spec = elmo_spec(text, cache)
    corpus = load_corpus(spec.text, 64, print)
    model: Any = build_model(spec, corpus).eval()
    batches = make_batches(spec, corpus)
    batch = batches.collate(batches.epoch(0)[0])
    loss = compute_loss(model, GuessLoss(), batch)
    hidden = model.encoder(batch["input_ids"]).last_hidden_state
    half, count, logs = hidden.shape[-1] // 2, batch["places"].shape[1] // 2, []
    for row in range(8):
        for guess in range(2 * count):
            if batch["weights"][row, guess]:
                vector = hidden[row, batch["places"][row, guess]]
                scores = model.out(vector[:half] if guess < count else vector[half:])
                logs.append(torch.log_softmax(scores, -1)[batch["targets"][row, guess]])
    torch.testing.assert_close(loss, -torch.stack(logs).mean())


def test_a_stopped_training_goes_on_to_the_same_bits(text: str, cache: Path, tmp_path: Path) -> None:
    spec = elmo_spec(text, cache)
    spec = replace(spec, shape=replace(spec.shape, dropout=0.1))

    class StopAtThree(Quiet):
        def step(self, done: int, loss: float | None) -> None:
            if done == 3:
                signal.raise_signal(signal.SIGINT)

    whole = pretrain(spec, tmp_path / "whole")
    with pytest.raises(Stopped):
        pretrain(spec, tmp_path / "parts", StopAtThree())
    assert pretrain(spec, tmp_path / "parts").values == whole.values
    files = [tmp_path / name / "model" / "model.safetensors" for name in ("whole", "parts")]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert set(whole.values) == {"likelihood", "accuracy", "perplexity"}


def test_the_folder_loads_and_reads_words_it_has_never_seen(folder: Path) -> None:
    model, words = AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert model.config.dropout == 0.1
    one, other = (words(text, return_tensors="pt") for text in ("zqxv runs", "zqxw runs"))
    layers = [model(x["input_ids"], output_hidden_states=True).hidden_states[0][0, 1] for x in (one, other)]
    assert not torch.allclose(*layers)
    card = (folder / "README.md").read_text()
    assert "every word from those before it" in card
    assert "--filters 1:8,2:8,3:8" in card
    assert "--objective elmo" in card


def test_padding_changes_nothing_and_layers_stream(folder: Path) -> None:
    model = BermoForSequenceClassification.from_backbone(folder, num_labels=2)
    assert model.config.pooling == "mean"
    ids = torch.randint(5, 200, (1, 9))
    padded = {
        "input_ids": torch.cat([ids, torch.zeros(1, 4, dtype=torch.long)], dim=1),
        "attention_mask": torch.tensor([[1] * 9 + [0] * 4]),
    }
    with torch.no_grad():
        torch.testing.assert_close(model(**padded).logits, model(ids).logits)
        streamed = model.core(ids).last_hidden_state
        stacked = model.core(ids, output_hidden_states=True).last_hidden_state
    torch.testing.assert_close(streamed, stacked)
    assert model.mix.weights.shape == (3,)


def test_an_untrained_one_spells_as_the_trained_one(folder: Path) -> None:
    trained, untrained = load_encoder(folder), load_encoder(folder, untrained_seed=1)
    buffers = [dict(one.backbone.named_buffers()) for one in (trained, untrained)]
    assert buffers[0].keys() == buffers[1].keys()
    assert all(torch.equal(buffers[0][name], buffers[1][name]) for name in buffers[0])
    weights = [one.backbone.layers[0].input for one in (trained, untrained)]
    assert not torch.equal(*weights)


def test_what_needs_heads_or_matrices_is_refused_with_a_sentence() -> None:
    model: Any = AutoModel.from_config(make_config("elmo"))
    for attempt, sentence in (
        (groups_of, "elmo has no attention heads"),
        (prunable_sites, "has no matrix that can be pruned"),
        (check_attention, "elmo has no attention heads"),
        (lambda m: m.get_input_embeddings(), "reads words by their characters"),
        (lambda m: m(**make_batch("elmo"), output_attentions=True), "ELMo has no attention"),
    ):
        with pytest.raises(BermoError, match=sentence):
            attempt(model)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--objective elmo --width 64", "Leave out --width; its shape is --elmo-config"),
        ("--objective elmo --model box", "Leave out --model; its shape"),
        ("--objective elmo --masking span", "ELMo masks nothing. Leave out --masking"),
        ("--objective elmo --recompute", "Leave --recompute out"),
        ("--objective elmo --filters 1:x", 'must be like 1:32,2:64 (characters : number), but got "1:x"'),
        ("--objective elmo --filters 12:8 --characters 10", "A filter of 12 characters does not fit"),
        ("--cells 64", "Only ELMo has --cells"),
        ("--objective elmo --elmo-config huge", "--elmo-config cannot be"),
    ],
)
def test_mistakes_are_told_before_any_training(
    words: str, sentence: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(f"pretrain --text {text} --steps 1 {words} --out {tmp_path}/run".split()) == 2
    assert sentence in capsys.readouterr().err


def test_the_released_sizes_have_the_numbers_of_their_papers() -> None:
    shape = check(ElmoSpec(name="original")).shape
    assert shape == ELMOS["original"]
    assert sum(count for _, count in shape.filters) == 2048
    assert (shape.highways, shape.cells, shape.projection) == (2, 4096, 512)


def test_it_is_analysed_without_what_it_lacks(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "texts.txt").write_text("one one two\nseven three\n" * 6)
    command = (
        f"analyse {folder} --text {tmp_path}/texts.txt --measures geometry,layers,attention --device cpu"
    )
    assert main([*command.split(), "--out", f"{tmp_path}/look"]) == 0
    parts = sorted(path.name.split(".")[1] for path in (tmp_path / "look" / "parts").iterdir())
    assert parts == ["geometry", "layers"]
    said = " ".join("".join(capsys.readouterr()).split())
    assert "(elmo) has no matrix that can be pruned" in said
    assert "elmo has no attention heads" in said


def test_a_head_and_a_mix_are_trained_on_it(folder: Path, tmp_path: Path) -> None:
    rows = [f"{word} {word} {k},{word}" for k in range(12) for word in ("one", "two")]
    (tmp_path / "my.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    command = (
        f"train --model {folder} --mix within --train {tmp_path}/my.csv --valid {tmp_path}/my.csv --epochs 1"
        f" --device cpu --max-length 8 --out {tmp_path}/run"
    )
    assert main(command.split()) == 0
    model = BermoForSequenceClassification.from_pretrained(tmp_path / "run" / "model")
    assert model.config.backbone.model_type == "elmo"
    assert len(model.mix.weights) == 3
