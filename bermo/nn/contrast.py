"""Texts of one class are alike, texts of two classes are not: the loss of SetFit (Tunstall et al. 2022).

    mean (cos − 1)² over pairs of one class + mean cos² over pairs of two classes

Axes: B texts, D hidden units.
"""

import torch
from torch import Tensor
from torch.nn import functional

from bermo.nn.heads import IGNORED


def contrast(vectors_BD: Tensor, classes_B: Tensor) -> Tensor:
    """Return how far the cosines of all pairs of texts are from 1 in one class, and from 0 in two classes.

    Each kind of pair has its own mean, so that many classes do not drown the pairs of one; 0 for no pair. A
    row of the class IGNORED is in no pair.
    """
    unit_BD = functional.normalize(vectors_BD.float(), dim=-1)
    is_same_BB = classes_B[:, None] == classes_B[None]
    is_real_B = classes_B != IGNORED
    is_pair_BB = is_real_B[:, None] & is_real_B[None]
    is_pair_BB = is_pair_BB & ~torch.eye(len(classes_B), dtype=torch.bool, device=classes_B.device)
    errors_BB = (unit_BD @ unit_BD.T - is_same_BB.float()).square()
    kinds = (is_same_BB & is_pair_BB, ~is_same_BB & is_pair_BB)
    means = [(errors_BB * kind).sum() / kind.sum().clamp(min=1) for kind in kinds]
    return means[0] + means[1]
