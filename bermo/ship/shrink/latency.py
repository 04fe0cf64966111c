"""How long a layer takes on this machine, by the heads and neurons it has left.

An encoder of one layer is timed with h heads and all neurons, and with all heads and n neurons; what is over
the layer without them is the time of h heads, or of n neurons. An encoder of two layers tells what a whole
layer is, and so what is fixed. More units never take less time: the times are made monotone by pooling
neighbours (isotonic regression, the nearest rising sequence in squares). A table is kept by machine and
shape, and not measured twice.
"""

import copy
import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PretrainedConfig, PreTrainedModel

from bermo.encoders.backbone import create_encoder, make_inputs
from bermo.encoders.families import num_layers
from bermo.encoders.shape import LayerShape, Structure
from bermo.encoders.structure import resize_, structure_of
from bermo.files import cache_root, read_sealed, reading, write_sealed
from bermo.machine import processor
from bermo.printing import number_of
from bermo.progress import Display, Quiet
from bermo.ship.shrink.search import CostTable

FORMAT = 1
REPEATS = 5
NEURON_STEPS = 12
NUM_WORDS = 1000


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What is timed: texts in a batch, tokens in a text, and where."""

    batch_size: int = 32
    length: int = 128
    device: str = "cpu"


def latency_table(
    config: PretrainedConfig,
    workload: Workload,
    cache: str | None = None,
    display: Display | None = None,
) -> CostTable:
    """Return the milliseconds of an encoder's parts on this machine, measured once and then kept on disk."""
    path = cache_root(cache) / "latency" / f"{_key(config, workload)}.json"
    if path.exists():
        return _read(path)
    table = measure_table(config, workload, display or Quiet())
    write_sealed(path, {"machine": _machine(workload.device), "table": asdict(table)})
    return table


def measure_table(config: PretrainedConfig, workload: Workload, display: Display) -> CostTable:
    """Time one-layer encoders of every number of heads and of some numbers of neurons."""
    whole = structure_of(_encoder(config, None, 1)).layers[0]
    heads = list(range(len(whole.heads) + 1))
    most = whole.neurons[0]
    neurons = sorted({round(most * step / NEURON_STEPS) for step in range(NEURON_STEPS + 1)})
    shapes = [LayerShape(heads=tuple(range(n)), neurons=whole.neurons) for n in heads]
    shapes += [LayerShape(heads=whole.heads, neurons=(n,) * len(whole.neurons)) for n in neurons]
    encoders = [_encoder(config, shape, 1) for shape in shapes] + [_encoder(config, None, 2)]
    times = _times(encoders, workload, display)
    two_layers = times.pop()
    of_heads = monotone(times[: len(heads)])
    of_neurons = monotone(times[len(heads) :])
    one_layer = (of_heads[-1] + of_neurons[-1]) / 2
    # Several feed-forward parts of a layer (MobileBERT) are groups of their own, and share its time.
    parts = len(whole.neurons)
    layer = max(two_layers - one_layer, 0.0)
    inner = (of_heads[-1] - of_heads[0]) + (of_neurons[-1] - of_neurons[0])
    beside = max(one_layer - layer, 0.0)
    depth = num_layers(config) - 1
    return CostTable(
        unit="ms",
        fixed=beside + depth * max(layer - inner, 0.0),
        heads=tuple(zip(heads, [t - of_heads[0] for t in of_heads], strict=True)),
        neurons=tuple(zip(neurons, [(t - of_neurons[0]) / parts for t in of_neurons], strict=True)),
    )


def monotone(values: Sequence[float]) -> list[float]:
    """Return the nearest rising sequence in squares: neighbours that fall are pooled to their mean."""
    pools: list[tuple[float, int]] = []
    for value in values:
        pools.append((value, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (late, n), (early, m) = pools.pop(), pools.pop()
            pools.append(((early * m + late * n) / (m + n), m + n))
    return [mean for mean, number in pools for _ in range(number)]


def _encoder(config: PretrainedConfig, shape: LayerShape | None, depth: int) -> PreTrainedModel:
    config = copy.deepcopy(config)
    kinds = getattr(config, "layer_types", None)
    if kinds is not None:
        config.layer_types = list(kinds[:depth])
    config.num_hidden_layers = depth
    # A look-up takes as long in a small table, and dozens of encoders are held at once.
    config.vocab_size = min(int(config.vocab_size), NUM_WORDS)
    if (getattr(config, "pad_token_id", None) or 0) >= config.vocab_size:
        config.pad_token_id = 0
    encoder = create_encoder(config)
    if shape is not None:
        resize_(encoder, Structure(layers=(shape,)))
    return encoder.eval()


def _times(encoders: Sequence[PreTrainedModel], workload: Workload, display: Display) -> list[float]:
    """Return the least milliseconds of each encoder over rounds that time all: other work only adds time."""
    device = torch.device(workload.device)
    shape = (workload.batch_size, workload.length)
    ids = torch.randint(0, int(encoders[0].config.vocab_size), shape, device=device)
    mask = torch.ones(shape, dtype=torch.long, device=device)
    milliseconds: list[list[float]] = [[] for _ in encoders]
    total = (REPEATS + 1) * len(encoders)
    display.start("timing layer shapes", total, 0)
    try:
        for step in range(total):
            index = step % len(encoders)
            encoder = encoders[index].to(device)  # type: ignore[arg-type]
            seconds = _time(encoder, make_inputs(encoder, ids, mask, None, None), device)
            # The first round warms up.
            if step >= len(encoders):
                milliseconds[index].append(1000 * seconds)
            display.step(step + 1, None)
    finally:
        display.close()
    return [min(values) for values in milliseconds]


@torch.inference_mode()
def _time(encoder: PreTrainedModel, inputs: dict[str, Any], device: torch.device) -> float:
    _wait(device)
    started = time.perf_counter()
    encoder(**inputs)
    _wait(device)
    return time.perf_counter() - started


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _machine(device: str) -> str:
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    return f"{processor().name}, {number_of(torch.get_num_threads(), 'thread')}"


def _key(config: PretrainedConfig, workload: Workload) -> str:
    shape = {k: v for k, v in config.to_dict().items() if isinstance(v, int | float | str | list)}
    for name in ("_name_or_path", "transformers_version"):
        shape.pop(name, None)
    facts = [FORMAT, _machine(workload.device), torch.__version__, shape, asdict(workload)]
    text = json.dumps(facts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _read(path: Path) -> CostTable:
    with reading(path, "Delete it, and it is measured again."):
        values = read_sealed(path)["table"]
        pairs = {name: tuple((int(n), float(c)) for n, c in values[name]) for name in ("heads", "neurons")}
        return CostTable(unit=values["unit"], fixed=float(values["fixed"]), **pairs)
