"""XLNet from bare text: its two streams, what each reads, a resumed run, its folder in the other verbs."""

import signal
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from transformers import AutoModel, AutoTokenizer, XLNetLMHeadModel

from bermo.cli import main
from bermo.data.pretrain.corpus import Corpus, load_corpus
from bermo.encoders.families import FAMILIES
from bermo.encoders.layers import drop_layers_
from bermo.methods.pretraining.build import build_model, make_batches
from bermo.methods.pretraining.guess import GuessLoss
from bermo.methods.pretraining.run import pretrain
from bermo.models.tasks import BermoForSequenceClassification
from bermo.pretrain_spec import ObjectiveSpec, PretrainSpec
from bermo.progress import Quiet
from bermo.training.job import Stopped, compute_loss
from tests.methods.pretraining.world import make_spec, write_documents


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_documents(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def xlnet_spec(text: str, cache: Path, **pace: Any) -> PretrainSpec:
    return replace(make_spec(text, cache, **pace), objective=ObjectiveSpec(kind="xlnet"))


def random_one(text: str, cache: Path, is_held: bool = False) -> tuple[Any, dict[str, Tensor], Corpus]:
    """A model whose weights are far from zero, a batch of two rows, and the corpus."""
    spec = xlnet_spec(text, cache, batch_size=2)
    corpus = load_corpus(spec.text, 64, print)
    model: Any = build_model(spec, corpus).eval()
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    batches = make_batches(spec, corpus, is_held=is_held)
    return model, batches.collate(batches.epoch(0)[0]), corpus


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One trained on documents that say one word again and again."""
    out = tmp_path_factory.mktemp("run")
    words = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    documents = [f"{words[(k + k // 10) % 10]} " * 60 + "." for k in range(63)]
    (out / "echoes.txt").write_text("\n\n".join(documents))
    result = pretrain(xlnet_spec(str(out / "echoes.txt"), out, steps=40, lr=1e-2, batch_size=16), out / "run")
    assert result.diverged is None
    assert -result.values["likelihood"] < 0.75 * result.unigram_entropy
    return out / "run" / "model"


def read(layer: Any, query: Tensor, at: int, contents: dict[int, Tensor], reads: Iterable[int]) -> Tensor:
    """One layer for one query: attention to the contents that it reads, and the feed-forward part."""
    attention, places = layer.rel_attn, list(reads)
    read_JD = torch.stack([contents[place] for place in places])
    own_NH = torch.einsum("d,dnh->nh", query, attention.q)
    rates = 1 / 10000 ** (torch.arange(0, len(query), 2) / len(query))
    angles = (at - torch.tensor(places))[:, None] * rates
    wave_JD = torch.cat([angles.sin(), angles.cos()], dim=1)
    keys = torch.einsum("jd,dnh->jnh", read_JD, attention.k)
    distances = torch.einsum("jd,dnh->jnh", wave_JD, attention.r)
    values = torch.einsum("jd,dnh->jnh", read_JD, attention.v)
    scores = (own_NH + attention.r_w_bias) * keys + (own_NH + attention.r_r_bias) * distances
    shares_JN = (scores.sum(-1) / keys.shape[-1] ** 0.5).softmax(0)
    mixed_NH = torch.einsum("jn,jnh->nh", shares_JN, values)
    return layer.ff(attention.layer_norm(torch.einsum("nh,dnh->d", mixed_NH, attention.o) + query))


def slow_guess(model: Any, ids: list[int], order: list[int], turn: int) -> Tensor:
    """Guess the token whose turn it is; those of its turn and after are not even computed."""
    backbone = model.encoder.backbone
    known = [place for place in range(len(ids)) if place not in order]
    contents = {place: backbone.word_embedding.weight[ids[place]] for place in known + order[:turn]}
    query = backbone.mask_emb[0, 0]
    for layer in backbone.layer:
        after = {place: read(layer, contents[place], place, contents, known) for place in known}
        for index, place in enumerate(order[:turn]):
            reads = [*known, *order[: index + 1]]
            after[place] = read(layer, contents[place], place, contents, reads)
        query = read(layer, query, order[turn], contents, contents)
        contents = after
    scores: Tensor = backbone.word_embedding.weight @ query + model.bias
    return scores


@torch.no_grad()
def test_the_loss_is_that_of_one_query_at_a_time_in_the_order_of_the_row(text: str, cache: Path) -> None:
    model, batch, _ = random_one(text, cache)
    batch = {name: values[:1] for name, values in batch.items()}
    ids, order = batch["input_ids"][0].tolist(), batch["places"][0][batch["weights"][0] > 0].tolist()
    assert len(order) > 3
    turns = enumerate(order)
    logs = [slow_guess(model, ids, order, turn).log_softmax(-1)[ids[place]] for turn, place in turns]
    loss = compute_loss(model, GuessLoss(), batch)
    torch.testing.assert_close(loss, -torch.stack(logs).mean())


@torch.no_grad()
def test_no_token_is_guessed_by_what_has_read_it(text: str, cache: Path) -> None:
    model, batch, corpus = random_one(text, cache)
    guesses = model(**batch).words_BKV
    other: Any = corpus.tokenizer.convert_tokens_to_ids("z")
    count = int(batch["weights"][0].sum())
    assert count > 3
    for turn in range(count):
        changed = batch["input_ids"].clone()
        changed[0, batch["places"][0, turn]] = other
        moved = (model(**{**batch, "input_ids": changed}).words_BKV - guesses)[0].abs().amax(-1) > 1e-6
        # Neither its own guess nor one before it; all that come later have read it.
        assert moved[:count].tolist() == [k > turn for k in range(count)]


@torch.no_grad()
def test_held_out_tokens_are_guessed_from_the_unmasked_ones_alone(text: str, cache: Path) -> None:
    model, batch, corpus = random_one(text, cache, is_held=True)
    spec = replace(xlnet_spec(text, cache, batch_size=2), objective=ObjectiveSpec(kind="mlm"))
    masked = make_batches(spec, corpus, is_held=True)
    same = masked.collate(masked.epoch(0)[0])
    assert all(torch.equal(batch[name], same[name]) for name in ("places", "targets", "weights"))
    guesses = model(**batch).words_BKV
    changed = torch.where(batch["ranks"] > 0, 7, batch["input_ids"])
    assert (changed != batch["input_ids"]).any(1).all()
    moved = (model(**{**batch, "input_ids": changed}).words_BKV - guesses)[batch["weights"] > 0]
    assert moved.abs().max() < 1e-6


def test_a_guess_that_does_not_count_disturbs_none_at_its_place(text: str, cache: Path) -> None:
    model, batch, _ = random_one(text, cache)
    guesses = model(**batch).words_BKV
    batch["places"] = torch.cat([batch["places"], batch["places"][:, :1]], dim=1)
    batch["weights"] = torch.cat([batch["weights"], torch.zeros(2, 1)], dim=1)
    more = model(**batch).words_BKV[:, :-1]
    counted = batch["weights"][:, :-1] > 0
    torch.testing.assert_close(more[counted], guesses[counted])


def test_a_stopped_training_goes_on_to_the_same_bits(text: str, cache: Path, tmp_path: Path) -> None:
    spec = xlnet_spec(text, cache, layer_drop=0.2)
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


def test_a_layer_that_is_left_out_hands_both_streams_on(text: str, cache: Path) -> None:
    model, batch, _ = random_one(text, cache)
    backbone = model.encoder.backbone
    drop_layers_(backbone, FAMILIES["xlnet"], 1.0)
    guesses = model.train()(**batch).words_BKV[batch["weights"] > 0]
    expected = functional.linear(backbone.mask_emb[0, 0], backbone.word_embedding.weight, model.bias)
    torch.testing.assert_close(guesses, expected.expand_as(guesses))


def test_the_folder_is_an_xlnet_that_guesses_as_it_did(folder: Path) -> None:
    encoder, words = AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert encoder.config.dropout == 0.1
    model: Any = XLNetLMHeadModel.from_pretrained(folder)
    inputs = words("seven seven seven seven seven seven seven", return_tensors="pt")["input_ids"]
    hidden, place = torch.zeros(1, 9, 9), torch.zeros(1, 1, 9)
    hidden[:, :, 4], place[:, :, 4] = 1.0, 1.0
    with torch.no_grad():
        shares = model(inputs, perm_mask=hidden, target_mapping=place).logits[0, 0].softmax(-1)
    assert shares[words.convert_tokens_to_ids("seven")] > 3 / 10
    card = (folder / "README.md").read_text()
    assert "each from the rest and from those before it in a random order" in card
    assert "relative positions" in card
    assert "fill-mask" not in card


def test_a_head_and_a_mix_are_trained_on_it(folder: Path, tmp_path: Path) -> None:
    rows = [f"{word} {word} {k},{word}" for k in range(12) for word in ("one", "two")]
    (tmp_path / "my.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    command = (
        f"train --model {folder} --mix within --train {tmp_path}/my.csv --valid {tmp_path}/my.csv --epochs 1"
        f" --device cpu --max-length 8 --out {tmp_path}/run"
    )
    assert main(command.split()) == 0
    model = BermoForSequenceClassification.from_pretrained(tmp_path / "run" / "model")
    assert model.config.backbone.model_type == "xlnet"
    assert len(model.mix.weights) == 3


def test_it_is_analysed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("one one two\nseven three\n" * 6)
    command = f"analyse {folder} --text {tmp_path}/texts.txt --measures geometry,layers --device cpu"
    assert main([*command.split(), "--out", f"{tmp_path}/look"]) == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--model box", "XLNet starts from random weights. Leave out --model"),
        ("--model box --layers 12", "XLNet starts from random weights. Leave out --model"),
        ("--masking phrase", "XLNet guesses a sixth of the tokens, in runs. Leave out --masking"),
        ("--mask-share 0.3", "Leave out --mask-share"),
        ("--inner-mix within", "XLNet's two streams cannot be mixed inside. Leave out --inner-mix"),
        ("--recompute", "XLNet cannot compute its layers again"),
        ("--teacher box", "A teacher goes with --objective mlm or electra, not xlnet"),
        ("--cells 64", "Only ELMo has --cells"),
        ("--width 33 --heads 1", "XLNet's width must be even, for its sines and cosines, but got 33"),
    ],
)
def test_mistakes_are_told_before_any_training(
    words: str, sentence: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(f"pretrain --text {text} --steps 1 --objective xlnet {words} --out {tmp_path}/run".split()) == 2
    )
    assert sentence in capsys.readouterr().err
