"""Pretraining on generated sentences: it learns, resumes to the same bits, and its encoder loads."""

import json
import signal
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional
from transformers import AutoModel, AutoTokenizer

import bermo
from bermo.cli import main
from bermo.data.pretrain.corpus import load_corpus
from bermo.encoders.backbone import load_encoder
from bermo.errors import BermoError
from bermo.fields import check
from bermo.figures.data import read_findings
from bermo.methods.pretraining import run as pretraining
from bermo.methods.pretraining.build import Work, build_model, make_batches
from bermo.methods.pretraining.guess import GuessLoss
from bermo.methods.pretraining.pace import plan_steps, seconds_a_step
from bermo.methods.pretraining.run import _why_diverged, pretrain
from bermo.models.tasks import BermoForMaskedLM
from bermo.pace_spec import DEFAULT_STEPS, PaceSpec
from bermo.pretrain_spec import ObjectiveSpec, PretrainSpec
from bermo.progress import Quiet
from bermo.training.job import Fit, Stopped, compute_loss
from tests.methods.pretraining.world import make_spec, write_documents

OBJECTIVES = ("mlm", "mlm+nsp", "mlm+sop", "electra", "structbert")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_documents(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def echoes(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Documents that say one word again and again, so that the words around a mask tell what it hides."""
    words = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    documents = [f"{words[(k + k // 10) % 10]} " * 120 + "." for k in range(63)]
    path = tmp_path_factory.mktemp("text") / "echoes.txt"
    path.write_text("\n\n".join(documents))
    return str(path)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def test_masked_words_are_learned_and_the_encoder_is_an_ordinary_one(
    echoes: str, cache: Path, tmp_path: Path
) -> None:
    spec = replace(make_spec(echoes, cache, steps=120, lr=5e-3, batch_size=16), half=True)
    result = pretrain(spec, tmp_path / "run")
    assert result.diverged is None
    assert -result.values["likelihood"] < 0.7 * result.unigram_entropy
    assert np.log(result.values["perplexity"]) == pytest.approx(-result.values["likelihood"])
    assert result.steps == 120
    folder = tmp_path / "run" / "model"
    encoder = load_encoder(folder).encoder
    assert result.num_parameters == sum(p.numel() for p in encoder.parameters())
    assert result.model_bytes < 3 * result.num_parameters
    words = AutoTokenizer.from_pretrained(folder)
    model = BermoForMaskedLM.from_backbone(folder, mix=None)
    inputs = words("seven seven seven [MASK] seven seven seven", return_tensors="pt")
    position = inputs["input_ids"][0].tolist().index(words.mask_token_id)
    with torch.no_grad():
        shares = torch.softmax(model(**inputs).logits[0, position], dim=-1)
    # The saved head guesses too, far surer than one that knows only which ten words there are.
    assert shares[words.convert_tokens_to_ids("seven")] > 3 / 10
    assert AutoModel.from_pretrained(folder).config.hidden_dropout_prob == 0.1
    card = (folder / "README.md").read_text()
    assert f"accuracy {result.values['accuracy']:.2f}" in card
    assert str(cache) not in card
    assert Path(echoes).parent.name not in card
    shown = read_findings(tmp_path / "run" / "figures.json")
    assert shown.sections[0].figures[0].title == "Training loss"
    # Done before: nothing is computed, and what could not be removed is.
    (tmp_path / "run" / ".model.old").mkdir()
    assert pretrain(spec, tmp_path / "run") == result
    assert not (tmp_path / "run" / ".model.old").exists()


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_a_stopped_training_goes_on_to_the_same_bits(
    kind: Any, text: str, cache: Path, tmp_path: Path
) -> None:
    spec = make_spec(text, cache)
    spec = replace(spec, objective=ObjectiveSpec(kind=kind, masking="word"))

    class StopAtThree(Quiet):
        def step(self, done: int, loss: float | None) -> None:
            if done == 3:
                signal.raise_signal(signal.SIGINT)

    whole = pretrain(spec, tmp_path / "whole")
    with pytest.raises(Stopped):
        pretrain(spec, tmp_path / "parts", StopAtThree())
    parts = pretrain(spec, tmp_path / "parts")
    assert parts.values == whole.values
    files = [tmp_path / name / "model" / "model.safetensors" for name in ("whole", "parts")]
    assert files[0].read_bytes() == files[1].read_bytes()
    expected = {"mlm": [], "electra": ["detection"]}.get(kind, ["pairs"])
    assert set(expected) | {"likelihood", "accuracy", "perplexity"} == set(whole.values)


def test_a_stopped_training_of_an_inner_mix_goes_on_to_the_same_bits(
    text: str, cache: Path, tmp_path: Path
) -> None:
    spec = make_spec(text, cache)
    spec = replace(spec, shape=replace(spec.shape, inner_mix="within", layers=3))

    class StopAtThree(Quiet):
        def step(self, done: int, loss: float | None) -> None:
            if done == 3:
                signal.raise_signal(signal.SIGINT)

    whole = pretrain(spec, tmp_path / "whole")
    with pytest.raises(Stopped):
        pretrain(spec, tmp_path / "parts", StopAtThree())
    parts = pretrain(spec, tmp_path / "parts")
    assert parts.values == whole.values
    assert parts.inner_weights == whole.inner_weights
    files = [tmp_path / name / "model" / "model.safetensors" for name in ("whole", "parts")]
    assert files[0].read_bytes() == files[1].read_bytes()
    others = [pretrain(replace(spec, seed=seed), tmp_path / f"seed-{seed}") for seed in (2, 3)]
    assert len({tuple(map(tuple, one.inner_weights or ())) for one in (whole, *others)}) == 3


def test_a_kill_before_the_card_leaves_no_result_and_the_same_command_writes_both(
    text: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any) -> str:
        raise KeyboardInterrupt

    spec, out = make_spec(text, cache, steps=2), tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setattr(pretraining, "model_card", killed)
        with pytest.raises(KeyboardInterrupt):
            pretrain(spec, out)
    assert not (out / "result.json").exists()
    pretrain(spec, out)
    names = {path.name for path in out.iterdir() if not path.name.startswith(".")}
    assert {"result.json", "figures.json", "model"} <= names
    assert "checkpoints" not in names
    assert (out / "model" / "README.md").exists()


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_the_loss_is_that_of_the_slow_sum_over_counted_places(kind: Any, text: str, cache: Path) -> None:
    spec = replace(make_spec(text, cache), objective=ObjectiveSpec(kind=kind, masking="word"))
    corpus = load_corpus(spec.text, 64, print)
    model = build_model(spec, corpus).eval()
    batches = make_batches(spec, corpus)
    batch = batches.collate(batches.epoch(0)[0])
    torch.manual_seed(5)
    loss = compute_loss(model, GuessLoss(), batch)
    torch.manual_seed(5)
    inputs = {k: v for k, v in batch.items() if k != "pair_labels"}
    guesses = model(**inputs)
    logs = torch.log_softmax(guesses.words_BKV, dim=-1)
    total, count = torch.zeros(()), 0
    for row in range(len(batch["targets"])):
        for column, target in enumerate(batch["targets"][row]):
            if batch["weights"][row, column]:
                total, count = total - logs[row, column, target], count + 1
    expected = total / count
    assert count == GuessLoss().count(batch)
    if guesses.pairs_B2 is not None:
        pairs = torch.log_softmax(guesses.pairs_B2, dim=-1)
        expected = expected - pairs[range(8), batch["pair_labels"]].mean()
    if guesses.replaced_BT is not None:
        chance = torch.sigmoid(guesses.replaced_BT)
        truth = guesses.is_replaced_BT.float()
        expected = expected + 50 * functional.binary_cross_entropy(chance, truth)
    torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-5)


def test_electra_shares_its_word_vectors_and_marks_what_was_replaced(text: str, cache: Path) -> None:
    spec = replace(make_spec(text, cache), objective=ObjectiveSpec(kind="electra"))
    corpus = load_corpus(spec.text, 64, print)
    model: Any = build_model(spec, corpus).eval()
    assert model.generator.get_input_embeddings().weight is model.encoder.get_input_embeddings().weight
    assert model.generator.head.decoder.weight is model.encoder.get_input_embeddings().weight
    batches = make_batches(spec, corpus)
    batch = batches.collate(batches.epoch(0)[0])
    assert (batch["input_ids"].gather(1, batch["places"])[batch["weights"] > 0] == corpus.pieces.mask).all()
    marked = model(**batch).is_replaced_BT
    chosen = torch.zeros_like(marked).scatter(1, batch["places"], batch["weights"].long())
    # An untrained generator is nearly always wrong.
    assert marked.sum() > 0.9 * chosen.sum()
    assert not (marked.bool() & ~chosen.bool()).any()


def test_the_inner_mix_is_trained_and_reported(text: str, cache: Path, tmp_path: Path) -> None:
    spec = make_spec(text, cache, steps=4)
    spec = replace(spec, shape=replace(spec.shape, inner_mix="within", layers=3))
    result = pretrain(spec, tmp_path / "run")
    assert result.inner_weights is not None
    assert [len(row) for row in result.inner_weights] == [3, 3]
    start = torch.softmax(torch.tensor([0.0, 4.0]), dim=0)
    assert result.inner_weights[0][:2] != pytest.approx(start.tolist(), abs=1e-5)
    assert hasattr(load_encoder(tmp_path / "run" / "model").encoder, "inner_mix")


def test_minutes_become_steps_once(text: str, cache: Path, tmp_path: Path) -> None:
    spec = make_spec(text, cache, steps=None, minutes=0.003)
    result = pretrain(spec, tmp_path / "run")
    plan = json.loads((tmp_path / "run" / "plan.json").read_text())
    assert result.steps == plan["steps"] >= 1
    assert not (tmp_path / "run" / ".trial").exists()


@pytest.mark.parametrize(
    ("lengths", "seconds", "expected"),
    [((10, 30), (2.0, 4.0), 0.1), ((10, 30), (5.0, 4.5), 0.15), ((10, 20, 220), (60.0, 5.0, 9.0), 0.02)],
)
def test_a_step_takes_the_difference_of_the_last_trials(
    lengths: tuple[int, ...], seconds: tuple[float, ...], expected: float
) -> None:
    assert seconds_a_step(lengths, seconds) == pytest.approx(expected)


@pytest.mark.parametrize("damage", ["", '{"pieces": ["[PAD]"], "crc32": 1}', "{"])
def test_a_damaged_vocabulary_in_the_cache_is_made_again(text: str, tmp_path: Path, damage: str) -> None:
    spec = make_spec(text, tmp_path)
    before = load_corpus(spec.text, 64, print).tokenizer.get_vocab()
    (file,) = tmp_path.rglob("vocabulary.json")
    file.write_text(damage)
    assert load_corpus(spec.text, 64, print).tokenizer.get_vocab() == before


def test_held_out_documents_are_trained_on_by_nobody(text: str, cache: Path) -> None:
    spec = make_spec(text, cache)
    corpus = load_corpus(spec.text, 64, print)
    documents = Path(text).read_text().split("\n\n")
    assert corpus.train.num_documents + corpus.held.num_documents == len(documents) == 150
    for part, kept in (
        ("held", documents[9::10]),
        ("train", [documents[k] for k in range(150) if k % 10 != 9]),
    ):
        tokens = getattr(corpus, part)
        for number in (0, tokens.num_documents - 1):
            ids = tokens.ids[tokens.starts[number] : tokens.starts[number + 1] - 1]
            assert ids.tolist() == corpus.tokenizer(kept[number], add_special_tokens=False)["input_ids"]
    assert (corpus.train.ids[corpus.train.starts[1:] - 1] == corpus.pieces.sep).all()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--steps 5", "Name one text file or more with --text"),
        ("--text no.txt --steps 5", "There is no file no.txt"),
        ("--text TEXT --steps 5 --minutes 1", "Give either --steps or --minutes"),
        ("--text TEXT --steps 5 --words no.txt", "There is no file no.txt. Pass a list of words"),
        ("--text TEXT --steps 5 --objective nsp", '--objective cannot be "nsp". Did you mean "mlm+nsp"?'),
        ("--text TEXT --steps 5 --maskng word", 'Unknown option "--maskng". Did you mean "--masking"?'),
        ("--text TEXT --steps 5 --recompute --inner-mix raw", "Leave out --recompute or --inner-mix"),
        ("--text TEXT --steps 5 --width 30 --heads 4", "width must be a multiple of heads"),
        ("--text TEXT --steps 5 --length 600", "length must lie between 16 and positions"),
        ("--text TEXT --steps 5 --held-out 0.0001 --vocabulary 600", "too few to keep every 10000th"),
        (
            "--text TEXT --steps 5 --vocabulary 600 --held-out 0.1 --batch-size 9999",
            "fewer than one batch of 9999",
        ),
    ],
)
def test_mistakes_are_told_before_any_training(
    words: str, sentence: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = f"pretrain {words} --device cpu --out {tmp_path}/run".replace("TEXT", text)
    assert main(command.split()) == 2
    assert sentence in capsys.readouterr().err


def test_without_a_length_it_is_that_of_the_box(text: str, cache: Path, tmp_path: Path) -> None:
    spec = check(replace(make_spec(text, cache), pace=PaceSpec()))
    nothing: Any = None
    work = Work(
        spec=spec, corpus=nothing, batches=nothing, out=tmp_path, display=Quiet(), accelerator=nothing
    )
    assert plan_steps(work) == DEFAULT_STEPS


@pytest.mark.parametrize(
    ("last", "is_finite", "why"),
    [
        ({"perplexity": 20.0}, True, None),
        ({"perplexity": 20.0, "detection": 80.0}, True, None),
        ({"perplexity": 20.0, "detection": 50.0}, True, "replaced tokens are not told"),
        ({"perplexity": 900.0, "detection": 80.0}, True, "no better than by how often"),
        ({"perplexity": 20.0}, False, "infinite or not a number"),
    ],
)
def test_what_was_not_learned_is_named(last: dict[str, float], is_finite: bool, why: str | None) -> None:
    ended = Fit(
        steps=9,
        best=last,
        best_step=9,
        last=last,
        start={},
        highest=None,
        last_loss=1.0,
        is_finite=is_finite,
        seconds=1.0,
        num_rows=9,
    )
    reason = _why_diverged(ended, entropy=6.5)
    assert reason is None if why is None else why in str(reason)


def test_a_folder_with_another_pretraining_is_refused(text: str, cache: Path, tmp_path: Path) -> None:
    spec = make_spec(text, cache, steps=1)
    pretrain(spec, tmp_path / "run")
    with pytest.raises(BermoError, match="seed was 1, now 2"):
        pretrain(replace(spec, seed=2), tmp_path / "run")


def test_the_box_is_an_encoder_without_being_asked_for_a_name() -> None:
    encoder = bermo.box()
    assert encoder.config.num_hidden_layers >= 6
    assert not encoder.training
    assert asdict(PretrainSpec())["shape"]["preset"] == "small"
