"""Tiny encoders to be measured, and texts in their words."""

from collections.abc import Callable

import pytest
import torch

from bermo.encoders.backbone import create_encoder
from bermo.nn.mix import LayerMix
from bermo.vectors import Encoder
from tests.tiny import make_config, make_tokenizer

TEXTS = (
    "the cat sees a good film .",
    "a dog saw the bad cats",
    "the dogs",
    "a good dog sees the cat .",
    "the cat saw a dog . the dog saw a cat .",
    "bad films",
    "the film",
    "a cat sees the cat sees a cat",
    "the good cat saw films",
    "a film sees dogs",
)


def build(family: str = "bert", *, with_mix: bool = False) -> Encoder:
    torch.manual_seed(0)
    tokenizer = make_tokenizer(family)
    tokenizer.model_max_length = 60
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    backbone = create_encoder(make_config(family)).eval().requires_grad_(False)
    mix = LayerMix(num_layers=4, norm="within").eval().requires_grad_(False) if with_mix else None
    return Encoder(name=family, backbone=backbone, tokenizer=tokenizer, mix=mix)


@pytest.fixture(scope="package")
def encoder() -> Encoder:
    return build()


@pytest.fixture(scope="package")
def mixed() -> Encoder:
    return build(with_mix=True)


@pytest.fixture(scope="package")
def make_encoder() -> Callable[[str], Encoder]:
    return build
