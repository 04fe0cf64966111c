"""Criteria of pruning: what decides which weights or units are kept, and the checks of their fields.

Magnitude      the largest |W|                                    (Han et al. 2015)
Movement       the highest learned scores S                       (Sanh et al. 2020)
SoftMovement   σ(S) > τ, with a penalty on mean σ(S)              (Sanh et al. 2020)
L0             hard-concrete masks, with a penalty on P(open)     (Louizos et al. 2018)
Proximal       what proximal steps of γ Σ|W|/(|W₀| + ε) leave     (Guo et al. 2019)
"""

from dataclasses import dataclass
from typing import Literal, get_args, get_origin, get_type_hints

from bermo.errors import BermoError

Scope = Literal["matrix", "global"]
Rank = Literal["sensitivity", "size", "score"]
UnitKind = Literal["heads-and-neurons", "layers"]


@dataclass(frozen=True, kw_only=True)
class Magnitude:
    """Keep the largest weights.

    >>> bermo.Magnitude(density=0.1, scope="global")
    Magnitude(density=0.1, scope='global', block=(1, 1))
    """

    density: float
    scope: Scope = "matrix"
    block: tuple[int, int] = (1, 1)

    def __post_init__(self) -> None:
        _check_density(self.density)
        _check_block(self.block)
        _check_words(self)


@dataclass(frozen=True, kw_only=True)
class Movement:
    """Keep the weights that the loss feels most: the largest E[(G ⊙ W)²] · σ(S).

    G is the gradient of the weight under the mask and S a learned score that starts at zero, or at |W|. The
    mean square of G ⊙ W is the second moment that AdamW keeps of the score, so it costs nothing (`watch` of
    the pruner reads it). rank="size" keeps the largest |W| · σ(S), and rank="score" the highest S, as Sanh et
    al. and the paper do. Weights are compared over all matrices by sensitivity, else in each matrix.

        >>> bermo.Movement(density=0.1).rank
        'sensitivity'
    """

    density: float
    scope: Scope | None = None
    block: tuple[int, int] = (1, 1)
    start: Literal["zeros", "magnitude"] = "zeros"
    rank: Rank = "sensitivity"

    def __post_init__(self) -> None:
        _check_density(self.density)
        if self.scope is None:
            object.__setattr__(self, "scope", usual_scope(self.rank))
        _check_block(self.block)
        _check_words(self)


@dataclass(frozen=True, kw_only=True)
class SoftMovement:
    """Keep σ(S) > τ, with a penalty λ·mean σ(S); or, without λ, the penalty that leads to a density.

    >>> bermo.SoftMovement(density=0.1)
    SoftMovement(penalty=None, density=0.1, threshold=0.1, block=(1, 1))
    """

    penalty: float | None = None
    density: float | None = None
    threshold: float = 0.1
    block: tuple[int, int] = (1, 1)

    def __post_init__(self) -> None:
        _check_aim("Soft movement", self.penalty, self.density)
        if not 0 < self.threshold < 1:
            raise BermoError(f"threshold is one of σ(score), between 0 and 1, but got {self.threshold}.")
        _check_block(self.block)


@dataclass(frozen=True, kw_only=True)
class L0:
    """Hard-concrete masks with a penalty λ·mean P(open); or, without λ, the one that leads to a density.

    >>> bermo.L0(penalty=400.0)
    L0(penalty=400.0, density=None, block=(1, 1))
    """

    penalty: float | None = None
    density: float | None = None
    block: tuple[int, int] = (1, 1)

    def __post_init__(self) -> None:
        _check_aim("L0", self.penalty, self.density)
        _check_block(self.block)


@dataclass(frozen=True, kw_only=True)
class Proximal:
    """Keep what the proximal steps of a reweighted L1 norm leave, γ as given; or, without γ, the one that
    leads to a density.
    """

    penalty: float | None = None
    density: float | None = None

    def __post_init__(self) -> None:
        _check_aim("Proximal pruning", self.penalty, self.density)


Ranked = Magnitude | Movement
"""Criteria that keep a given number of the highest."""
Penalised = SoftMovement | L0
"""Criteria whose penalty makes the masks close."""
Method = Magnitude | Movement | SoftMovement | L0
"""Criteria whose masks a step sets anew."""
AnyMethod = Method | Proximal


def check_units(method: Method, unit: UnitKind) -> None:
    """Refuse a criterion that cannot choose whole heads, neurons or layers."""
    if isinstance(method, Magnitude) or method.block != (1, 1):
        raise BermoError(
            "Heads, neurons and layers are chosen by movement, soft movement or L0, and have no blocks."
        )
    if isinstance(method, Movement) and method.rank == "sensitivity":
        raise BermoError(
            'Whole units are ranked by their size or their scores. Choose rank="size" or "score".'
        )
    if unit == "layers" and isinstance(method, Movement) and method.rank == "size":
        raise BermoError(
            'Whole layers are ranked by their scores. Choose rank="score", or prune heads-and-neurons.'
        )


def usual_scope(rank: Rank | None) -> Scope:
    """Return over what weights are compared if nobody says: sensitivities mean the same in every matrix."""
    return "global" if rank == "sensitivity" else "matrix"


def _check_density(density: float) -> None:
    if not 0 < density <= 1:
        raise BermoError(f"density is the share kept, over 0 and at most 1, but got {density}.")


def _check_aim(name: str, penalty: float | None, density: float | None) -> None:
    if density is not None:
        _check_density(density)
    if (penalty is None) == (density is None):
        raise BermoError(f"{name} takes a penalty or a density to aim at, one of the two.")
    if penalty is not None and not penalty > 0:
        raise BermoError(f"penalty must be over 0, but got {penalty}.")


def _check_block(block: tuple[int, ...]) -> None:
    if len(block) != 2 or min(block) < 0:
        raise BermoError(f"block is rows,columns, 0 for all of them, but got {block}.")


def _words_or_none(hint: object) -> tuple[str, ...]:
    """Return the words of a type such as Literal["a", "b"] | None."""
    kinds = [kind for kind in get_args(hint) if get_origin(kind) is Literal]
    return get_args(kinds[0]) if kinds else ()


def _check_words(method: Ranked) -> None:
    """Refuse a word that is not one of those that the field's type lists."""
    for name, hint in get_type_hints(type(method)).items():
        # A field that may be None has been given its value by now.
        words = get_args(hint) if get_origin(hint) is Literal else _words_or_none(hint)
        if words and (value := getattr(method, name)) not in words:
            raise BermoError(f'{name} is {" or ".join(words)}, but got "{value}".')
