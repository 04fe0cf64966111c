"""Texts of one class are alike, texts of two classes are not: the loss of SetFit (Tunstall et al. 2022).

    mean over texts of the mean (cos − 1)² to the others of its class
    + mean over texts of the mean cos² to the texts of other classes

SetFit draws for each text as many partners of its class as of others; here every text of the batch is one.
A text's mean comes first, so that the pairs within a common class do not drown those of a rare one.

Axes: B texts, D hidden units.
"""

import torch
from torch import Tensor
from torch.nn import functional

from bermo.nn.heads import IGNORED


def contrast(vectors_BD: Tensor, classes_B: Tensor) -> Tensor:
    """Return how far the cosines of all pairs of texts are from 1 in one class, and from 0 in two classes.

    A text without a partner of a kind counts nothing for that kind; 0 where no text has one. A row of the
    class IGNORED is in no pair.
    """
    unit_BD = functional.normalize(vectors_BD.float(), dim=-1)
    is_same_BB = classes_B[:, None] == classes_B[None]
    is_real_B = classes_B != IGNORED
    is_pair_BB = is_real_B[:, None] & is_real_B[None]
    is_pair_BB = is_pair_BB & ~torch.eye(len(classes_B), dtype=torch.bool, device=classes_B.device)
    errors_BB = (unit_BD @ unit_BD.T - is_same_BB.float()).square()
    is_alike_BB, is_apart_BB = is_same_BB & is_pair_BB, ~is_same_BB & is_pair_BB
    return _mean_of_texts(errors_BB, is_alike_BB) + _mean_of_texts(errors_BB, is_apart_BB)


def _mean_of_texts(errors_BB: Tensor, is_pair_BB: Tensor) -> Tensor:
    """Return the mean over the texts that have pairs of their mean error over these."""
    means_B = (errors_BB * is_pair_BB).sum(1) / is_pair_BB.sum(1).clamp(min=1)
    return means_B.sum() / is_pair_BB.any(1).sum().clamp(min=1)
