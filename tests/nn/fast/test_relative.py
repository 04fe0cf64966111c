"""Attention to contents and to distances by kernels, in Triton's interpreter, as in plain torch."""

import itertools

import pytest
import torch
from torch import Tensor

ours = pytest.importorskip("bermo.nn.fast.relative", reason="needs Triton")
tiles = pytest.importorskip("bermo.nn.fast.distance_tiles")
joining = pytest.importorskip("bermo.nn.fast.joined", reason="needs Triton")
B, H, D, SCALE = 2, 2, 6, 0.3
THREE = joining.Layout(part=2, text=0, head=3, token=1)
BY_HEAD = joining.Layout(part=3, text=0, head=2, token=1)
TURNED = joining.Layout(part=0, text=2, head=3, token=1)


def joined(layout: joining.Layout, num_tokens: int, size: int = D) -> Tensor:
    """Queries, keys and values whose axes lie as the layout says."""
    sizes = {layout.part: 3, layout.text: B, layout.head: H, layout.token: num_tokens}
    return torch.randn(*(sizes[axis] for axis in range(4)), size, requires_grad=True)


def table(num_tokens: int, is_per_text: bool = False, size: int = D) -> Tensor:
    texts = (B,) if is_per_text else ()
    return torch.randn(2 * num_tokens, *texts, H, size, requires_grad=True)


def mask_of(kind: str, num_tokens: int) -> Tensor:
    real = torch.arange(num_tokens) < torch.tensor([num_tokens, max(1, num_tokens - 2)])[:, None]
    return {
        "none": torch.ones(1, 1, num_tokens, num_tokens, dtype=torch.bool),
        "keys": real[:, None, None, :],
        "pairs": (real[:, :, None] & real[:, None, :])[:, None],
        "one for all texts": torch.ones(num_tokens, num_tokens, dtype=torch.bool).tril()[None, None],
    }[kind]


def assert_as_twin(
    given: list[Tensor], found: Tensor, expected: Tensor, others: tuple[Tensor, ...] = ()
) -> list[Tensor]:
    """Assert that outputs and gradients are equal; return the gradients, with those of others of `found`."""
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    grad = torch.randn_like(expected)
    mine = torch.autograd.grad(found, [*given, *others], grad)
    for one, other in zip(mine, torch.autograd.grad(expected, given, grad), strict=False):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
    return list(mine)


def by_pairs(q: Tensor, k: Tensor, v: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """The attention of one head of one text, pair by pair."""
    num_tokens = len(q)
    rows = []
    for i in range(num_tokens):
        places = [num_tokens + j - i for j in range(num_tokens)]
        scores = [q[i] @ k[j] + q[i] @ first[places[j]] + k[j] @ second[places[j]] for j in range(num_tokens)]
        rows.append(torch.stack(scores).mul(SCALE).softmax(0) @ v)
    return torch.stack(rows)


def test_the_twin_computes_what_a_loop_over_pairs_does() -> None:
    torch.manual_seed(0)
    product, first, second = joined(THREE, 5), table(5), table(5)
    q, k, v = THREE.views(product)
    found = ours.relative_twin(product, first, second, None, 1.0, SCALE, THREE)
    for text in range(B):
        for head in range(H):
            one = by_pairs(q[text, head], k[text, head], v[text, head], first[:, head], second[:, head])
            torch.testing.assert_close(found[text, :, head], one)


@pytest.mark.parametrize(
    ("num_tokens", "kind", "layout"),
    [
        (5, "pairs", THREE),
        (32, "none", BY_HEAD),
        (33, "keys", THREE),
        (1, "none", THREE),
        (70, "one for all texts", THREE),
    ],
)
def test_both_terms_of_distances_are_those_of_plain_torch(
    num_tokens: int, kind: str, layout: joining.Layout
) -> None:
    torch.manual_seed(0)
    given = [joined(layout, num_tokens), table(num_tokens), table(num_tokens)]
    mask, bias = mask_of(kind, num_tokens), torch.zeros(3 * H * D, requires_grad=True)
    found = ours.relative(*given, ours.visible(mask), scale=SCALE, layout=layout, bias=bias)
    expected = ours.relative_twin(*given, mask, 1.0, SCALE, layout)
    of_joined, *_, of_bias = assert_as_twin(given, found, expected, (bias,))
    assert found.is_contiguous()
    torch.testing.assert_close(of_bias, of_joined.sum((0, 1)).flatten(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("num_tokens", [6, 66])
def test_a_table_for_each_text_and_vectors_of_heads_are_those_of_plain_torch(num_tokens: int) -> None:
    torch.manual_seed(0)
    given = [joined(TURNED, num_tokens), table(num_tokens, is_per_text=True)]
    shifts = tuple(torch.randn(H, D, requires_grad=True) for _ in range(2))
    mask = mask_of("pairs", num_tokens)
    found = ours.relative(*given, None, ours.visible(mask), scale=SCALE, layout=TURNED, shifts=shifts)
    expected = ours.relative_twin(*given, None, mask, 1.0, SCALE, TURNED, shifts)
    assert_as_twin([*given, *shifts], found, expected)


def test_a_score_of_segments_is_that_of_plain_torch() -> None:
    torch.manual_seed(0)
    num_tokens = 35
    given = [joined(TURNED, num_tokens), table(num_tokens, is_per_text=True)]
    shifts = [torch.randn(H, D, requires_grad=True) for _ in range(3)]
    shifts.append(torch.randn(2, H, D, requires_grad=True))
    mask, apart = mask_of("pairs", num_tokens), torch.rand(B, 1, num_tokens, num_tokens) < 0.5
    sees = ours.visible(mask, apart)
    found = ours.relative(*given, None, sees, scale=SCALE, layout=TURNED, shifts=shifts)
    expected = ours.relative_twin(*given, None, mask, 1.0, SCALE, TURNED, shifts, apart)
    assert_as_twin([*given, *shifts], found, expected)


def test_dropout_is_drawn_by_the_seed_and_the_same_in_both_directions() -> None:
    torch.manual_seed(0)
    num_tokens, p, seed = 34, 0.3, torch.tensor([7])
    given = [joined(THREE, num_tokens, num_tokens), *(table(num_tokens, size=num_tokens) for _ in range(2))]
    all_see = ours.visible(mask_of("none", num_tokens))
    # Values that are one vector for each token, and equal shares: the output is the factors over the tokens.
    with torch.no_grad():
        given[0][:, :, :2] = 0
        given[0][:, :, 2] = torch.eye(num_tokens)[None, :, None]
    out = ours.relative(*given, all_see, scale=SCALE, layout=THREE, seed=seed, p=p)
    kept = (out.detach() * num_tokens).round(decimals=4).transpose(1, 2)
    torch.testing.assert_close(kept[kept > 0].unique(), torch.tensor([1.4286]))
    assert abs((kept > 0).float().mean().item() - (1 - p)) < 0.05
    assert len({tuple(row.tolist()) for row in kept.flatten(0, 2)}) == B * H * num_tokens
    with torch.no_grad():
        given[0].normal_()
    found = ours.relative(*given, all_see, scale=SCALE, layout=THREE, seed=seed, p=p)
    assert_as_twin(given, found, ours.relative_twin(*given, None, kept, SCALE, THREE))
    assert not torch.equal(
        found, ours.relative(*given, all_see, scale=SCALE, layout=THREE, seed=seed + 1, p=p)
    )


def test_a_token_that_sees_none_gives_zeros_and_takes_none() -> None:
    torch.manual_seed(0)
    given = [joined(THREE, 4), table(4), table(4)]
    sees = torch.ones(B, 1, 4, 4, dtype=torch.bool)
    sees[1, :, 2] = False
    out = ours.relative(*given, ours.visible(sees), scale=SCALE, layout=THREE)
    of_joined, *_ = torch.autograd.grad(out, given, torch.ones_like(out))
    assert out[1, 2].abs().sum() == 0
    assert of_joined[1, 2, 0].abs().sum() == 0
    assert of_joined.isfinite().all()


def test_what_the_kernels_cannot_hold_or_the_interpreter_cannot_compute_is_refused() -> None:
    cpu = torch.device("cpu")
    assert ours.can_relate(cpu, torch.float32, (32, 12, 128, 64))
    assert not ours.can_relate(cpu, torch.bfloat16, (32, 12, 128, 64))
    assert not ours.can_relate(cpu, torch.float32, (32, 12, 128, ours.WIDEST + 1))
    assert not ours.can_relate(cpu, torch.float32, (32, 12, 0, 64))
    assert not ours.can_relate(cpu, torch.float32, (1024, 12, 2048, 64))


def test_tiles_have_32_tokens_at_least() -> None:
    for kernel in ("forward", "tokens", "distances"):
        for num_tokens, size in itertools.product((1, 32, 33, 500), (8, 64, 128)):
            for has_shifts in (False, True):
                options = tiles.tile_options(num_tokens, size, kernel, has_shifts)
                assert options["N"] >= 32
                assert options["WIDTH"] >= size
