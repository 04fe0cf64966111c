"""Bounds and rules of a spec, and what its fields say about themselves."""

from dataclasses import dataclass

import pytest

from bermo.errors import BermoError
from bermo.fields import REQUIRED, Bounds, Rules, check, group, leaves, option


@dataclass(frozen=True, kw_only=True)
class Oven:
    heat: float = option(180.0, "degrees", "temperature", over=0, most=300)
    minutes: int | None = option(None, "how long", least=1)

    def rules(self) -> Rules:
        return [(self.heat < 250 or self.minutes is not None, "A hot oven needs --minutes.")]


@dataclass(frozen=True, kw_only=True)
class Bread:
    flour: str = option(REQUIRED, "which flour")
    oven: Oven = group(Oven(), "the oven")
    secret: int = 3


@pytest.mark.parametrize(
    ("bounds", "inside", "outside", "words"),
    [
        (Bounds(least=1), 1, 0.99, "at least 1"),
        (Bounds(over=0, most=1), 1, 0, "over 0 and at most 1"),
        (Bounds(least=0, under=1), 0, 1, "at least 0 and under 1"),
        (Bounds(over=0.25, most=1_000_000), 1_000_000, 1_000_001, "over 0.25 and at most 1,000,000"),
    ],
)
def test_bounds_hold_where_they_say(bounds: Bounds, inside: float, outside: float, words: str) -> None:
    assert bounds.hold(inside)
    assert not bounds.hold(outside)
    assert str(bounds) == words


@pytest.mark.parametrize(
    ("oven", "sentence"),
    [
        (Oven(heat=400), "temperature must be over 0 and at most 300, but got 400."),
        (Oven(minutes=0), "minutes must be at least 1, but got 0."),
        (Oven(heat=250), "A hot oven needs --minutes."),
        (Oven(heat=float("nan")), "temperature must be a finite number, but got nan."),
        (Oven(heat=float("inf")), "temperature must be a finite number, but got inf."),
    ],
)
def test_a_broken_bound_or_rule_of_a_spec_inside_another_is_its_sentence(oven: Oven, sentence: str) -> None:
    with pytest.raises(BermoError) as caught:
        check(Bread(flour="rye", oven=oven))
    assert str(caught.value) == sentence


def test_a_spec_whose_rules_hold_comes_back_unchanged() -> None:
    bread = Bread(flour="rye", oven=Oven(heat=250, minutes=9))
    assert check(bread) is bread


def test_leaves_are_the_options_and_not_the_other_fields() -> None:
    assert [(leaf.dotted, leaf.shown, leaf.title) for leaf in leaves(Bread)] == [
        ("flour", "--flour", None),
        ("oven.heat", "--temperature", "the oven"),
        ("oven.minutes", "--minutes", "the oven"),
    ]
    assert [leaf.is_required for leaf in leaves(Bread)] == [True, False, False]
