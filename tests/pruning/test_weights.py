"""Masks on single weights and blocks: which are kept, what training does to them, several models."""

import math
from fractions import Fraction

import pytest
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel

from bermo.errors import BermoError
from bermo.nn.fast.select_masks import MaskSelector
from bermo.nn.masks import HardConcrete, Mask, TopMask
from bermo.pruning.criteria import L0, Magnitude, Method, Movement, Ranked, SoftMovement
from bermo.pruning.schedule import CubicSchedule
from bermo.pruning.weights import PrunerGroup, WeightPruner, prune_, select_on_device_
from bermo.training.groups import parameter_groups
from tests.small_models import batch_of, model_of

SCHEDULE = CubicSchedule(total_steps=10, warmup_steps=2)
METHODS: list[Method] = [
    Magnitude(density=0.1),
    Movement(density=0.1, rank="score"),
    SoftMovement(penalty=10.0),
    L0(penalty=1.0),
    Movement(density=0.25, scope="global", rank="score"),
    Movement(density=0.1, start="magnitude", rank="score"),
]


def kept_blocks(matrix: Tensor, block: tuple[int, int], density: float) -> Tensor:
    """Which weights are kept, block by block: those in the blocks with the largest mean |W|."""
    rows, columns = block[0] or matrix.shape[0], block[1] or matrix.shape[1]
    corners = [
        (row, column)
        for row in range(0, matrix.shape[0], rows)
        for column in range(0, matrix.shape[1], columns)
    ]
    sizes = {
        (row, column): matrix[row : row + rows, column : column + columns].abs().mean().item()
        for row, column in corners
    }
    kept = torch.zeros_like(matrix, dtype=torch.bool)
    for row, column in sorted(corners, key=sizes.__getitem__, reverse=True)[
        : math.floor(density * len(corners))
    ]:
        kept[row : row + rows, column : column + columns] = True
    return kept


@pytest.mark.parametrize("block", [(0, 1), (1, 0), (2, 4)], ids=["columns", "rows", "2 x 4"])
@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_blocks_of_rows_and_columns_go_whole_even_where_a_matrix_is_stored_transposed(
    family: str, block: tuple[int, int]
) -> None:
    """A row holds the weights of one output, a column those of one input; gpt2 stores the transpose."""
    model = model_of(family)
    pruner = prune_(model, Magnitude(density=0.5, block=block), SCHEDULE)
    pruner.at(10)
    assert {site.is_transposed for site in pruner.sites} == {family == "gpt2"}
    for site in pruner.sites:
        weight, original = site.weight.detach(), site.original.detach()
        if site.is_transposed:
            weight, original = weight.T, original.T
        expected = kept_blocks(original, block, 0.5)
        assert torch.equal(weight != 0, expected), site.name
        assert torch.equal(weight[expected], original[expected]), site.name


def values_of(mask: Mask) -> Tensor:
    """What each weight is multiplied by in this step."""
    values = mask.values() if isinstance(mask, HardConcrete) else mask.mask
    return mask.blocks.spread(values.detach())


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_in_a_step_pruned_weights_keep_their_values_and_the_others_move(method: Method) -> None:
    torch.manual_seed(0)
    model = model_of("bert").train()
    pruner = prune_(model, method, SCHEDULE)
    for scores in pruner.score_parameters():
        nn.init.normal_(scores, std=3)
    pruner.at(8)
    closed = [values_of(mask) == 0 for mask in pruner.masks]
    weights = [site.original.detach().clone() for site in pruner.sites]
    scores = [parameter.detach().clone() for parameter in pruner.score_parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    (model(**batch_of(model), labels=torch.tensor([0, 1, 1])).loss + pruner.penalty()).backward()
    optimizer.step()
    for site, is_closed, before in zip(pruner.sites, closed, weights, strict=True):
        assert 0.05 < is_closed.float().mean() < 0.95, site.name
        moved = site.original.detach() != before
        assert not moved[is_closed].any(), site.name
        assert moved[~is_closed].float().mean() > 0.3, site.name
        assert torch.equal(site.original.detach()[is_closed], before[is_closed]), site.name
    for parameter, before in zip(pruner.score_parameters(), scores, strict=True):
        assert (parameter.detach() != before).any()


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_a_training_ends_at_the_density_and_every_score_matrix_learns(method: Method) -> None:
    torch.manual_seed(0)
    model = model_of("bert").train()
    pruner = prune_(model, method, SCHEDULE)
    start = [parameter.detach().clone() for parameter in pruner.score_parameters()]
    assert bool(start) != isinstance(pruner.masks[0], TopMask)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = batch_of(model) | {"labels": torch.tensor([0, 1, 1])}
    for _ in range(10):
        (model(**inputs).loss + pruner.penalty()).backward()
        optimizer.step()
        optimizer.zero_grad()
        pruner.step()
    assert pruner.num_steps == 10
    if isinstance(method, Ranked):
        assert pruner.density == pytest.approx(method.density, abs=0.01)
    for parameter, before in zip(pruner.score_parameters(), start, strict=True):
        assert not torch.equal(parameter.detach(), before)


def test_a_pruned_weight_comes_back_by_its_score() -> None:
    model = model_of("bert")
    pruner = prune_(model, Movement(density=0.5, rank="score"), SCHEDULE)
    pruner.at(10)
    scores, mask = pruner.masks[0].scores, pruner.masks[0].mask
    index = (mask == 0).nonzero()[0]
    with torch.no_grad():
        scores[tuple(index)] = 9.0
    pruner.at(10)
    assert mask[tuple(index)]


def test_the_same_step_gives_the_same_l0_masks_on_every_process() -> None:
    models = [model_of("bert").train(), model_of("bert").train()]
    pruners = [prune_(model, L0(penalty=1.0), SCHEDULE, seed=5) for model in models]
    torch.manual_seed(99)
    for pruner in pruners:
        pruner.at(3)
        torch.rand(7)
    for one, other in zip(pruners[0].masks, pruners[1].masks, strict=True):
        assert torch.equal(one.values(), other.values())


def test_blocks_that_do_not_divide_a_matrix_are_refused() -> None:
    with pytest.raises(BermoError, match=r"layer\.1.*cannot be divided into blocks.*Choose another block"):
        prune_(model_of("bert"), Movement(density=0.1, block=(5, 7), rank="score"), SCHEDULE)


def test_what_is_no_model_of_transformers_is_refused() -> None:
    with pytest.raises(BermoError, match="takes a model of transformers, but got Linear"):
        prune_(nn.Linear(4, 4), Movement(density=0.1, rank="score"), SCHEDULE)  # type: ignore[arg-type]


@pytest.mark.parametrize("density", [0.29, 0.57, 0.58])
def test_the_number_kept_is_the_floor_of_the_written_product(density: float) -> None:
    config = BertConfig(hidden_size=80, num_hidden_layers=1, num_attention_heads=2, intermediate_size=80)
    pruner = prune_(BertModel(config), Movement(density=density, rank="score"), SCHEDULE)
    pruner.at(SCHEDULE.total_steps)
    exact = math.floor(Fraction(str(density)) * 6400)
    assert {int(mask.mask.sum()) for mask in pruner.masks} == {exact}


def test_a_model_with_masks_is_not_masked_twice() -> None:
    model = model_of("bert")
    prune_(model, Movement(density=0.1, rank="score"), SCHEDULE)
    with pytest.raises(BermoError, match="has masks already"):
        prune_(model, Movement(density=0.1, rank="score"), SCHEDULE)


def test_ranking_by_size_keeps_the_largest_weight_times_open_score() -> None:
    model = model_of("bert")
    method = Movement(density=0.3, rank="size")
    pruner = prune_(model, method, CubicSchedule(total_steps=10, warmup_steps=1))
    for score in pruner.score_parameters():
        score.data.normal_(generator=torch.Generator().manual_seed(1))
    pruner.at(10)
    for site, mask in zip(pruner.sites, pruner.masks, strict=True):
        value = (site.original.abs() * torch.sigmoid(mask.scores)).flatten()
        kept = set(value.argsort(descending=True)[: math.floor(0.3 * len(value))].tolist())
        assert set(mask.mask.flatten().nonzero().flatten().tolist()) == kept


def _train(model: nn.Module, pruner: WeightPruner, optimizer: torch.optim.Optimizer, steps: int) -> None:
    batch = batch_of(model)
    for _ in range(steps):
        model(**batch).logits.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        pruner.step()


@pytest.mark.parametrize("block", [(1, 1), (2, 4)])
@pytest.mark.parametrize("optimizer_of", [torch.optim.AdamW, torch.optim.Adam])
def test_ranking_by_sensitivity_keeps_what_the_loss_felt_most_over_all_matrices(
    block: tuple[int, int], optimizer_of: type[torch.optim.Adam]
) -> None:
    model = model_of("bert").train()
    pruner = prune_(model, Movement(density=0.3, block=block), CubicSchedule(total_steps=4, warmup_steps=1))
    optimizer = optimizer_of(parameter_groups(model, 1e-3))
    pruner.watch(optimizer)
    _train(model, pruner, optimizer, 4)
    felt = [
        (optimizer.state[mask.scores]["exp_avg_sq"] * torch.sigmoid(mask.scores.detach())).flatten()
        for mask in pruner.masks
    ]
    flat = torch.cat(felt)
    kept = flat.argsort(descending=True, stable=True)[: math.floor(0.3 * len(flat))]
    expected = torch.zeros(len(flat), dtype=torch.bool).index_fill_(0, kept, True)
    assert torch.equal(torch.cat([mask.mask.flatten() for mask in pruner.masks]), expected)
    assert len({density > 0.35 for density in pruner.densities().values()}) == 2, (
        "not the same in each matrix"
    )


def test_sensitivity_needs_an_optimiser_that_keeps_second_moments() -> None:
    model = model_of("bert")
    pruner = prune_(model, Movement(density=0.3), SCHEDULE)
    pruner.at(2)
    with pytest.raises(BermoError, match=r"Call pruner.watch\(optimizer\) before"):
        pruner.at(3)
    with pytest.raises(BermoError, match="of Adam or AdamW, but got SGD"):
        pruner.watch(torch.optim.SGD(parameter_groups(model, 1e-3)))
    prune_(model_of("bert"), Movement(density=0.3, rank="size"), SCHEDULE).at(3)


@pytest.mark.parametrize(
    "method",
    [
        Movement(density=0.3, rank="size", block=(2, 4)),
        Movement(density=0.3, scope="global", block=(2, 4), rank="score"),
        SoftMovement(penalty=1.0, block=(2, 4)),
    ],
)
def test_pruners_together_set_the_masks_of_each(method: Method) -> None:
    pruners = []
    for seed in range(2):
        pruners.append(prune_(model_of("bert"), method, SCHEDULE))
        torch.manual_seed(seed)
        for mask in pruners[-1].masks:
            nn.init.normal_(mask.scores, std=3)
        pruners[-1].at(7)
    alone = [mask.mask.clone() for pruner in pruners for mask in pruner.masks]
    for set_ in (PrunerGroup(pruners).apply, lambda: select_on_device_(pruners, MaskSelector())):
        for pruner in pruners:
            for mask in pruner.masks:
                mask.mask.fill_(True)
        with torch.no_grad():
            set_()
        masks = [mask.mask for pruner in pruners for mask in pruner.masks]
        assert all(torch.equal(a, b) for a, b in zip(alone, masks, strict=True))


def test_pruners_of_different_methods_are_not_taken_together() -> None:
    pruners = [prune_(model_of("bert"), Movement(density=d, rank="score"), SCHEDULE) for d in (0.1, 0.2)]
    with pytest.raises(BermoError, match="one method, but got 2"):
        PrunerGroup(pruners)
