"""Signed or unsigned weights: the faithful ones are kept, unless the others are much faster here and not
much worse.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bermo.ship.export.signs import TriedSign, choose_sign, seconds_of
from bermo.ship.runtimes.forms import Sign


def tried(sign: Sign, error: float, seconds: float | None) -> TriedSign:
    return TriedSign(sign=sign, graph=Path(f"{sign}.onnx"), relative_error=error, seconds=seconds)


@pytest.mark.parametrize(
    ("signed", "unsigned", "kept"),
    [
        # Times that differ by noise alone: the more faithful one.
        ((0.035, 1.00), (0.032, 1.05), "unsigned"),
        ((0.030, 1.05), (0.032, 1.00), "signed"),
        # Three times slower is never taken for a little less error.
        ((0.035, 1.00), (0.032, 3.00), "signed"),
        ((0.032, 3.00), (0.035, 1.00), "unsigned"),
        # Much faster, but much worse or beyond the tolerance.
        ((0.070, 1.00), (0.032, 3.00), "unsigned"),
        ((0.260, 1.00), (0.200, 3.00), "unsigned"),
        # No times: the more faithful one.
        ((0.035, None), (0.032, None), "unsigned"),
    ],
)
def test_the_sign_that_is_kept(
    signed: tuple[float, float | None], unsigned: tuple[float, float | None], kept: Sign
) -> None:
    chosen = choose_sign([tried("signed", *signed), tried("unsigned", *unsigned)], tolerance=0.25)
    assert chosen.sign == kept


@pytest.mark.parametrize(
    ("is_signed_accepted", "is_unsigned_accepted", "kept"),
    [
        (True, True, "unsigned"),
        (True, False, "signed"),
        (False, True, "unsigned"),
        (False, False, "unsigned"),
    ],
)
def test_a_sign_that_would_be_refused_is_not_taken_for_its_speed(
    is_signed_accepted: bool, is_unsigned_accepted: bool, kept: Sign
) -> None:
    signed = replace(tried("signed", 0.032, 3.0), is_accepted=is_signed_accepted)
    unsigned = replace(tried("unsigned", 0.035, 1.0), is_accepted=is_unsigned_accepted)
    assert choose_sign([signed, unsigned], tolerance=0.25).sign == kept


def test_candidates_are_timed_by_turns_and_the_shortest_time_counts() -> None:
    now = 0.0
    calls = []

    def candidate(name: str, durations: Iterator[float]) -> object:
        def run(batch: object) -> list[np.ndarray]:
            nonlocal now
            calls.append(name)
            now += next(durations)
            return []

        return run

    slow = candidate("slow", iter([9.0, 3.0, 2.0, 4.0]))
    fast = candidate("fast", iter([9.0, 1.0, 1.5, 0.5]))
    seconds = seconds_of([slow, fast], {}, budget=0.0, clock=lambda: now)  # type: ignore[list-item]
    assert seconds == [2.0, 0.5]
    assert calls == ["slow", "fast"] * 4
