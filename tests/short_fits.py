"""Fits that choose how a box is read, shortened: few iterations, penalties compared on one part of the rows.

Beside a tiny box they would be most of a training. The environment tells forked processes (warm/) to shorten
theirs too, so that they train as this one does.
"""

import os

from bermo.nn import linear_fit

VARIABLE = "BERMO_TESTS_SHORT_FITS"
SHORT = {"ROUGH": 4, "ONE_FOLD": 0.0}
WHOLE = {name: getattr(linear_fit, name) for name in SHORT}


def shorten() -> None:
    """Shorten the fits of this process, and of those that it starts."""
    os.environ[VARIABLE] = "1"
    for name, value in SHORT.items():
        setattr(linear_fit, name, value)
