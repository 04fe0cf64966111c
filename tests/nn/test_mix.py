"""The mixes against slow, obvious versions; streams against stacks; padding; the error sentences."""

import typing

import pytest
import torch
from torch import Tensor

from bermo.errors import BermoError
from bermo.nn.mix import KINDS, ConcatLayers, GateMix, LayerMix, Mix, OneLayer, build_mix
from bermo.spec import MixKind

NORMS = ["across", "within", "tensor", None]
NUM_LAYERS, B, T, D = 6, 3, 5, 8


def make_layers(dtype: torch.dtype = torch.float32, offset: float = 0.0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [
        (torch.randn(B, T, D, generator=generator) * (1 + j) + offset).to(dtype) for j in range(NUM_LAYERS)
    ]


def make_mask() -> Tensor:
    return torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]])


def streamed(mix: Mix, layers: list[Tensor], mask: Tensor | None) -> Tensor:
    with torch.no_grad():
        stream = mix.stream(mask)
        for index, hidden in enumerate(layers):
            stream.add(index, hidden)
        return stream.result()


def slow_mix(mix: LayerMix, layers: list[Tensor], mask: Tensor) -> Tensor:
    """The combine block, written out element by element in double precision."""
    chosen = [layers[j].double() for j in mix.layers]
    normal = [hidden.clone() for hidden in chosen]
    for b in range(B):
        for t in range(T):
            for d in range(D):
                column = torch.stack([hidden[b, t, d] for hidden in chosen])
                for j, hidden in enumerate(chosen):
                    if mix.norm == "across":
                        group = column
                    elif mix.norm == "within":
                        group = hidden[b, t]
                    else:
                        group = hidden[mask.bool()].flatten()
                    spread = ((group - group.mean()) ** 2).mean()
                    if mix.norm is not None:
                        normal[j][b, t, d] = (hidden[b, t, d] - group.mean()) / (spread + mix.eps).sqrt()
    shares = torch.exp(mix.logits[0].double()) / torch.exp(mix.logits[0].double()).sum()
    return mix.scale.double() * sum(s * h for s, h in zip(shares, normal, strict=True))


@pytest.mark.parametrize("layers", [None, (0, -1, 3)])
@pytest.mark.parametrize("norm", NORMS)
def test_mix_equals_the_formula_written_out(norm: str | None, layers: tuple[int, ...] | None) -> None:
    mix = LayerMix(NUM_LAYERS, norm, layers=layers).eval()
    torch.nn.init.constant_(mix.scale, 1.7)
    hidden = make_layers()
    expected = slow_mix(mix, hidden, make_mask())
    torch.testing.assert_close(mix(hidden, make_mask()).double(), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_streaming_equals_stacking(kind: str, masked: bool) -> None:
    mix, hidden = build_mix(kind, NUM_LAYERS).eval(), make_layers()
    mask = make_mask() if masked else None
    torch.testing.assert_close(streamed(mix, hidden, mask), mix(hidden, mask), atol=1e-5, rtol=0)


@pytest.mark.parametrize("norm", NORMS)
def test_streaming_equals_stacking_far_from_zero(norm: str | None) -> None:
    mix, hidden = LayerMix(NUM_LAYERS, norm, layers=(1, 2, -1)).eval(), make_layers(offset=300.0)
    wide = slow_mix(mix, hidden, torch.ones(B, T))
    torch.testing.assert_close(streamed(mix, hidden, None).double(), wide, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_streaming_leaves_the_layers_unchanged(kind: str) -> None:
    mix, hidden = build_mix(kind, NUM_LAYERS).eval(), make_layers()
    streamed(mix, hidden, make_mask())
    for seen, fresh in zip(hidden, make_layers(), strict=True):
        torch.testing.assert_close(seen, fresh, atol=0, rtol=0)


def test_layers_outside_the_subset_are_never_read() -> None:
    mix = LayerMix(NUM_LAYERS, "across", layers=(1, 3)).eval()
    hidden = make_layers()
    expected = mix(hidden)
    hidden[0], hidden[5] = hidden[0] * float("nan"), hidden[5] * float("nan")
    torch.testing.assert_close(mix(hidden), expected, atol=0, rtol=0)
    torch.testing.assert_close(streamed(mix, hidden, None), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_content_of_padding_reaches_no_real_token(kind: str) -> None:
    mix, mask = build_mix(kind, NUM_LAYERS).eval(), make_mask()
    hidden = make_layers()
    other = [torch.where(mask.bool()[..., None], h, torch.full_like(h, 1e4)) for h in hidden]
    real = mask.bool()
    torch.testing.assert_close(mix(other, mask)[real], mix(hidden, mask)[real], atol=0, rtol=0)
    torch.testing.assert_close(
        streamed(mix, other, mask)[real], streamed(mix, hidden, mask)[real], atol=0, rtol=0
    )


@pytest.mark.parametrize("kind", KINDS)
def test_amount_of_padding_reaches_no_real_token(kind: str) -> None:
    mix, mask = build_mix(kind, NUM_LAYERS).eval(), make_mask()
    hidden = make_layers()
    longer = [torch.cat([h, torch.full((B, 4, D), 7.0)], dim=1) for h in hidden]
    wider_mask = torch.cat([mask, torch.zeros(B, 4, dtype=mask.dtype)], dim=1)
    real = mask.bool()
    torch.testing.assert_close(mix(longer, wider_mask)[:, :T][real], mix(hidden, mask)[real])


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("tensor", "gate")])
def test_a_mix_per_token_may_be_given_only_the_rows_that_are_read(kind: str) -> None:
    mix, hidden = build_mix(kind, NUM_LAYERS).eval(), make_layers()
    assert mix.is_per_token
    rows = [h[:, :1] for h in hidden]
    torch.testing.assert_close(streamed(mix, rows, None), mix(hidden)[:, :1], atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", ["tensor", "gate"])
def test_mixes_over_whole_texts_say_so(kind: str) -> None:
    assert not build_mix(kind, NUM_LAYERS).is_per_token


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("norm", NORMS)
def test_low_precision_keeps_its_dtype_and_wide_statistics(norm: str | None, dtype: torch.dtype) -> None:
    mix, hidden = LayerMix(NUM_LAYERS, norm).eval(), make_layers(dtype)
    expected = mix([h.float() for h in hidden]).to(dtype)
    for seen in (mix(hidden), streamed(mix, hidden, None)):
        assert seen.dtype == dtype
        torch.testing.assert_close(seen, expected)


def test_autocast_does_not_narrow_the_mix() -> None:
    mix, hidden = LayerMix(NUM_LAYERS).eval(), make_layers()
    expected = mix(hidden)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(mix(hidden), expected, atol=0, rtol=0)


def test_weights_sum_to_one_and_follow_the_logits() -> None:
    mix = LayerMix(13)
    assert mix.logits.shape == (1, 13)
    assert mix.scale.item() == 1.0
    assert len(mix.weights) == 13
    assert mix.logits.std() > 0
    torch.testing.assert_close(mix.weights.sum(), torch.tensor(1.0))
    torch.testing.assert_close(mix.weights, torch.softmax(mix.logits[0], 0).detach())


@pytest.mark.parametrize("layers", [None, (0, -1), (2,)])
def test_a_mix_may_start_at_its_last_layer(layers: tuple[int, ...] | None) -> None:
    shares = LayerMix(NUM_LAYERS, "within", layers=layers, init="last").weights
    assert shares.sum().item() == pytest.approx(1)
    assert shares[-1].item() == pytest.approx(0.9 if len(shares) > 1 else 1)
    assert shares[:-1].unique().numel() <= 1


def test_zeros_start_as_the_plain_mean_where_the_norm_allows() -> None:
    mix, hidden = LayerMix(NUM_LAYERS, None, init="zeros").eval(), make_layers()
    torch.testing.assert_close(mix(hidden), torch.stack(hidden).mean(0))


@pytest.mark.parametrize("norm", NORMS)
def test_every_logit_and_the_scale_get_a_gradient(norm: str | None) -> None:
    mix = LayerMix(NUM_LAYERS, norm).train()
    mix(make_layers(), make_mask()).square().sum().backward()
    assert mix.logits.grad is not None
    assert mix.scale.grad is not None
    assert (mix.logits.grad != 0).all()
    assert mix.scale.grad != 0


def test_gradients_are_those_of_finite_differences() -> None:
    mix = LayerMix(3, "across", dropout=0.0).double()
    layers = [torch.randn(1, 2, 3, dtype=torch.double, requires_grad=True) for _ in range(3)]
    assert torch.autograd.gradcheck(lambda *h: mix(h), layers)


def test_dropout_acts_on_normalised_layers_in_training_only() -> None:
    mix = LayerMix(NUM_LAYERS, None, dropout=0.5)
    ones = [torch.ones(1, 1, 10_000) for _ in range(NUM_LAYERS)]
    torch.manual_seed(0)
    assert mix.train()(ones).std() > 0.1
    torch.testing.assert_close(mix(ones).mean(), torch.tensor(1.0), atol=0.02, rtol=0)
    torch.testing.assert_close(mix.eval()(ones), torch.ones(1, 1, 10_000))


def test_layer_dropout_drops_at_its_rate_and_never_all_layers() -> None:
    torch.manual_seed(0)
    mix = LayerMix(NUM_LAYERS, None, dropout=0.0, layer_dropout=0.5, init="zeros").train()
    units = [torch.eye(NUM_LAYERS)[j].view(1, 1, -1) for j in range(NUM_LAYERS)]
    draws = torch.stack([mix(units)[0, 0] for _ in range(2000)]).detach()
    torch.testing.assert_close(draws.sum(1), torch.ones(2000))
    # One of six always stays, hence 0.5 · (1 − (1/6) · 2 · (1/2)^6 …), just under one half.
    assert 0.45 < (draws == 0).float().mean() < 0.5
    almost_all = LayerMix(2, None, dropout=0.0, layer_dropout=0.99).train()
    assert all(torch.isfinite(almost_all(units[:2])).all() for _ in range(50))
    assert (mix.eval()(units) > 0).all()


def test_other_mixes_read_the_layers_they_name() -> None:
    hidden = make_layers()
    torch.testing.assert_close(build_mix("none", NUM_LAYERS)(hidden), hidden[-1])
    torch.testing.assert_close(build_mix("second-to-last", NUM_LAYERS)(hidden), hidden[-2])
    torch.testing.assert_close(OneLayer(NUM_LAYERS, 0)(hidden), hidden[0])
    concat = build_mix("concat-last-four", NUM_LAYERS)
    torch.testing.assert_close(concat(hidden), torch.cat(hidden[-4:], dim=-1))
    assert concat.output_size(D) == 4 * D
    four = build_mix("sum-last-four", NUM_LAYERS).eval()
    assert four.layers == (2, 3, 4, 5)
    expected = sum(w * h for w, h in zip(four.weights, hidden[-4:], strict=True))
    torch.testing.assert_close(four(hidden), expected)
    order = ConcatLayers(NUM_LAYERS, (-1, 0))
    torch.testing.assert_close(streamed(order, hidden, None), torch.cat([hidden[5], hidden[0]], -1))


def test_gate_is_squeeze_and_excite_for_each_text() -> None:
    gate, hidden, mask = GateMix(NUM_LAYERS, reduction=2), make_layers(), make_mask()
    seen = gate(hidden, mask)
    for b in range(B):
        length = int(mask[b].sum())
        z = torch.stack([h[b, :length].mean() for h in hidden])
        inner = torch.clamp(gate.squeeze.weight @ z + gate.squeeze.bias, min=0)
        s = 1 / (1 + torch.exp(-(gate.excite.weight @ inner + gate.excite.bias)))
        torch.testing.assert_close(seen[b], sum(s[j] * h[b] for j, h in enumerate(hidden)))


def test_kinds_are_those_of_the_spec() -> None:
    assert typing.get_args(MixKind) == KINDS


def test_wrong_number_of_layers_is_named() -> None:
    with pytest.raises(BermoError, match="LayerMix was built for 13 layers, but got 7"):
        LayerMix(13)([*make_layers(), torch.zeros(B, T, D)])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"init": "zeros"}, "exactly 0"),
        ({"layers": (2,)}, "only one was chosen"),
        ({"layers": (0, 13)}, "numbered 0 .embeddings. to 12"),
        ({"layers": (12, -1)}, "same layer twice"),
        ({"norm": "acros"}, 'Did you mean "across"'),
        ({"dropout": 1.0}, r"chance in \[0, 1\)"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, typing.Any], sentence: str) -> None:
    with pytest.raises(BermoError, match=sentence):
        LayerMix(13, **options)


def test_build_refuses_unknown_kinds_and_options_that_a_kind_has_not() -> None:
    with pytest.raises(BermoError, match=r'no mix "acros".*"across"'):
        build_mix("acros", 13)
    with pytest.raises(BermoError, match='"none" has no layers'):
        build_mix("none", 13, layers=(1, 2))
    with pytest.raises(BermoError, match='"gate" has no dropout, layer_dropout'):
        build_mix("gate", 13, dropout=0.3, layer_dropout=0.1)
    with pytest.raises(BermoError, match="chooses its own layers"):
        build_mix("sum-last-four", 13, layers=(1, 2))
    with pytest.raises(BermoError, match="there are 3"):
        build_mix("concat-last-four", 3)


def test_streams_refuse_gradients_and_missing_layers() -> None:
    mix = LayerMix(NUM_LAYERS)
    with pytest.raises(BermoError, match="streams at inference only"):
        mix.eval().stream()
    with torch.no_grad():
        stream = mix.stream()
        stream.add(0, torch.zeros(B, T, D))
        with pytest.raises(BermoError, match="mixes 6 layers, but 1 were added"):
            stream.result()
