"""A table of times: monotone, kept on disk, and adding up."""

import json
from pathlib import Path

import pytest
import torch

from bermo.encoders.structure import groups_of
from bermo.progress import Quiet
from bermo.ship.shrink import latency
from bermo.ship.shrink.latency import Workload, latency_table, measure_table, monotone
from tests.tiny import make_config


def test_pooling_gives_the_nearest_rising_sequence() -> None:
    assert monotone([1, 2, 3]) == [1, 2, 3]
    assert monotone([3, 1, 2]) == [2, 2, 2]
    assert monotone([1, 5, 3, 4, 9]) == [1, 4, 4, 4, 9]


@pytest.mark.parametrize("family", ["bert", "mobilebert", "albert"])
def test_a_table_adds_up_to_the_time_that_was_measured(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With made-up clock readings: 5 beside the layers, 1 fixed a layer, 2 a head, ¼ a neuron."""

    def times(encoders: list, workload: Workload, display: object) -> list[float]:
        milliseconds = []
        for encoder in encoders:
            shape = latency.structure_of(encoder).layers
            layers = encoder.config.num_hidden_layers
            milliseconds.append(5.0 + layers * (1.0 + 2.0 * _heads(encoder) + _neurons(encoder) / 4))
            assert len(shape) >= 1
        return milliseconds

    monkeypatch.setattr(latency, "_times", times)
    table = measure_table(make_config(family), Workload(batch_size=2, length=8), Quiet())
    parts = 2 if family == "mobilebert" else 1
    kinds = ("heads", *["neurons"] * parts) * 3
    whole = table.total(kinds, (2, *[24] * parts) * 3)
    assert whole == pytest.approx(5 + 3 * (1 + 2 * 2 + 24 * parts / 4))
    assert table.total(kinds, (1, *[12] * parts) * 3) == pytest.approx(5 + 3 * (1 + 2 + 12 * parts / 4))


def _heads(encoder: object) -> int:
    return sum(g.count for g in groups_of(encoder) if g.kind == "heads" and g.layer == 1)


def _neurons(encoder: object) -> int:
    return sum(g.count for g in groups_of(encoder) if g.kind == "neurons" and g.layer == 1)


def test_a_table_is_measured_once_for_a_machine_and_shape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, workload = make_config("bert"), Workload(batch_size=2, length=8)
    first = latency_table(config, workload, str(tmp_path))
    assert first.unit == "ms"
    assert [n for n, _ in first.heads] == [0, 1, 2]
    assert all(a <= b for (_, a), (_, b) in zip(first.heads, first.heads[1:], strict=False))
    machine = json.loads(next(tmp_path.rglob("*.json")).read_text())["machine"]
    assert machine.endswith(", 1 thread") == (torch.get_num_threads() == 1)
    monkeypatch.setattr(latency, "measure_table", lambda *args: pytest.fail("measured again"))
    assert latency_table(config, workload, str(tmp_path)) == first
