"""Which layers a mix reads: their numbers and its options checked, and the layers picked out of all."""

from collections.abc import Sequence

from torch import Tensor

from bermo.errors import BermoError, nearest


def choose(
    hidden_states: Sequence[Tensor], layers: tuple[int, ...], num_layers: int, name: str
) -> list[Tensor]:
    """Return the chosen layers, after checking that all of them were passed."""
    if len(hidden_states) != num_layers:
        raise BermoError(
            f"{name} was built for {num_layers} layers, but got {len(hidden_states)}."
            " Count the embedding output too: num_layers = hidden layers + 1."
        )
    return [hidden_states[index] for index in layers]


def layer_numbers(layers: Sequence[int] | None, num_layers: int, name: str) -> tuple[int, ...]:
    """Return layers as numbers 0 … num_layers − 1; negative ones count from the end. None means all."""
    if num_layers < 1:
        raise BermoError(f"{name} needs at least one layer, but got num_layers={num_layers}.")
    if layers is None:
        return tuple(range(num_layers))
    outside = [layer for layer in layers if not -num_layers <= layer < num_layers]
    if outside or not layers:
        raise BermoError(
            f"{name} cannot read layers {list(layers)}: there are {num_layers}, numbered 0 (embeddings)"
            f" to {num_layers - 1}, or from the end -1 to -{num_layers}."
        )
    numbers = tuple(layer % num_layers for layer in layers)
    if len(set(numbers)) < len(numbers):
        raise BermoError(f"{name} got the same layer twice: {list(layers)}. Name each one once.")
    return numbers


def check_choice(name: str, value: object, known: tuple[object, ...]) -> None:
    """Refuse an option's value that LayerMix does not know."""
    if value not in known:
        raise BermoError(f"LayerMix has no {name}={value!r}.{nearest(str(value), [str(k) for k in known])}")


def check_rate(name: str, value: float) -> None:
    """Refuse a chance outside [0, 1)."""
    if not 0 <= value < 1:
        raise BermoError(f"{name} is a chance in [0, 1), but got {value}.")
