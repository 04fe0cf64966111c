"""How far turning a head off moves the output, ‖o − o′‖ / ‖o‖, a mean over tokens; needs no labels."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bermo.analyse.attention import Advance, Grid, grid_of
from bermo.analyse.certainty import Ends, ends_of_mean
from bermo.analyse.tokens import run_encoder, token_batches
from bermo.encoders.attention import attending, heads_of_layers
from bermo.vectors import Encoder, stream_vectors

EFFECT_TEXTS = 8


@dataclass(frozen=True, kw_only=True)
class Effects:
    """Relative change of the output when one head is off, layers × heads, with the interval over texts."""

    effects: Grid
    ends: tuple[tuple[Ends, ...], ...]


@torch.inference_mode()
def measure_effects(
    encoder: Encoder, texts: Sequence[str], max_length: int, advance: Advance = lambda done: None
) -> Effects:
    """Turn each head off alone and see how far the output moves, on a few texts; needs no labels."""
    step = max(1, len(texts) // EFFECT_TEXTS)
    chosen = texts[::step][:EFFECT_TEXTS]
    heads = heads_of_layers(encoder.backbone)
    moved = torch.zeros(len(heads), max(heads), dtype=torch.double)
    ends: list[tuple[Ends, ...]] = []
    with attending(encoder.backbone):
        before = _outputs(encoder, chosen, max_length)
    sizes = [len(text) for text in before]
    for layer, count in enumerate(heads):
        of_layer: list[Ends] = []
        for head in range(count):
            gates = torch.ones(moved.shape, device=encoder.device)
            gates[layer, head] = 0
            with attending(encoder.backbone, gates=gates):
                after = _outputs(encoder, chosen, max_length)
            change = [
                float(((new - old).norm(dim=-1) / old.norm(dim=-1)).double().sum())
                for old, new in zip(before, after, strict=True)
            ]
            moved[layer, head] = sum(change) / sum(sizes)
            of_layer.append(ends_of_mean(change, sizes))
            advance(1)
        ends.append(tuple(of_layer))
    return Effects(effects=grid_of(moved, heads), ends=tuple(ends))


def _outputs(encoder: Encoder, texts: Sequence[str], max_length: int) -> list[Tensor]:
    """Return each text's output vectors (T, D): the mix where there is one, else the last layer."""
    if encoder.mix is None:
        outputs = [
            vectors[is_token].float()
            for tokens in token_batches(encoder, texts, max_length)
            for vectors, is_token in zip(run_encoder(encoder, tokens.batch), tokens.is_token, strict=True)
        ]
    else:
        stream = stream_vectors(
            encoder, texts, layers=(), with_mix=True, max_length=max_length, batch_size=16
        )
        outputs = [
            vectors[is_token].float()
            for batch in stream
            for vectors, is_token in zip(batch.vectors[-1], batch.is_token, strict=True)
        ]
    return outputs
