"""A torch model answers the same in batches that are padded to few shapes, and begun before they are read."""

from pathlib import Path

import numpy as np
import pytest
import torch

from bermo.data.features import Features
from bermo.errors import BermoError
from bermo.runs.trained import open_trained
from bermo.ship.runtimes.candidate import answer
from bermo.ship.runtimes.texts import built_in
from bermo.ship.runtimes.torch_candidate import TorchCandidate
from tests.ship.folders import KINDS, make_model, save


def features_of(kind: str, folder: Path, family: str = "bert") -> Features:
    return built_in(open_trained(save(make_model(family, kind), folder, kind)))


@pytest.mark.parametrize("kind", KINDS)
def test_batches_padded_to_few_shapes_have_the_same_answers(kind: str, tmp_path: Path) -> None:
    features, candidate = features_of(kind, tmp_path), TorchCandidate(make_model(kind=kind))
    expected = answer(candidate, features, 8)
    # As on a GPU, where graphs want few shapes.
    candidate.longest = 64
    for found, own in zip(answer(candidate, features, 8), expected, strict=True):
        np.testing.assert_allclose(found, own, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", ["gpt2", "xlnet", "mobilebert"])
def test_families_that_read_padding_in_their_own_way_have_the_same_answers(
    family: str, tmp_path: Path
) -> None:
    features = features_of("classification", tmp_path, family)
    candidate = TorchCandidate(make_model(family))
    expected = answer(candidate, features, 8)
    candidate.longest = 64
    np.testing.assert_allclose(answer(candidate, features, 8), expected, rtol=1e-3, atol=1e-4)


def test_a_batch_that_was_begun_keeps_its_answers_while_others_are_computed() -> None:
    candidate = TorchCandidate(make_model())
    batches = [
        {"input_ids": np.full((2, 3), number), "attention_mask": np.ones((2, 3), int)} for number in (5, 6)
    ]
    begun = [candidate.start(batch) for batch in batches]
    for answers, batch in zip(begun, batches, strict=True):
        np.testing.assert_array_equal(answers()[0], candidate(batch)[0])


def test_answers_that_do_not_fit_fp16_name_the_way_out(tmp_path: Path) -> None:
    model = make_model()
    with torch.no_grad():
        model.head.out.bias.fill_(1e6)
    with pytest.raises(BermoError, match="in fp16, whose numbers end at 65,504"):
        answer(TorchCandidate(model, precision="fp16"), features_of("classification", tmp_path), 8)
