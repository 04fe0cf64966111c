"""Queries, keys and values of the last layer: those that attention uses, in every family that has them."""

import math

import pytest
import torch

from bermo.encoders import families
from bermo.encoders.projections import Projections
from bermo.errors import BermoError
from bermo.models import tasks as models
from tests.tiny import FAMILIES, make_batch, make_config

# These score by q·k alone: no rotation, no bias of relative positions.
BY_PRODUCT = ("bert", "roberta", "distilbert", "albert", "electra", "mobilebert", "gpt2")


def make_model(family: str) -> models.BermoPreTrainedModel:
    torch.manual_seed(1)
    model = models.BermoForTokenClassification.from_backbone(make_config(family))
    model.set_attn_implementation("eager")
    return model


@pytest.mark.parametrize("family", BY_PRODUCT)
def test_queries_and_keys_make_the_last_layers_attention(family: str) -> None:
    model, batch = make_model(family), make_batch(family)
    projections = Projections(model)
    attention_BHTT = model(**batch, output_attentions=True).attentions[-1]
    query, key, _ = projections.take()
    heads = attention_BHTT.shape[1]
    query, key = (x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in (query, key))
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
    if family == "gpt2":
        scores = scores.masked_fill(torch.ones(7, 7).triu(1).bool(), -math.inf)
    scores = scores.masked_fill(batch["attention_mask"][:, None, None] == 0, -math.inf)
    torch.testing.assert_close(scores.softmax(-1), attention_BHTT, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", [f for f in FAMILIES if families.FAMILIES[f].projections is not None])
def test_three_tensors_come_with_gradients_and_are_let_go(family: str) -> None:
    model = make_model(family)
    projections = Projections(model)
    for _ in range(2):
        model(**make_batch(family))
        found = projections.take()
        assert [tuple(x.shape[:2]) for x in found] == [(3, 7)] * 3
        assert all(x.requires_grad for x in found)
    projections.remove()
    model(**make_batch(family))
    assert projections.take() == []


@pytest.mark.parametrize("family", ["deberta", "xlnet"])
def test_a_family_without_projections_is_refused(family: str) -> None:
    with pytest.raises(BermoError, match=f"of {family} cannot be read.*distill-relations to 0"):
        Projections(make_model(family))
