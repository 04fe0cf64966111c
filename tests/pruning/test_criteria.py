"""Criteria whose fields make no sense are refused when they are made, before any model is loaded."""

from collections.abc import Callable

import pytest

from bermo.errors import BermoError
from bermo.pruning.criteria import L0, Magnitude, Method, Movement, SoftMovement, check_units


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Magnitude(density=0.0), "over 0 and at most 1, but got 0.0"),
        (lambda: Movement(density=1.5, rank="score"), "over 0 and at most 1, but got 1.5"),
        (lambda: SoftMovement(density=-0.1), "over 0 and at most 1, but got -0.1"),
        (lambda: L0(density=2.0), "over 0 and at most 1, but got 2.0"),
        (lambda: L0(), "L0 takes a penalty or a density to aim at, one of the two"),
        (lambda: SoftMovement(penalty=1.0, density=0.1), "Soft movement takes .* one of the two"),
        (lambda: SoftMovement(penalty=-5.0), "penalty must be over 0, but got -5.0"),
        (lambda: L0(penalty=0.0), "penalty must be over 0, but got 0.0"),
        (lambda: SoftMovement(penalty=5.0, threshold=0.0), "between 0 and 1, but got 0.0"),
        (lambda: SoftMovement(penalty=5.0, threshold=2.0), "between 0 and 1, but got 2.0"),
        (lambda: Magnitude(density=0.1, block=(2, -1)), r"block is rows,columns.* got \(2, -1\)"),
        (lambda: Movement(density=0.1, block=(2,), rank="score"), "block is rows,columns"),  # type: ignore[arg-type]
        (lambda: SoftMovement(penalty=1.0, block=(2,)), "block is rows,columns"),  # type: ignore[arg-type]
        (lambda: L0(penalty=1.0, block=(1, 2, 3)), "block is rows,columns"),  # type: ignore[arg-type]
        (lambda: Magnitude(density=0.1, scope="all"), 'scope is matrix or global, but got "all"'),  # type: ignore[arg-type]
        (
            lambda: Movement(density=0.1, scope="glbal", rank="score"),
            'scope is matrix or global, but got "glbal"',
        ),  # type: ignore[arg-type]
        (
            lambda: Movement(density=0.1, start="ones", rank="score"),
            'start is zeros or magnitude, but got "ones"',
        ),  # type: ignore[arg-type]
        (lambda: Movement(density=0.1, rank="sze"), 'rank is sensitivity or size or score, but got "sze"'),  # type: ignore[arg-type]
    ],
)
def test_a_criterion_that_makes_no_sense_is_refused_when_it_is_made(
    make: Callable[[], Method], sentence: str
) -> None:
    with pytest.raises(BermoError, match=sentence):
        make()


@pytest.mark.parametrize(
    ("method", "unit", "sentence"),
    [
        (Magnitude(density=0.5), "heads-and-neurons", "movement, soft movement or L0"),
        (Movement(density=0.5, block=(2, 2), rank="score"), "heads-and-neurons", "have no blocks"),
        (L0(penalty=1.0, block=(0, 1)), "layers", "have no blocks"),
        (Movement(density=0.5, rank="size"), "layers", "Whole layers are ranked by their scores"),
    ],
)
def test_a_criterion_that_cannot_choose_units_is_refused(method: Method, unit: str, sentence: str) -> None:
    with pytest.raises(BermoError, match=sentence):
        check_units(method, unit)  # type: ignore[arg-type]


def test_a_criterion_that_can_choose_units_is_not_refused() -> None:
    check_units(Movement(density=0.5, rank="size"), "heads-and-neurons")
    check_units(SoftMovement(density=0.5), "layers")
