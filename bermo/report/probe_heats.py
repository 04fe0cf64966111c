"""Heat maps of probes: tasks by layers, of texts and of words alike."""

from collections.abc import Sequence

from bermo.figures.data import Heat
from bermo.methods.probing.frozen import Probed
from bermo.methods.probing.words import WordProbed
from bermo.report.probe_table import rounded

Probes = Sequence[Probed] | Sequence[WordProbed]


def layer_heat(
    probed: Probes, title: str, values: Sequence[Sequence[float]], unit: str, center: float | None = None
) -> Heat:
    """Draw a value of each task at each layer."""
    return Heat(
        title=title,
        x_label="layer",
        y_label="task",
        columns=tuple(name if name.isdigit() else "the model's mix" for name in probed[0].layers),
        rows=tuple(item.task for item in probed),
        values=tuple(tuple(rounded(value) for value in row) for row in values),
        unit=unit,
        center=center,
        digits=1,
    )


def control_heats(probed: Probes) -> list[Heat]:
    """Draw what each layer has over its control task and over the untrained encoder, where probed."""
    heats: list[Heat] = []
    if all(item.control for item in probed):
        selectivity = [item.selectivity for item in probed]
        heats.append(layer_heat(probed, "Selectivity of each layer", selectivity, "points", 0.0))
    if all(item.untrained for item in probed):
        gains = [tuple(a - b for a, b in zip(i.accuracy, i.untrained, strict=True)) for i in probed]
        heats.append(layer_heat(probed, "Gain over the untrained encoder", gains, "points", 0.0))
    return heats


def mix_heat(probed: Probes) -> Heat:
    """Draw the share of each layer in the learned mix of each task."""
    layers = tuple(name for name in probed[0].layers if name.isdigit())
    return Heat(
        title="Share of each layer in the learned mix",
        x_label="layer",
        y_label="task",
        columns=layers,
        rows=tuple(item.task for item in probed),
        values=tuple(tuple(round(share, 4) for share in item.mix_weights) for item in probed),
        digits=2,
        note=f"Even shares would be {1 / len(layers):.3f}.",
    )
