"""One's own sentence: shares that are derivatives, answers by layer, maps of heads, nearest contexts."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cosine_similarity

from bermo.analyse.answering import Answerer, load_answerer
from bermo.analyse.contexts import nearest_contexts
from bermo.analyse.sentence import head_maps, look, measure_sentences, read_sentence
from bermo.cli import main
from bermo.models.tasks import BermoForMaskedLM
from bermo.vectors import load_encoder, stream_vectors
from tests.analyse.conftest import TEXTS, build
from tests.ship.folders import make_model, save
from tests.tiny import ENCODERS, make_config, make_tokenizer

TEXT = "the cat sees a good film ."


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sentence")
    for kind in ("classification", "regression", "tagging", "span"):
        save(make_model(layers=2, kind=kind, mix="within"), root / kind, kind)
    save(make_model(layers=2, mix="none"), root / "plain")
    save(make_model(layers=4, mix="concat-last-four"), root / "wide")
    torch.manual_seed(0)
    BermoForMaskedLM.from_backbone(make_config("bert"), mix="within").save_pretrained(root / "masked")
    make_tokenizer().save_pretrained(root / "masked")
    pair = shutil.copytree(root / "classification", root / "pair")
    task = json.loads((pair / "task.json").read_text())
    (pair / "task.json").write_text(json.dumps(task | {"text": ["one", "two"]}))
    (root / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    return root


def looked(folder: Path, text: str = TEXT) -> tuple:
    encoder = load_encoder(folder, device="cpu")
    answerer = load_answerer(str(folder), encoder)
    return encoder, answerer, look(encoder, answerer, text, read_sentence(encoder, text, 60), ())


@pytest.mark.parametrize("kind", ["classification", "regression", "plain"])
def test_shares_are_the_derivatives_of_the_answer_and_sum_to_one(folders: Path, kind: str) -> None:
    encoder, _, one = looked(folders / kind)
    model = make_model(layers=2, kind="regression" if kind == "regression" else "classification", mix="none")
    model = type(model).from_pretrained(folders / kind).eval()
    ids = encoder.tokenizer(TEXT, return_tensors="pt")["input_ids"]
    embeddings = model.get_input_embeddings()(ids).detach()
    logits = model(inputs_embeds=embeddings).logits[0]
    best = int(logits.argmax())
    jacobian = torch.autograd.functional.jacobian(
        lambda x: model(inputs_embeds=x).logits[0, best], embeddings
    )
    norms = jacobian[0].norm(dim=-1)
    torch.testing.assert_close(torch.tensor(one.contributions), norms / norms.sum(), rtol=1e-3, atol=1e-5)
    assert sum(one.contributions) == pytest.approx(1)
    wanted = logits[0] if kind == "regression" else torch.softmax(logits, 0)[best]
    assert one.score == pytest.approx(float(wanted.detach()), abs=1e-5)


def test_a_hidden_token_changes_the_score_as_a_masked_one_does(folders: Path) -> None:
    encoder, answerer, one = looked(folders / "plain")
    model = type(make_model()).from_pretrained(folders / "plain").eval()
    ids = encoder.tokenizer(TEXT, return_tensors="pt")["input_ids"]
    mask = torch.ones_like(ids)
    mask[0, 2] = 0
    best = answerer.labels.index(one.answer)
    with torch.no_grad():
        change = [
            float(torch.softmax(model(ids, m).logits[0], 0)[best]) for m in (mask, torch.ones_like(ids))
        ]
    assert one.without[2] == pytest.approx(change[0] - change[1], abs=1e-5)


def test_after_the_last_layer_a_plain_encoder_says_its_answer(folders: Path) -> None:
    _, _, one = looked(folders / "plain")
    assert len(one.layers) == len(one.answers) == 3
    assert one.layers[-1] == pytest.approx(one.score)
    assert one.answers[-1] == one.answer
    assert one.shares == ()
    _, _, mixed = looked(folders / "classification")
    assert sum(mixed.shares) == pytest.approx(1)
    assert sum(mixed.made_of) == pytest.approx(1)
    _, _, wide = looked(folders / "wide")
    assert wide.layers == wide.answers == ()
    assert sum(wide.contributions) == pytest.approx(1)


def test_tags_and_words_are_answered_at_their_tokens(folders: Path) -> None:
    _, _, tags = looked(folders / "tagging")
    assert len(tags.answer.split()) == 7
    encoder, _, words = looked(folders / "masked", "the [MASK] sees a [MASK]")
    ids = encoder.tokenizer("the <mask> sees a <mask>", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        logits = BermoForMaskedLM.from_pretrained(folders / "masked").eval()(ids).logits[0]
    best = logits[ids[0] == encoder.tokenizer.mask_token_id].argmax(-1).tolist()
    assert words.answer.split() == [encoder.tokenizer.decode([token]) or f"#{token}" for token in best]
    assert len(words.answers) == 4
    _, _, bare = looked(folders / "masked")
    assert bare.kind == "vector"
    assert "[MASK]" in bare.reason
    _, _, span = looked(folders / "span")
    assert "needs more than a sentence" in span.reason


def test_the_shares_of_a_vector_are_near_the_whole_jacobian() -> None:
    encoder = build()
    answerer = Answerer(kind="vector", pooling="mean")
    read = read_sentence(encoder, TEXT, 60)
    one = look(encoder, answerer, TEXT, read, ())
    embeddings = encoder.backbone.get_input_embeddings()(read.ids).detach()
    jacobian = torch.autograd.functional.jacobian(
        lambda x: encoder.backbone(inputs_embeds=x).last_hidden_state[0].mean(0), embeddings
    )
    norms = jacobian[:, 0].square().sum((0, 2)).sqrt()
    torch.testing.assert_close(torch.tensor(one.contributions), norms / norms.sum(), rtol=0.25, atol=0.01)
    assert one.layers[-1] == pytest.approx(1)


@pytest.mark.parametrize("family", ENCODERS)
def test_every_family_is_looked_at(family: str) -> None:
    encoder = build(family)
    facts = measure_sentences(encoder, Answerer(kind="vector", pooling="mean"), [TEXT, "dogs"], longest=60)
    for one in facts.sentences:
        assert sum(one.contributions) == pytest.approx(1, abs=1e-5)
        assert len(one.layers) == encoder.num_layers
        for head in one.heads:
            assert [sum(row) for row in head.attention] == pytest.approx([1.0] * len(one.tokens), abs=1e-4)
    has_heads = family not in ("deberta", "deberta-v2", "xlnet")
    assert len(facts.sentences[0].heads) == (4 if has_heads else 0)


def test_telling_heads_are_those_of_a_slow_loop_and_named_ones_are_taken() -> None:
    encoder = build()
    read = read_sentence(encoder, TEXT, 60)
    with torch.no_grad():
        other = build().backbone
        other.set_attn_implementation("eager")
        attentions = other(read.ids, output_attentions=True).attentions
    scores = {}
    for layer, whole in enumerate(attentions, start=1):
        for head, rows in enumerate(whole[0], start=1):
            # <cls> the cat sees a good film . <sep>: the words are tokens 1 to 6.
            most = [max(float(rows[i, j]) for j in range(1, 7) if abs(i - j) > 1) for i in range(1, 7)]
            scores[layer, head] = sum(most) / len(most)
    best = sorted(scores, key=lambda place: -scores[place])[:4]
    chosen = head_maps(encoder, read)
    assert [(one.layer, one.head) for one in chosen] == best
    assert chosen[0].telling == pytest.approx(scores[best[0]], abs=1e-5)
    named = head_maps(encoder, read, ["3.2", "1.1"])
    assert [(one.layer, one.head) for one in named] == [(3, 2), (1, 1)]


def test_nearest_contexts_are_those_of_a_slow_loop() -> None:
    encoder = build()
    found = nearest_contexts(encoder, TEXT, TEXTS, ["cat"], 3, 60)
    # A text is one batch; the words of the tiny tokenizer are its tokens.
    vectors = {}
    for text in (TEXT, *TEXTS[1:]):
        (batch,) = stream_vectors(encoder, [text], layers=(3,), max_length=60)
        vectors[text] = batch.vectors[0][0, 1:-1]
    own = vectors[TEXT][1]
    cosines = sorted(
        (float(cosine_similarity(own, vector, dim=0)) for text in TEXTS[1:] for vector in vectors[text]),
        reverse=True,
    )
    assert [one.cosine for one in found] == pytest.approx(cosines[:5], abs=1e-4)
    assert all(one.word == "cat" and f"«{one.found}»" in one.text for one in found)


@pytest.mark.parametrize("kind", ["classification", "tagging", "masked", "span"])
def test_the_terminal_shows_it_in_80_columns_and_a_second_call_reads_it(
    folders: Path, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sentences = ["--sentence", TEXT, "--sentence", "a [MASK] saw the dogs"]
    words = [
        "analyse",
        str(folders / kind),
        *sentences,
        "--heads",
        "2.1,1.2",
        "--out",
        str(tmp_path / "look"),
    ]
    words += ["--corpus", str(folders / "texts.txt"), "--words", "dogs", "--device", "cpu"]
    assert main(words) == 0
    first = capsys.readouterr().out
    assert max(map(len, first.replace(str(tmp_path), "").splitlines())) <= 80
    assert "nearest contexts at layer" in first
    assert "head 2.1: attention" in first
    (part,) = (tmp_path / "look" / "parts").iterdir()
    before = part.stat().st_mtime_ns
    assert main(words) == 0
    assert re.sub("seconds.*", "", capsys.readouterr().out) == re.sub("seconds.*", "", first)
    assert part.stat().st_mtime_ns == before


def test_a_pair_is_parted_by_a_tab(folders: Path) -> None:
    _, answerer, one = looked(folders / "pair", "the cat\ta dog")
    assert answerer.num_texts == 2
    assert one.tokens == ("<cls>", "the", "cat", "<sep>", "a", "dog", "<sep>")
