"""Vectors of every layer: parity with a loop over single texts, any family and order, cached and resumed."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import bermo.vectors.pooled as pooled
from bermo.encoders.families import has_segments
from bermo.errors import BermoError
from bermo.models.tasks import BermoForSequenceClassification
from bermo.vectors import Encoder, load_encoder, stream_vectors, text_vectors
from tests import tiny

TEXTS = ["the cat", "a good film .", "dogs", "the bad dogs saw a cat .", "cats saw films", "the"]


def read_one_by_one(encoder: Encoder, text: str) -> list[torch.Tensor]:
    """All hidden states of one text alone, by transformers' own output."""
    reads_segments = has_segments(encoder.backbone.config)
    inputs = encoder.tokenizer(text, return_tensors="pt", return_token_type_ids=reads_segments)
    with torch.no_grad():
        outputs = encoder.backbone(**inputs, output_hidden_states=True)
    return [hidden[0] for hidden in (*outputs.hidden_states[:-1], outputs.last_hidden_state)]


@pytest.fixture(scope="module", params=["bert", "distilbert", "albert", "modernbert", "xlnet", "gpt2"])
def encoder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    torch.manual_seed(0)
    folder = tiny.save_backbone(request.param, tmp_path_factory.mktemp(request.param))
    return load_encoder(folder, device="cpu")


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, BermoForSequenceClassification]:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("mixed")
    model = BermoForSequenceClassification.from_backbone(tiny.make_config("bert"), mix="across")
    model.save_pretrained(folder)
    tiny.make_tokenizer().save_pretrained(folder)
    return folder, model.eval()


def test_streamed_vectors_are_those_of_each_text_alone(encoder: Encoder) -> None:
    seen = []
    for batch in stream_vectors(encoder, iter(TEXTS), batch_size=2):
        for index, row in enumerate(batch.rows):
            seen.append(int(row))
            alone = read_one_by_one(encoder, TEXTS[row])
            is_token = batch.is_token[index]
            assert len(batch.vectors) == len(alone) == encoder.num_layers == 4
            for vectors, expected in zip(batch.vectors, alone, strict=True):
                torch.testing.assert_close(vectors[index][is_token], expected, atol=2e-5, rtol=1e-4)
    assert sorted(seen) == list(range(len(TEXTS)))


def test_pooled_vectors_are_those_of_each_text_alone(encoder: Encoder, tmp_path: Path) -> None:
    for pooling in ("first", "last", "mean"):
        stored = text_vectors(
            encoder, TEXTS, pooling=pooling, batch_size=4, dtype="float32", cache=str(tmp_path)
        )
        for row, text in enumerate(TEXTS):
            for layer, alone in enumerate(read_one_by_one(encoder, text)):
                expected = {"first": alone[0], "last": alone[-1], "mean": alone.mean(0)}[pooling]
                actual = torch.from_numpy(stored.read(str(layer))[row])
                torch.testing.assert_close(actual, expected, atol=2e-5, rtol=1e-4)


def test_tokens_know_their_words_and_what_is_special(encoder: Encoder) -> None:
    words = [["the", "cat"], ["dogs", "saw", "good", "films"]]
    for batch in stream_vectors(encoder, words, layers=[-1]):
        for index, row in enumerate(batch.rows):
            inner = ~batch.is_special[index]
            assert batch.word_of[index][inner].tolist() == list(range(len(words[row])))
            assert (batch.word_of[index][~inner] == -1).all()
            tokens = encoder.tokenizer.convert_ids_to_tokens(batch.input_ids[index][inner].tolist())
            assert tokens == words[row]
        assert batch.layers == (encoder.num_layers - 1,)
        assert len(batch.vectors) == 1


def test_the_mix_of_a_saved_model_is_what_its_head_reads(
    mixed: tuple[Path, BermoForSequenceClassification],
) -> None:
    folder, model = mixed
    encoder = load_encoder(folder, device="cpu")
    for batch in stream_vectors(encoder, TEXTS, with_mix=True):
        with torch.no_grad():
            expected = model.core(batch.input_ids, batch.is_token.long()).last_hidden_state
        assert len(batch.vectors) == encoder.num_layers + 1
        is_token = batch.is_token
        torch.testing.assert_close(batch.vectors[-1][is_token], expected[is_token], atol=1e-5, rtol=1e-4)


def test_a_name_in_place_of_an_encoder_says_what_opens_it() -> None:
    for vectors in (text_vectors, stream_vectors):
        with pytest.raises(BermoError, match=r"Pass bermo\.load_encoder\('box'\)"):
            next(iter(vectors("box", TEXTS)))  # type: ignore[call-overload, operator]


def test_a_cache_is_read_again_and_a_stopped_one_goes_on(
    mixed: tuple[Path, BermoForSequenceClassification],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encoder = load_encoder(mixed[0], device="cpu")
    whole = text_vectors(encoder, TEXTS, cache=str(tmp_path / "whole"))
    monkeypatch.setattr(pooled, "SHARD", 2)
    forward, calls = pooled.forward, 0

    def stops_at_third(*arguments: object) -> list[torch.Tensor]:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        return forward(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(pooled, "forward", stops_at_third)
    with pytest.raises(KeyboardInterrupt):
        text_vectors(encoder, TEXTS, cache=str(tmp_path / "cut"))
    again = text_vectors(encoder, TEXTS, cache=str(tmp_path / "cut"))
    # Two shards were kept, the third was read again.
    assert calls == 4
    assert again.names == ("0", "1", "2", "3", "mix")
    for name in again.names:
        np.testing.assert_allclose(again.read(name), whole.read(name), atol=2e-3)
    text_vectors(encoder, TEXTS, cache=str(tmp_path / "cut"))
    assert calls == 4


def test_a_cache_belongs_to_one_content(
    mixed: tuple[Path, BermoForSequenceClassification], tmp_path: Path
) -> None:
    encoder = load_encoder(mixed[0], device="cpu")
    other = load_encoder(mixed[0], device="cpu", untrained_seed=3)
    assert other.mix is None
    assert other.fingerprint != encoder.fingerprint
    assert load_encoder(mixed[0], device="cpu").fingerprint == encoder.fingerprint
    a = text_vectors(encoder, TEXTS, cache=str(tmp_path)).read("3")
    b = text_vectors(other, TEXTS, cache=str(tmp_path)).read("3")
    c = text_vectors(encoder, TEXTS[::-1], cache=str(tmp_path)).read("3")
    assert not np.allclose(a, b)
    np.testing.assert_allclose(a, c[::-1], atol=2e-3)


def test_texts_are_read_in_bounded_windows() -> None:
    encoder, taken = load_encoder("box", device="cpu"), 0

    def endless() -> Iterator[str]:
        nonlocal taken
        while True:
            taken += 1
            yield "The dog sleeps."

    stream = stream_vectors(encoder, endless(), layers=[0], batch_size=2)
    next(stream)
    stream.close()
    assert taken <= 2 * 2 * 32 + 1


def test_case_is_kept_where_it_is_asked_for(
    mixed: tuple[Path, BermoForSequenceClassification],
) -> None:
    for lowercase, expected in ((None, "cat"), ("off", "<unk>")):
        encoder = load_encoder(mixed[0], device="cpu", lowercase=lowercase)  # type: ignore[arg-type]
        assert encoder.tokenizer.tokenize("the Cat") == ["the", expected]


def test_wrong_questions_are_told(tmp_path: Path) -> None:
    encoder = load_encoder("box", device="cpu")
    with pytest.raises(BermoError, match="Layer 99 was asked for"):
        next(stream_vectors(encoder, TEXTS, layers=[99]))
    with pytest.raises(BermoError, match="has no mix"):
        next(stream_vectors(encoder, TEXTS, with_mix=True))
    with pytest.raises(BermoError, match=r'no pooling "frist".*first'):
        text_vectors(encoder, TEXTS, pooling="frist")  # type: ignore[arg-type]
    with pytest.raises(BermoError, match="no texts"):
        text_vectors(encoder, [])
    with pytest.raises(BermoError, match="texts is one text, 'the cat', but a list of texts was expected"):
        text_vectors(encoder, "the cat")
    with pytest.raises(BermoError, match="a list of texts was expected"):
        next(stream_vectors(encoder, "the cat"))
    (tmp_path / "spec.json").write_text("{}")
    with pytest.raises(BermoError, match="not finished"):
        load_encoder(tmp_path)
