"""Minimal pairs: drawn, read, and weighed as a loop over masked tokens weighs them."""

import json
from pathlib import Path

import pytest
import torch

from bermo.analyse.knowledge import knowledge_section, load_masked, measure_knowledge, pseudo_likelihoods
from bermo.data.pairs import KINDS, Pair, draw_pairs, read_pairs
from bermo.errors import BermoError
from bermo.models.tasks import BermoForMaskedLM
from bermo.vectors import Encoder
from tests.tiny import make_config, make_tokenizer, save_backbone


def test_drawn_pairs_differ_in_one_point_and_come_again() -> None:
    pairs = draw_pairs(20)
    assert pairs == draw_pairs(20)
    assert len(set(pairs)) == 80
    assert {pair.kind for pair in pairs} == set(KINDS)
    for pair in pairs:
        good, bad = (text.lower().rstrip(".").split() for text in (pair.good, pair.bad))
        differ = [k for k, (a, b) in enumerate(zip(good, bad, strict=True)) if a != b]
        assert len(differ) == (2 if pair.kind == "word order" else 1), pair
        if pair.kind == "word order":
            assert sorted(good) == sorted(bad)


def test_pairs_in_the_form_of_blimp_are_read(tmp_path: Path) -> None:
    line = {"sentence_good": "A dog runs.", "sentence_bad": "A dog run.", "UID": "agreement_1"}
    (tmp_path / "a.jsonl").write_text(json.dumps(line) + "\n\n", encoding="utf-8")
    assert [pair.kind for pair in read_pairs(tmp_path)] == ["agreement_1"]
    (tmp_path / "a.jsonl").write_text('{"good": 1}\n')
    with pytest.raises(BermoError, match="line 1: a pair in BLiMP's form has sentence_good"):
        read_pairs(tmp_path / "a.jsonl")
    (tmp_path / "a.jsonl").unlink()
    with pytest.raises(BermoError, match=r"no \.jsonl file"):
        read_pairs(tmp_path)


@pytest.mark.parametrize("family", ["bert", "xlnet"])
def test_pseudo_likelihood_equals_a_loop_over_masked_tokens(family: str) -> None:
    torch.manual_seed(0)
    model = BermoForMaskedLM.from_backbone(make_config(family), mix="raw")
    tokenizer = make_tokenizer(family)
    texts = ["the cat sees a film .", "dogs", "a good dog saw the cats"]
    likelihoods = pseudo_likelihoods(model, tokenizer, texts)
    for text, value in zip(texts, likelihoods, strict=True):
        ids = tokenizer(text)["input_ids"]
        total = 0.0
        for position, token in enumerate(ids):
            if token not in tokenizer.all_special_ids:
                masked = torch.tensor([[*ids[:position], tokenizer.mask_token_id, *ids[position + 1 :]]])
                with torch.no_grad():
                    logits = model(masked).logits[0, position]
                total += float(torch.log_softmax(logits, -1)[token])
        assert value == pytest.approx(total, abs=1e-3)


def test_the_control_of_a_pair_has_the_same_words_without_the_mistake() -> None:
    pairs = {pair.kind: pair for pair in draw_pairs(1)}
    polarity, negation, agreement = (pairs[kind] for kind in ("negative polarity", "negation", "agreement"))
    assert polarity.control == tuple(text.replace(" ever", "") for text in (polarity.good, polarity.bad))
    assert negation.control == tuple(text.replace(" did not", "") for text in (negation.good, negation.bad))
    assert agreement.control is not None
    for whole, alone in zip((agreement.good, agreement.bad), agreement.control, strict=True):
        assert whole.endswith(alone[1:])
    assert pairs["word order"].control is None


def test_a_frequent_word_alone_wins_no_pair(tmp_path: Path, encoder: Encoder) -> None:
    torch.manual_seed(0)
    model = BermoForMaskedLM.from_backbone(make_config("bert"))
    model.save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    pairs = [
        Pair("k", "the cat saw a dog", "a cat saw a dog", ("the cat saw dogs", "a cat saw dogs")),
        Pair("k", "the cat", "a cat", ("the cat", "a cat")),
    ]
    measured = measure_knowledge(encoder, str(tmp_path), pairs)
    values = [
        pseudo_likelihoods(load_masked(tmp_path), encoder.tokenizer, [p.good, p.bad, *(p.control or ())])
        for p in pairs
    ]
    right = [a - b > c - d for a, b, c, d in values]
    assert right[1] is False
    assert measured.controlled == (sum(right) / 2,)


def test_a_saved_masked_model_is_weighed_and_others_say_why_not(tmp_path: Path, encoder: Encoder) -> None:
    BermoForMaskedLM.from_backbone(make_config("bert")).save_pretrained(tmp_path / "masked")
    make_tokenizer().save_pretrained(tmp_path / "masked")
    measured = measure_knowledge(encoder, str(tmp_path / "masked"), draw_pairs(4))
    assert measured.kinds == tuple(KINDS)
    assert measured.counts == (4, 4, 4, 4)
    text = knowledge_section({"tiny": measured}).text
    assert text.count("of 4 pairs") == 4
    assert text.count("less the control (") == text.count("by the control alone (") == 3
    assert measured.controlled[3] is None
    save_backbone("bert", tmp_path / "bare")
    bare = measure_knowledge(encoder, str(tmp_path / "bare"), draw_pairs(1))
    assert "no trained masked-LM head" in bare.reason
    assert knowledge_section({"tiny": bare}).figures == ()
    with pytest.raises(BermoError, match="no trained masked-LM head"):
        load_masked("box")
