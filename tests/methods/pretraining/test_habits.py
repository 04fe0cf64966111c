"""Habits of pretraining: LAMB, averaged weights, layers left out or computed again, short rows first."""

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from bermo.cli import main
from bermo.data.pretrain.corpus import load_corpus
from bermo.data.pretrain.short_first import ShortFirst
from bermo.encoders.backbone import create_encoder
from bermo.encoders.families import FAMILIES
from bermo.encoders.layers import drop_layers_, layer_modules
from bermo.methods.pretraining.build import build_model, make_batches
from bermo.methods.pretraining.run import pretrain
from bermo.pace_spec import PaceSpec
from bermo.pretrain_spec import ObjectiveSpec, PretrainSpec
from bermo.progress import Quiet
from bermo.training.average import average_, averaged
from bermo.training.job import Stopped
from bermo.training.lamb import Lamb
from tests.methods.pretraining.world import make_spec, write_documents
from tests.tiny import make_batch, make_config


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_documents(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def with_habits(text: str, cache: Path) -> PretrainSpec:
    spec = make_spec(text, cache, optimizer="lamb", average=0.9, layer_drop=0.3, lr_batch=2)
    return replace(spec, text=replace(spec.text, short_length=16, short_steps=2))


def test_lamb_takes_the_steps_of_its_formula() -> None:
    torch.manual_seed(0)
    matrix, vector, zero = (
        nn.Parameter(torch.randn(3, 4)),
        nn.Parameter(torch.randn(4)),
        nn.Parameter(torch.zeros(2, 2)),
    )
    groups = [
        {"params": [matrix, zero], "lr": 0.1, "weight_decay": 0.01},
        {"params": [vector], "lr": 0.2, "weight_decay": 0.0},
    ]
    optimizer = Lamb(groups)
    slow = {id(p): (p.detach().double().numpy().copy(), 0.0, 0.0) for p in (matrix, vector, zero)}
    for step in range(1, 4):
        for group in groups:
            for p in group["params"]:
                p.grad = torch.randn_like(p)
                w, m, v = slow[id(p)]
                g = p.grad.double().numpy()
                m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
                r = (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-6) + group[
                    "weight_decay"
                ] * w
                own, other = np.sqrt((w**2).sum()), np.sqrt((r**2).sum())
                ratio = own / other if w.ndim > 1 and own > 0 and other > 0 else 1.0
                slow[id(p)] = (w - group["lr"] * ratio * r, m, v)
        optimizer.step()
    for p in (matrix, vector, zero):
        np.testing.assert_allclose(p.detach().numpy(), slow[id(p)][0], rtol=1e-4, atol=1e-6)


def test_the_mean_is_that_of_a_slow_loop_and_weights_come_back() -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    average = average_(model, decay=0.5)
    slow = model.weight.detach().clone()
    for step in range(5):
        decay = min(0.5, (1 + step) / (10 + step))
        slow = decay * slow + (1 - decay) * model.weight.detach()
        average.plan(step)
        average.apply()
        with torch.no_grad():
            model.weight += 1.0
    before = model.weight.detach().clone()
    with averaged(model):
        torch.testing.assert_close(model.weight, slow)
    assert torch.equal(model.weight, before)
    assert {"average.mean_0", "average.mean_1"} <= set(model.state_dict())


@pytest.mark.parametrize("family", ["bert", "albert", "xlnet", "elmo"])
def test_a_layer_that_is_left_out_hands_its_input_on(family: str) -> None:
    torch.manual_seed(0)
    encoder = create_encoder(make_config(family))
    for module in encoder.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    encoder.config.dropout = 0.0
    seen: list[tuple[Tensor, Tensor]] = []

    def note(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        before = args[0] if args else kwargs["hidden_states"]
        seen.append((before, output[0] if isinstance(output, tuple) else output))

    drop_layers_(encoder, FAMILIES[family], 0.5)
    for module in layer_modules(encoder, FAMILIES[family]):
        module.register_forward_hook(note, with_kwargs=True)
    fates = set()
    for seed in range(6):
        torch.manual_seed(seed)
        expected = [float(torch.rand(())) >= 0.5 for _ in range(3)]
        torch.manual_seed(seed)
        seen.clear()
        encoder.train()(**make_batch(family))
        kept = [not torch.equal(before, after) for before, after in seen]
        assert kept == expected
        fates.add(tuple(kept))
    assert len(fates) > 1
    seen.clear()
    encoder.eval()(**make_batch(family))
    assert all(not torch.equal(before, after) for before, after in seen)


def test_short_rows_come_first_and_each_once_in_a_pass(text: str, cache: Path) -> None:
    spec = with_habits(text, cache)
    corpus = load_corpus(spec.text, 64, print)
    plain = make_batches(replace(spec, text=replace(spec.text, short_length=None, short_steps=None)), corpus)
    size = len(plain.epoch(0))
    steps = size + 3
    spec = replace(spec, text=replace(spec.text, short_steps=steps))
    batches = make_batches(spec, corpus)
    assert isinstance(batches, ShortFirst)
    order = [rows for epoch in range(3) for rows in batches.epoch(epoch)]
    assert [batches.collate(rows)["input_ids"].shape[1] for rows in order[steps - 1 : steps + 1]] == [16, 32]
    assert all((rows < 0).all() for rows in order[:steps])
    slow = [rows for epoch in range(9) for rows in batches.short.epoch(epoch)][:steps]
    assert all(np.array_equal(-1 - rows, other) for rows, other in zip(order[:steps], slow, strict=True))
    later = [rows for epoch in range(3) for rows in plain.epoch(epoch)][steps:]
    assert all(np.array_equal(rows, other) for rows, other in zip(order[steps:], later, strict=True))


def test_a_stopped_training_with_all_habits_goes_on_to_the_same_bits(
    text: str, cache: Path, tmp_path: Path
) -> None:
    class StopAtThree(Quiet):
        def step(self, done: int, loss: float | None) -> None:
            if done == 3:
                signal.raise_signal(signal.SIGINT)

    spec = with_habits(text, cache)
    whole = pretrain(spec, tmp_path / "whole")
    with pytest.raises(Stopped):
        pretrain(spec, tmp_path / "parts", StopAtThree())
    assert pretrain(spec, tmp_path / "parts").values == whole.values
    files = [tmp_path / name / "model" / "model.safetensors" for name in ("whole", "parts")]
    assert files[0].read_bytes() == files[1].read_bytes()
    # Two of six steps have half the tokens.
    assert whole.epochs == pytest.approx(5 * 8 / build_rows(spec), abs=2e-3)
    card = (tmp_path / "whole" / "model" / "README.md").read_text()
    assert "LAMB, layers left out at 0.3, weights averaged at 0.9, 2 steps of 16 tokens first" in card


def test_phrases_are_found_once_and_masked(text: str, cache: Path, tmp_path: Path) -> None:
    spec = make_spec(text, cache, steps=2)
    spec = replace(spec, objective=replace(spec.objective, masking="phrase"))
    corpus = load_corpus(spec.text, 64, print)
    maskers: list[Any] = [make_batches(spec, corpus, is_held=held).masker for held in (False, True)]  # type: ignore[union-attr]
    assert maskers[0].phrases is maskers[1].phrases
    assert pretrain(spec, tmp_path / "run").steps == 2


def build_rows(spec: PretrainSpec) -> int:
    return make_batches(spec, load_corpus(spec.text, 64, print)).source.num_rows


def test_each_habit_changes_what_is_learned(text: str, cache: Path) -> None:
    corpus = load_corpus(make_spec(text, cache).text, 64, print)
    model = build_model(with_habits(text, cache), corpus)
    assert any(module._forward_hooks for module in model.encoder.backbone.modules())
    assert all(module.training for module in model.modules())
    assert PaceSpec(lr=1e-3, batch_size=1024, lr_batch=256).peak_lr == pytest.approx(2e-3)
    assert PaceSpec(lr=1e-3, batch_size=1024).peak_lr == 1e-3


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--short-length 16", "Give both --short-length and --short-steps"),
        ("--short-length 128 --short-steps 3", "short-length must be less than length (128), but got 128"),
        ("--short-length 32 --short-steps 3 --teacher box", "A teacher reads whole rows only"),
        ("--layer-drop 1", "layer-drop must be at least 0 and under 1"),
        ("--average 1", "average must be at least 0 and under 1"),
        ("--optimizer sgd", "--optimizer cannot be"),
        ("--lr-batch 0", "lr-batch must be at least 1"),
    ],
)
def test_mistakes_are_told_before_any_training(
    words: str, sentence: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(f"pretrain --text {text} --steps 1 {words} --out {tmp_path}/run".split()) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["mlm", "electra"])
def test_layers_computed_again_give_the_same_bits(kind: Any, text: str, cache: Path, tmp_path: Path) -> None:
    spec = replace(make_spec(text, cache, steps=3), objective=ObjectiveSpec(kind=kind))
    spec = replace(spec, shape=replace(spec.shape, dropout=0.1))
    again = replace(spec, pace=replace(spec.pace, recompute=True))
    built = build_model(again, load_corpus(spec.text, 64, print))
    assert built.encoder.backbone.is_gradient_checkpointing
    results = [pretrain(one, tmp_path / str(k)) for k, one in enumerate((spec, again))]
    assert results[0].loss == results[1].loss
    files = [tmp_path / name / "model" / "model.safetensors" for name in ("0", "1")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_layers_computed_again_find_the_same_kernels(
    text: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a GPU another kernel keeps other tensors for the backward pass, and torch refuses them.
    attention = functional.scaled_dot_product_attention
    seen: list[bool] = []

    def attend(*arguments: Any, **options: Any) -> torch.Tensor:
        if torch.is_grad_enabled():
            seen.append(torch.backends.cuda.cudnn_sdp_enabled())
        return attention(*arguments, **options)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", attend)
    spec = make_spec(text, cache, steps=2)
    pretrain(replace(spec, pace=replace(spec.pace, recompute=True)), tmp_path / "run")
    num_layers, num_passes, num_steps = 2, 2, 2
    assert seen == [False] * (num_layers * num_passes * num_steps)


@pytest.mark.gpu
def test_layers_are_computed_again_on_a_gpu(text: str, cache: Path, tmp_path: Path) -> None:
    spec = make_spec(text, cache, steps=4, device="auto", precision="bf16")
    again = replace(spec, pace=replace(spec.pace, recompute=True))
    losses = [pretrain(one, tmp_path / str(k)).loss for k, one in enumerate((spec, again))]
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)
