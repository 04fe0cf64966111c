"""Layers kept by each strategy of Poor Man's BERT, and the training of what is kept."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bermo.encoders.sites import layers_of
from bermo.errors import BermoError
from bermo.methods.assemble import assemble
from bermo.methods.checks import check_methods
from bermo.methods.keep import kept_layers, likeness, most_changing
from bermo.methods.prepare import notes, prepare
from bermo.models.encoder import BermoModel
from bermo.progress import Quiet
from bermo.spec import KeepBy, ModelSpec, PruneSpec, replace_in
from bermo.training.devices import make_accelerator
from tests.methods.world import World
from tests.specs import TINY

DENSE = replace(TINY, prune=PruneSpec())


@pytest.mark.parametrize(
    ("by", "count", "expected"),
    [
        (None, 4, (1, 2, 3, 4)),
        ("first", 4, (1, 2, 3, 4)),
        ("last", 4, (9, 10, 11, 12)),
        ("alternate", 8, (1, 2, 3, 4, 6, 8, 10, 12)),
        ("alternate", 6, (2, 4, 6, 8, 10, 12)),
        ("symmetric", 4, (1, 2, 11, 12)),
        ("symmetric", 5, (1, 2, 3, 11, 12)),
        ("symmetric", 1, (1,)),
    ],
)
def test_each_way_keeps_the_papers_layers(
    by: KeepBy | None, count: int, expected: tuple[int, ...], world: World
) -> None:
    assert kept_layers(ModelSpec(keep_layers=count, keep_by=by), 12, world.train) == expected


def test_likeness_is_the_mean_cosine_of_a_layers_input_and_output_text_by_text(world: World) -> None:
    model = BermoModel.from_backbone(world.student().config.backbone, "none")
    expected = []
    for layer in (1, 2):
        cosines = []
        for row in range(len(world.train)):
            ids = torch.from_numpy(
                world.train.ids[world.train.starts[row] : world.train.starts[row + 1]].astype(int)
            )
            with torch.no_grad():
                hidden = model.backbone(ids[None], output_hidden_states=True).hidden_states
            before, after = hidden[layer - 1][0, 0], hidden[layer][0, 0]
            cosines.append(float(before @ after / (before.norm() * after.norm())))
        expected.append(sum(cosines) / len(cosines))
    assert likeness(model, world.train) == pytest.approx(expected, abs=1e-5)
    assert most_changing([0.9, 0.1, 0.5, 0.5], 2) == (2, 3)


@pytest.mark.usefixtures("shallow_box")
@pytest.mark.parametrize("by", ["last", "contribution"])
def test_a_model_has_the_weights_of_the_kept_layers_and_says_which(by: KeepBy, tmp_path: Path) -> None:
    spec = replace_in(DENSE, model={"keep_layers": 2, "keep_by": by})
    prepared = prepare(spec, Quiet())
    model = assemble(prepared, 1, Quiet(), make_accelerator(spec.train, tmp_path)).model
    whole = assemble(prepare(DENSE, Quiet()), 1, Quiet(), make_accelerator(spec.train, tmp_path)).model
    assert prepared.layers is not None
    assert f"layers {prepared.layers[0]}, {prepared.layers[1]} are kept" in " ".join(notes(prepared))
    for layer, number in zip(layers_of(model), prepared.layers, strict=True):
        expected = layers_of(whole)[number - 1].state_dict()
        assert all(torch.equal(tensor, expected[name]) for name, tensor in layer.state_dict().items())


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        ({"keep_by": "last"}, "Say how many with --keep-layers"),
        ({"keep_layers": 2, "first_layers": 2}, "both choose layers"),
        ({"keep_layers": 2, "keep_by": "contribution", "untrained": True}, "contribute nothing"),
    ],
)
def test_choices_that_cannot_be_are_refused(model: dict[str, object], sentence: str) -> None:
    with pytest.raises(BermoError, match=sentence):
        check_methods(replace_in(DENSE, model=model))


def test_too_many_or_too_few_layers_are_refused(world: World) -> None:
    with pytest.raises(BermoError, match="at most 6 of 12, but --keep-layers 4 leaves out 8"):
        kept_layers(ModelSpec(keep_layers=4, keep_by="alternate"), 12, world.train)
    with pytest.raises(BermoError, match="keep-layers must be at most"):
        prepare(replace_in(DENSE, model={"keep_layers": 99}), Quiet())
