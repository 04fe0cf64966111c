"""Loyalty equals what one counts row by row; of a teacher that knows nothing nothing is kept."""

import math

import numpy as np
import pytest

from bermo.atlas.joining import share_kept
from bermo.atlas.loyalty import loyalty


def test_loyalty_is_what_a_loop_over_rows_and_classes_counts() -> None:
    generator = np.random.default_rng(0)
    student, teacher = (generator.dirichlet(np.ones(3), 40) for _ in range(2))
    same, apart = 0, 0.0
    for p, q in zip(student.tolist(), teacher.tolist(), strict=True):
        same += p.index(max(p)) == q.index(max(q))
        apart += sum(abs(a - b) for a, b in zip(p, q, strict=True)) / 2
    found = loyalty(student, teacher)
    assert found.labels == same / 40
    assert found.probabilities == pytest.approx(1 - apart / 40)
    itself = loyalty(student, student)
    assert (itself.labels, itself.probabilities) == (1, 1)


def test_the_share_kept_of_nothing_is_no_number() -> None:
    assert share_kept(45.0, 90.0) == 50
    assert math.isnan(share_kept(45.0, 0.0))
