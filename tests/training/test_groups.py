"""Parameter groups for a loop of one's own: every weight once, at the rate of its kind."""

import pytest
import torch

from bermo.pruning.criteria import Movement
from bermo.pruning.schedule import CubicSchedule
from bermo.pruning.weights import prune_
from bermo.training.groups import parameter_groups
from tests.docs.documents import ROOT, blocks
from tests.small_models import model_of


def test_every_weight_is_in_one_group_at_the_rate_of_its_kind() -> None:
    model = model_of("bert")
    pruner = prune_(model, Movement(density=0.5, rank="score"), CubicSchedule(total_steps=10, warmup_steps=2))
    groups = parameter_groups(model, 3e-5, mix_lr=2e-2, score_lr=1e-2, weight_decay=0.1)
    rates = {id(p): (group["lr"], group["weight_decay"]) for group in groups for p in group["params"]}
    assert len(rates) == sum(len(group["params"]) for group in groups) == len(list(model.parameters()))
    assert {rates[id(p)] for p in pruner.score_parameters()} == {(1e-2, 0.0)}
    assert {rates[id(p)] for p in model.mix.parameters()} == {(2e-2, 0.0)}
    assert rates[id(model.head.out.weight)] == (3e-5, 0.1)
    assert rates[id(model.head.out.bias)] == (3e-5, 0.0)


def test_the_loop_of_the_document_learns_and_reaches_the_density(capsys: pytest.CaptureFixture[str]) -> None:
    page = ROOT / "docs" / "how-to" / "own-loop.md"
    code = next(block for block in blocks(page, "python") if "losses" in block)
    space: dict = {}
    exec(code.replace('"bert-base-uncased"', '"box"'), space)
    first, last = (sum(space["losses"][part]) / 5 for part in (slice(5), slice(-5, None)))
    assert last < 0.5 * first
    counted = space["bermo"].count(space["model"])
    sites = torch.tensor([site.original.numel() for site in space["pruner"].sites]).sum()
    assert space["pruner"].density == pytest.approx(0.1, abs=1e-3)
    assert counted.encoder_total - counted.encoder_kept == pytest.approx(0.9 * float(sites), rel=1e-3)
