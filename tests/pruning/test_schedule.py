"""The cubic schedule: its formula at every step, and schedules that make no sense."""

import pytest

from bermo.errors import BermoError
from bermo.pruning.schedule import CubicSchedule


def test_the_schedule_equals_the_written_formula_at_every_step() -> None:
    schedule = CubicSchedule(total_steps=100, warmup_steps=10, initial_warmup=1, final_warmup=2)
    for step in range(101):
        if step < 10:
            expected = 1.0
        elif step > 80:
            expected = 0.1
        else:
            expected = 0.1 + 0.9 * (1 - (step - 10) / 70) ** 3
        assert schedule.value(step, 1.0, 0.1) == pytest.approx(expected)
    values = [schedule.value(step, 1.0, 0.1) for step in range(101)]
    assert values == sorted(values, reverse=True)


def test_a_schedule_without_room_says_how_many_steps_it_needs() -> None:
    with pytest.raises(BermoError, match="more than 20 steps"):
        CubicSchedule(total_steps=20, warmup_steps=10)


@pytest.mark.parametrize("name", ["warmup_steps", "initial_warmup", "final_warmup"])
def test_a_schedule_of_negative_numbers_is_refused(name: str) -> None:
    with pytest.raises(BermoError, match=f"{name} must be 0 or more"):
        CubicSchedule(**{"total_steps": 10, "warmup_steps": 1, name: -3})
