"""A model that reads the two texts of a pair apart, beside a slow one that reads each text alone."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from bermo.errors import BermoError
from bermo.models.config import BermoConfig
from bermo.models.tasks import BermoForSequenceClassification
from bermo.training.stack import stack
from tests.models.tiny_models import make_model
from tests.tiny import FAMILIES, make_batch, make_config


def pairs_of(family: str) -> dict[str, Tensor]:
    return {name: value.view(3, 2, -1) for name, value in make_batch(family, texts=6).items()}


@torch.no_grad()
def slow_logits(model: BermoForSequenceClassification, batch: dict[str, Tensor]) -> Tensor:
    """Encode each text alone, without padding, and write the features out one by one."""
    rows = []
    for row in range(3):
        vectors = []
        for text in range(2):
            mask = batch["attention_mask"][row, text].bool()
            alone = {name: value[row, text][mask][None] for name, value in batch.items()}
            tokens = model.bermo(**alone).last_hidden_state[0]
            pooled = {"first": tokens[0], "last": tokens[-1], "mean": tokens.mean(0)}[model.config.pooling]
            vectors.append(pooled / pooled.norm())
        u, v = vectors
        rows.append(torch.cat([u, v, (u - v).abs(), u * v, torch.dot(u, v)[None]]))
    head, read = model.head, torch.stack(rows)
    return torch.tanh(read * head.scale.weight + head.scale.bias) @ head.out.weight.T + head.out.bias


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("pooling", ["first", "mean"])
def test_each_text_is_read_as_if_it_were_alone(family: str, pooling: str) -> None:
    model, batch = make_model(family, pairs="apart", pooling=pooling, num_labels=3), pairs_of(family)
    with torch.no_grad():
        answers = model(**batch).logits
    torch.testing.assert_close(answers, slow_logits(model, batch), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("mix", ["none", "across", "concat-last-four"])
def test_it_is_saved_and_loaded(tmp_path: Path, mix: str) -> None:
    model, batch = make_model("bert", pairs="apart", pooling="mean", num_labels=1, mix=mix), pairs_of("bert")
    model.save_pretrained(tmp_path)
    again = BermoForSequenceClassification.from_pretrained(tmp_path)
    assert again.config.pairs == "apart"
    assert torch.equal(again(**batch).logits, model(**batch).logits)
    assert again(**batch, labels=torch.ones(3)).loss == (model(**batch).logits[:, 0] - 1).square().mean()


def test_every_weight_gets_a_gradient() -> None:
    model = make_model("bert", pairs="apart", num_labels=2).train()
    model(**pairs_of("bert"), labels=torch.tensor([0, 1, 1])).loss.backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


def test_models_in_a_stack_answer_as_each_alone() -> None:
    models, batch = [], pairs_of("bert")
    for seed in range(2):
        torch.manual_seed(seed)
        model = BermoForSequenceClassification.from_backbone(
            make_config("bert"), pairs="apart", pooling="mean"
        )
        torch.nn.init.normal_(model.head.scale.weight)
        models.append(model)
    expected = torch.cat([model(**batch).logits for model in models])
    joint = stack(models).eval()(**{name: torch.cat([value, value]) for name, value in batch.items()}).logits
    torch.testing.assert_close(joint, expected, atol=1e-6, rtol=1e-5)


def test_half_precision_answers_nearly_the_same() -> None:
    model, batch = make_model("bert", pairs="apart", pooling="mean"), pairs_of("bert")
    exact = model(**batch).logits
    torch.testing.assert_close(model.to(torch.bfloat16)(**batch).logits.float(), exact, atol=0.05, rtol=0.05)


def test_tokens_of_joined_pairs_and_unknown_ways_are_refused() -> None:
    model = make_model("bert", pairs="apart")
    with pytest.raises(BermoError, match=r"must be \(rows, 2, tokens\), but got \(3, 7\)"):
        model(**make_batch("bert"))
    with pytest.raises(BermoError, match=r'Pairs cannot be read "appart".* Did you mean "apart"'):
        BermoConfig(make_config("bert"), pairs="appart")
