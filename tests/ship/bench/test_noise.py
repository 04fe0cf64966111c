"""A noisy machine: rounds are measured again, and numbers that stay noisy are named."""

from dataclasses import replace

import pytest

from bermo.progress import Quiet
from bermo.ship.bench import run
from bermo.ship.bench.measured import Bench
from bermo.ship.bench.noise import noise_sentence, worst_round
from bermo.ship.bench.spec import BenchSpec
from tests.ship.rows import make_bench


class Clockwork:
    """A worker whose calls take the seconds that it is given, one after the other."""

    def __init__(self, *seconds: float) -> None:
        self.seconds = list(seconds)

    def ask(self, what: str, rows: int, length: int, calls: int) -> list[float]:
        return [self.seconds.pop(0) if self.seconds else 1.0]


def with_rounds(result: Bench, *rounds: tuple[float, ...]) -> Bench:
    rows = tuple(
        replace(row, timings=(replace(row.timings[0], rounds=given),))
        for row, given in zip(result.rows, rounds, strict=True)
    )
    return replace(result, rows=rows)


def measure(*workers: Clockwork) -> tuple[list[list[list[float]]], int]:
    spec = BenchSpec(batches=(1,), lengths=(8,), rounds=3)
    seconds, repeats = run._rounds(list(workers), spec, Quiet())  # type: ignore[arg-type]
    return list(seconds.values()), repeats


def test_the_round_that_differs_most_is_the_worst() -> None:
    assert worst_round([[1.0, 1.1, 1.2], [2.0, 2.1, 2.0]]) is None
    assert worst_round([[1.0, 1.1, 1.2], [2.0, 9.0, 2.0]]) == 1
    assert worst_round([[1.0, 3.0, 1.2], [2.0, 2.0, 0.1]]) == 2


def test_a_disturbed_round_is_measured_again_for_all_candidates() -> None:
    seconds, repeats = measure(Clockwork(1, 1.0, 9.0, 1.0, 1.5), Clockwork(1, 2.0, 2.0, 2.0, 2.5))
    assert repeats == 1
    assert seconds == [[[1.0], [1.5], [1.0]], [[2.0], [2.5], [2.0]]]


def test_a_quiet_machine_measures_nothing_again() -> None:
    assert measure(Clockwork(), Clockwork())[1] == 0


def test_a_machine_that_stays_noisy_is_given_up() -> None:
    assert measure(Clockwork(*[1, 1, 9, 3] * 10), Clockwork())[1] == 3


@pytest.mark.parametrize(
    ("rounds", "sentence"),
    [
        (((1.0, 1.2), (2.0, 2.2)), None),
        (((1.0, 1.2), (2.0, 7.0)), "ms, faster of small (rounds differ by up to 3.5 times)"),
        (((1.0, 4.0), (2.0, 2.0)), "ms, faster of any (rounds differ by up to 4.0 times)"),
    ],
)
def test_numbers_that_are_not_to_be_trusted_are_named(
    rounds: tuple[tuple[float, ...], ...], sentence: str | None
) -> None:
    result = replace(with_rounds(make_bench({"dense": 1.0, "small": 0.5}), *rounds), repeats=2)
    said = noise_sentence(result)
    if sentence is None:
        assert said is None
    else:
        assert sentence in str(said)
        assert "2 rounds were measured again" in str(said)
