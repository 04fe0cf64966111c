"""Axes: ticks cover what is shown, stand at round numbers, and are written so that a person reads them."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bermo.figures.axes import Axis, linear_axis, log_axis, number

NUMBERS = st.floats(-1e6, 1e6, allow_nan=False).map(lambda value: round(value, 6))


@given(st.lists(NUMBERS, min_size=1, max_size=20))
def test_ticks_of_a_linear_axis_cover_the_values_at_round_steps(values: list[float]) -> None:
    axis = linear_axis(values)
    slack = 1e-9 * max(1.0, *map(abs, values))
    assert axis.ticks[0] == axis.low <= min(values) + slack
    assert axis.ticks[-1] == axis.high >= max(values) - slack
    assert 2 <= len(axis.ticks) <= 8
    step = axis.ticks[1] - axis.ticks[0]
    lead = step / 10 ** math.floor(math.log10(step) + 1e-6)
    assert min(abs(lead - round_one) for round_one in (1, 2, 5)) < 1e-3


@given(st.lists(NUMBERS, min_size=2, max_size=20))
def test_a_tight_axis_ends_at_the_values_with_its_ticks_inside(values: list[float]) -> None:
    low, high = min(values), max(values)
    assume(high - low > 1e-6 * max(abs(low), abs(high), 1.0))
    axis = linear_axis(values, is_tight=True)
    assert (axis.low, axis.high) == (low, high)
    slack = 1e-6 * (high - low)
    assert all(low - slack <= tick <= high + slack for tick in axis.ticks)


@given(st.lists(st.floats(1e-12, 1e12), min_size=1, max_size=20))
def test_ticks_of_a_logarithmic_axis_lie_around_the_values(values: list[float]) -> None:
    axis = log_axis(values)
    assert axis.low <= min(values) * 1.00001
    assert axis.high >= max(values) * 0.99999
    assert 2 <= len(axis.ticks) <= 10
    assert all(0 <= axis.share(tick) <= 1 for tick in axis.ticks)


def test_a_long_logarithmic_axis_ends_soon_after_its_values_and_names_powers_of_ten() -> None:
    axis = log_axis([0.9, 3.0, 180.0])
    assert (axis.low, axis.high) == (0.5, 200.0)
    assert axis.labels == ("1", "10", "100")


def test_a_step_on_a_logarithmic_axis_is_a_factor() -> None:
    axis = log_axis([1e-6, 1.0])
    assert axis.share(1e-3) == pytest.approx(0.5)
    assert axis.labels[0] == "10⁻⁶"


def test_an_axis_of_whole_shares_does_not_go_beyond_them() -> None:
    for whole in (1.0, 100.0):
        axis = linear_axis([whole, whole])
        assert axis.low < axis.high == whole
    assert linear_axis([90.0]).high > 90


def test_whole_numbers_have_no_ticks_between_them() -> None:
    assert linear_axis([0, 1, 2], is_tight=True, is_whole=True).labels == ("0", "1", "2")


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([0.0, 1.0], ("0.0", "0.2", "0.4", "0.6", "0.8", "1.0")),
        ([-40, 60], ("−40", "−20", "0", "20", "40", "60")),
        ([0, 25_000], ("0", "5,000", "10,000", "15,000", "20,000", "25,000")),
        ([0, 3.5e6], ("0", "1 M", "2 M", "3 M", "4 M")),
        ([0, 3e-6], ("0", "10⁻⁶", "2·10⁻⁶", "3·10⁻⁶")),
        ([math.nan, None, 3.0, 5.0], ("3.0", "3.5", "4.0", "4.5", "5.0")),
        ([], ("0.0", "0.2", "0.4", "0.6", "0.8", "1.0")),
    ],
)
def test_ticks_read_as_a_person_writes_them(values: list[float | None], labels: tuple[str, ...]) -> None:
    assert linear_axis(values).labels == labels


def test_numbers_of_a_table_are_plain_for_every_program() -> None:
    assert [number(v) for v in (0.1 + 0.2, 12345.678, None, math.nan)] == ["0.3", "12345.7", "", ""]


def test_a_share_is_linear_between_the_ends() -> None:
    axis = Axis(low=2.0, high=4.0, ticks=(2.0, 4.0), labels=("2", "4"))
    assert [axis.share(v) for v in (2.0, 3.0, 4.0)] == [0.0, 0.5, 1.0]
