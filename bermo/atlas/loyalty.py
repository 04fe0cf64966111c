"""How loyal a model is to its teacher: the answers that stayed, and how near its probabilities are.

    labels          share of rows with the same likeliest class
    probabilities   1 − mean over rows of ½ Σ_c |p_c − q_c|, the total variation distance

Xu et al. 2021, "Beyond preserved accuracy", measures loyalty of labels so, and of probabilities by another
distance (1 − √JS).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bermo.data.scoring import total_variation

Probabilities = npt.NDArray[np.floating]


@dataclass(frozen=True, kw_only=True)
class Loyalty:
    """Both from 0 to 1."""

    labels: float
    probabilities: float


def loyalty(student_NC: Probabilities, teacher_NC: Probabilities) -> Loyalty:
    """Compare the probabilities that two models give to the classes of the same rows."""
    same = student_NC.argmax(1) == teacher_NC.argmax(1)
    distance_N = total_variation(student_NC, teacher_NC)
    return Loyalty(labels=float(same.mean()), probabilities=float(1 - distance_N.mean()))
