"""Selecting without sorting, in Triton's interpreter, equals selecting by the k-th value."""

import pytest
import torch
from torch import Tensor, nn

from bermo.nn.fast.select_masks import MaskSelector
from bermo.nn.fast.shadow import Shadow
from bermo.nn.masks import Rank, ScoreMask, TopMask, importance, top_masks

select = pytest.importorskip("bermo.nn.fast.select", reason="needs Triton")
NOWHERE, SLOTS, EVERYWHERE = 0, 1, 2


def check(selector: object, masks: list[Tensor], ranked: list[Tensor], kept: list[int]) -> None:
    selector.select_(torch.tensor(kept))
    slow = top_masks(ranked, kept, is_global=len(kept) < len(masks))
    assert [int(mask.sum()) for mask in masks] == [int(mask.sum()) for mask in slow]
    assert all(torch.equal(a, b) for a, b in zip(masks, slow, strict=True))


def masks_of(tensors: list[Tensor]) -> list[Tensor]:
    return [torch.ones(item.shape, dtype=torch.bool) for item in tensors]


@pytest.fixture(scope="module")
def scores() -> list[Tensor]:
    """A matrix of three chunks, one with ties and −0, one with more zeros than slots, a tiny one with ∞."""
    generator = torch.Generator().manual_seed(0)
    plain, coarse = (torch.randn(n, 65, generator=generator) for n in (67, 40))
    coarse = coarse.round(decimals=1)
    coarse[:, 0] *= torch.where(coarse[:, 0] == 0, -1.0, 1.0)
    tiny = torch.tensor([[0.0, float("inf"), -0.0], [float("-inf"), 1.0, float("inf")]])
    return [plain, coarse, torch.zeros(300, 7), tiny]


def test_each_matrix_keeps_the_twins_choice_by_either_route(scores: list[Tensor]) -> None:
    masks = masks_of(scores)
    selector = select.TopSelector(masks, scores=scores)
    check(selector, masks, scores, [435, 1300, 100, 4])
    assert selector.routes.tolist() == [SLOTS, SLOTS, EVERYWHERE, SLOTS]
    assert selector.is_tied.tolist() == [0, 1, 1, 1]
    inside = selector.inside.tolist()
    assert inside[0] < 435, "few of the keys are looked at twice"
    check(selector, masks, scores, [0, 2600, 2100, 1])
    assert selector.routes.tolist() == [NOWHERE, NOWHERE, NOWHERE, SLOTS]


def test_matrices_that_share_a_segment_are_chosen_from_together(scores: list[Tensor]) -> None:
    masks = masks_of(scores)
    selector = select.TopSelector(masks, scores=scores, segments=[0, 0, 0, 0])
    check(selector, masks, scores, [700])
    assert selector.routes.tolist() == [SLOTS]
    check(selector, masks, scores, [4500])  # the k-th is one of the many zeros
    assert selector.routes.tolist() == [EVERYWHERE]


def test_the_masks_do_not_depend_on_what_was_chosen_before() -> None:
    generator = torch.Generator().manual_seed(1)
    drifting = torch.randn(67, 65, generator=generator)
    masks = masks_of([drifting])
    selector = select.TopSelector(masks, scores=[drifting])
    noise = torch.randn(67, 65, generator=generator)
    for change in (lambda s: s, lambda s: s + 0.01 * noise, lambda s: -1000 * s, torch.zeros_like):
        drifting.copy_(change(drifting))
        check(selector, masks, [drifting], [900])


def test_a_kth_outside_the_bracket_is_searched_among_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select, "SAMPLE", 1024)
    torch.manual_seed(0)
    scores = torch.randn(select.LENGTH)
    runs = torch.arange(128)
    is_sampled = torch.zeros(select.LENGTH // 8, dtype=torch.bool)
    is_sampled[runs * 159 % (select.LENGTH // 8)] = True
    assert int(is_sampled.sum()) == 128, "the sample sees half of the runs, each once"
    scores.view(-1, 8)[~is_sampled] += 10
    masks = masks_of([scores])
    selector = select.TopSelector(masks, scores=[scores])
    check(selector, masks, [scores], [512])
    assert selector.routes.tolist() == [EVERYWHERE]


@pytest.mark.parametrize("is_scaled", [False, True])
def test_sizes_are_ranked_alone_or_scaled_by_their_scores(is_scaled: bool) -> None:
    torch.manual_seed(0)
    weights = [torch.randn(40, 65), torch.randn(16, 8)]
    scores = [torch.randn_like(weight) for weight in weights]
    masks = masks_of(weights)
    selector = select.TopSelector(masks, weights=weights, scores=scores if is_scaled else None)
    ranked = [w.abs() * (s.sigmoid() if is_scaled else 1) for w, s in zip(weights, scores, strict=True)]
    check(selector, masks, ranked, [260, 64])


@pytest.mark.parametrize("rank", ["score", "size", "magnitude"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_copies_are_the_weights_under_the_masks(dtype: torch.dtype, rank: str) -> None:
    torch.manual_seed(0)
    weights = [torch.randn(40, 65), torch.randn(16, 8), torch.randn(50, 64)]
    scores = [torch.randn_like(weight).round(decimals=1) for weight in weights]
    masks, copies = masks_of(weights), [torch.full_like(weight, 7, dtype=dtype) for weight in weights]
    selector = select.TopSelector(
        masks,
        weights=None if rank == "score" else weights,
        scores=None if rank == "magnitude" else scores,
        copied=list(zip(weights, copies, strict=True)),
    )
    selector.select_(torch.tensor([260, 64, 3200]))
    assert [int(mask.sum()) for mask in masks] == [260, 64, 3200]
    for mask, weight, copy in zip(masks, weights, copies, strict=True):
        # The interpreter cuts bfloat16 off where a GPU rounds.
        gap = 2**-7 if dtype == torch.bfloat16 else 0.0
        torch.testing.assert_close(copy, (weight * mask).to(dtype), rtol=gap, atol=0.0)
        assert torch.equal(copy.signbit(), (weight * mask).signbit())


def test_copies_that_came_with_the_masks_are_taken_once() -> None:
    weights = [nn.Parameter(torch.randn(8, 12)), nn.Parameter(torch.randn(4, 8))]
    masks = [TopMask(weight) for weight in weights]
    pairs = list(zip(masks, weights, strict=True))
    shadow, selector = Shadow(pairs, {}, torch.float32), MaskSelector()
    selector.select_(pairs, torch.tensor([9, 7]), [0, 1], "score")
    expected = [weight.detach() * mask.mask for mask, weight in pairs]
    for weight in weights:
        weight.data.mul_(2)
    shadow.refresh()
    assert all(torch.equal(mask.copy, copy) for mask, copy in zip(masks, expected, strict=True))
    shadow.refresh()
    assert all(torch.equal(mask.copy, 2 * copy) for mask, copy in zip(masks, expected, strict=True))
    shadow.close()
    selector.select_(pairs, torch.tensor([9, 7]), [0, 1], "score")
    assert not any(mask.is_copied for mask in masks)


def test_two_models_write_their_parts_of_stacked_copies() -> None:
    torch.manual_seed(0)
    joint = [nn.Parameter(torch.randn(2, 8, 12)), nn.Parameter(torch.randn(2, 4, 8))]
    wholes = [TopMask(weight) for weight in joint]
    shadow = Shadow(list(zip(wholes, joint, strict=True)), {}, torch.float32, num_models=2)
    pairs = []
    for model in range(2):
        for whole, weight in zip(wholes, joint, strict=True):
            mask = TopMask(weight[model])
            mask.mask = whole.mask.view(weight.shape)[model]
            pairs.append((mask, weight[model]))
    MaskSelector().select_(pairs, torch.tensor([9, 7, 11, 3]), [0, 1, 2, 3], "score", wholes)
    assert [int(mask.mask.sum()) for mask, _ in pairs] == [9, 7, 11, 3]
    written = [whole.copy.detach().clone() for whole in wholes]
    assert all(whole.is_copied for whole in wholes)
    for _ in range(2):
        shadow.refresh()
        assert all(torch.equal(whole.copy, copy) for whole, copy in zip(wholes, written, strict=True))


@pytest.mark.parametrize(
    ("kind", "is_global", "block"),
    [
        ("score", True, (1, 1)),
        ("size", False, (1, 1)),
        ("sensitivity", True, (1, 1)),
        ("sensitivity", False, (4, 4)),
        ("magnitude", True, (4, 4)),
    ],
)
def test_a_choice_over_two_models_equals_one_for_each(
    kind: str, is_global: bool, block: tuple[int, int]
) -> None:
    """By kernels for single weights, by sorting for blocks."""
    torch.manual_seed(0)
    weights = [torch.randn(8, 12), torch.randn(4, 8)] * 2
    make = TopMask if kind == "magnitude" else ScoreMask
    masks = [make(weight, block) for weight in weights]
    for mask in masks:
        if isinstance(mask, ScoreMask):
            nn.init.normal_(mask.scores)
            mask.moment = torch.rand_like(mask.scores) if kind == "sensitivity" else None
    pairs = list(zip(masks, weights, strict=True))
    segments, kept = ([0, 0, 1, 1], [3, 5]) if is_global else ([0, 1, 2, 3], [2, 1, 4, 2])
    rank: Rank = kind if kind in ("size", "sensitivity") else "score"
    selector = MaskSelector()
    selector.select_(pairs, torch.tensor(kept), segments, rank)
    ranked = [importance(mask, weight, rank) for mask, weight in pairs]
    half = len(kept) // 2
    slow = top_masks(ranked[:2], kept[:half], is_global) + top_masks(ranked[2:], kept[half:], is_global)
    assert all(torch.equal(mask.mask, other) for mask, other in zip(masks, slow, strict=True))
    assert (selector.selector is None) == (block != (1, 1))


def test_tables_are_built_once_and_again_where_a_mask_was_moved() -> None:
    mask = TopMask(torch.randn(4, 4))
    selector, pairs = MaskSelector(), [(mask, torch.randn(4, 4))]
    first = selector._selector(pairs, [0], "score")
    assert selector._selector(pairs, [0], "score") is first
    mask.mask = mask.mask.clone()
    assert selector._selector(pairs, [0], "score") is not first
