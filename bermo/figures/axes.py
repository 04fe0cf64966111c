"""Axes: which range is shown, where the ticks stand, how numbers are written.

A linear axis has ticks at multiples of 1, 2 or 5 times a power of ten; a logarithmic one at powers of ten,
and at 2 and 5 times them where it spans few.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from bermo.figures.data import Number

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
MAX_POWERS = 7
WHOLE = (1.0, 100.0)
"""All of something, as a share and in percent: an axis of nothing else does not go beyond."""


@dataclass(frozen=True, kw_only=True)
class Axis:
    """A range of numbers with its ticks."""

    low: float
    high: float
    ticks: tuple[float, ...]
    labels: tuple[str, ...]
    is_log: bool = False

    def share(self, value: float) -> float:
        """Return where a value stands: 0 at the low end, 1 at the high one."""
        if self.is_log:
            low, high = math.log10(self.low), math.log10(self.high)
            return (math.log10(value) - low) / (high - low)
        return (value - self.low) / (self.high - self.low)


def finite(values: Iterable[Number]) -> list[float]:
    """Keep the values that are numbers."""
    return [value for value in values if value is not None and math.isfinite(value)]


def linear_axis(
    values: Iterable[Number],
    *,
    is_tight: bool = False,
    is_whole: bool = False,
    num_ticks: int = 5,
) -> Axis:
    """Cover the values from tick to tick or, if tight, from value to value with ticks inside."""
    low, high = _ends(finite(values))
    step = _step(high - low, num_ticks)
    step = max(1.0, step) if is_whole else step
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    slack = 1e-9 * max(abs(low), abs(high), step) / step
    if is_tight:
        first, last = math.ceil(low / step - slack), math.floor(high / step + slack)
    else:
        first, last = math.floor(low / step + slack), math.ceil(high / step - slack)
    ticks = tuple(round(k * step, decimals) for k in range(first, last + 1))
    if not is_tight:
        low, high = ticks[0], ticks[-1]
    labels = tuple(_tick(tick, decimals, step) for tick in ticks)
    return Axis(low=low, high=high, ticks=ticks, labels=labels)


def log_axis(values: Iterable[Number]) -> Axis:
    """Cover the positive values from 1, 2 or 5 times a power of ten to another one.

    Ticks are at powers of ten, or at all of these numbers if the values are close.
    """
    positive = [value for value in finite(values) if value > 0] or [1.0]
    low, high = min(positive), max(positive)
    first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    last = max(last, first + 1)
    every = math.ceil((last - first) / MAX_POWERS)
    factors = (1, 2, 5) if last - first <= 2 else (1,)
    ticks = [f * 10.0**p for p in range(first, last + 1, every) for f in factors]
    # Cut the ends that no value reaches.
    ends = [
        f * 10.0**p for p in range(first, last + 1) for f in (1, 2, 5) if f * 10.0**p <= 10.0**last * 1.001
    ]
    start = max(i for i, end in enumerate(ends) if end <= low * 1.000001)
    stop = min(i for i, end in enumerate(ends) if end >= high * 0.999999)
    bounds = ends[min(start, max(0, stop - 1))], ends[max(stop, start + 1)]
    ticks = [tick for tick in ticks if bounds[0] * 0.999999 <= tick <= bounds[1] * 1.000001]
    labels = tuple(map(_power, ticks))
    return Axis(low=bounds[0], high=bounds[1], ticks=tuple(ticks), labels=labels, is_log=True)


def number(value: Number, digits: int = 6) -> str:
    """Write a number with so many significant digits; nothing where there is none."""
    if value is None or not math.isfinite(value):
        return ""
    return f"{value:.{digits}g}".removesuffix("e+00")


def _ends(values: list[float]) -> tuple[float, float]:
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    if high - low > 1e-12 * max(abs(low), abs(high)):
        return low, high
    if low == 0:
        return 0.0, 1.0
    pad = 0.1 * abs(low)
    return low - pad, high if high in WHOLE else high + pad


def _step(span: float, num_ticks: int) -> float:
    rough = span / num_ticks
    power = 10.0 ** math.floor(math.log10(rough))
    return next(f * power for f in (1, 2, 5, 10) if f * power >= rough * 0.999999)


def _tick(value: float, decimals: int, step: float) -> str:
    """Write a tick with the step's decimals; steps of a hundred thousand and more count in millions."""
    if value == 0 and (decimals > 5 or step >= 1e5):
        return "0"
    if decimals > 5 or step >= 1e9:
        return _power(value)
    if step >= 1e5:
        return f"{value / 1e6:,.10g} M".replace("-", "−")
    return f"{value:,.{decimals}f}".replace("-", "−")


def _power(value: float) -> str:
    if 1e-3 <= abs(value) < 1e5:
        return f"{value:,.10g}"
    digits, power = f"{value:.2e}".split("e")
    digits = digits.rstrip("0").rstrip(".")
    raised = f"10{str(int(power)).translate(SUPERSCRIPTS)}"
    return raised if digits == "1" else f"{digits}·{raised}".replace("-", "−")
