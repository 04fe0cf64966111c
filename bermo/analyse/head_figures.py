"""What heads are worth, as figures."""

import math
from collections.abc import Mapping

from bermo.analyse.attention import Grid
from bermo.analyse.heads import Effects, Importance, Pruning, Scan
from bermo.figures.data import Bars, Figure, Heat, Lines, Section, Table


def head_grid(title: str, grid: Grid, unit: str, note: str = "", center: float | None = None) -> Heat:
    """Draw layers × heads, with as many digits as small numbers need."""
    largest = max(abs(value) for row in grid for value in row)
    return Heat(
        title=title,
        x_label="head",
        y_label="layer",
        unit=unit,
        values=grid,
        note=note,
        center=center,
        columns=tuple(str(head) for head in range(1, len(grid[0]) + 1)),
        rows=tuple(str(layer) for layer in range(1, len(grid) + 1)),
        digits=2 if largest == 0 or largest >= 1 else min(6, 2 - math.floor(math.log10(largest))),
    )


def effects_section(models: Mapping[str, Effects]) -> Section:
    """Draw how far the output moves when a head is off."""
    figures = [
        head_grid(
            f"{name}: how far the output moves when a head is off",
            item.effects,
            "share of its length",
            "‖o − o′‖ / ‖o‖, mean over tokens; needs no labels.",
        )
        for name, item in models.items()
    ]
    lines = []
    for name, item in models.items():
        flat = sorted(value for row in item.effects for value in row)
        lines.append(
            f"{name}: the median head moves the output by {flat[len(flat) // 2]:.1%},"
            f" the strongest by {flat[-1]:.1%}."
        )
    return Section(title="Heads: effect on the output", text=" ".join(lines), figures=tuple(figures))


def importance_section(models: Mapping[str, Importance]) -> Section:
    """Draw importance by gradient."""
    figures = tuple(
        head_grid(
            f"{name}: importance of each head",
            item.importance,
            "loss a unit of gate",
            "E |∂loss/∂gate| (Michel et al. 2019).",
        )
        for name, item in models.items()
    )
    text = " ".join(
        f"{name}: {item.metric} {item.full:.2f} with all heads on." for name, item in models.items()
    )
    return Section(title="Heads: importance", text=text, figures=figures)


def one_off_section(models: Mapping[str, Scan]) -> Section:
    """Draw the loss of score with each head off."""
    figures = [_change(name, item, "with this head off") for name, item in models.items()]
    lines = []
    for name, item in models.items():
        flat = [score - item.full for row in item.scores for score in row]
        harmless = sum(change >= 0 for change in flat)
        lines.append(
            f"{name}: {harmless} of {len(flat)} heads can be turned off alone at no loss;"
            f" the worst costs {max(0.0, -min(flat)):.2f} points of {item.metric}."
        )
    return Section(title="Heads: one off", text=" ".join(lines), figures=tuple(figures))


def one_left_section(models: Mapping[str, Scan]) -> Section:
    """Draw the best score that one head of each layer reaches alone."""
    figures: list[Figure] = [
        _change(name, item, "with this head alone in its layer") for name, item in models.items()
    ]
    depth = max(len(item.scores) for item in models.values())
    best = {
        name: (tuple(max(row) - item.full for row in item.scores) + (None,) * depth)[:depth]
        for name, item in models.items()
    }
    figures.append(
        Bars(
            title="The best single head of each layer against all its heads",
            x_label="layer",
            y_label="points of score",
            names=tuple(str(k + 1) for k in range(depth)),
            series=best,
            note="0: one head is as good as all.",
        )
    )
    lines = []
    for name, item in models.items():
        enough = sum(max(row) >= item.full for row in item.scores)
        lines.append(f"{name}: in {enough} of {len(item.scores)} layers one head is enough.")
    return Section(title="Heads: one left", text=" ".join(lines), figures=tuple(figures))


def pruning_section(models: Mapping[str, Pruning]) -> Section:
    """Draw the score as heads go."""
    figures = tuple(
        Lines(
            title=f"{name}: score as heads are turned off",
            x_label="share of heads kept",
            y_label=f"{item.metric} (%)",
            x=item.kept,
            series={"least important first": item.by_importance, "at random": item.at_random},
        )
        for name, item in models.items()
    )
    lines = []
    for name, item in models.items():
        full = item.by_importance[0]
        fine = [k for k, s in zip(item.kept, item.by_importance, strict=True) if s >= full - 1]
        lines.append(
            f"{name}: within one point of {full:.2f} with {min(fine):.0%} of the heads,"
            " nothing trained again."
        )
    return Section(title="Heads: pruning", text=" ".join(lines), figures=figures)


def fixed_section(models: Mapping[str, Scan]) -> Section:
    """Draw the change of score when a fixed pattern replaces a head."""
    figures: list[Figure] = []
    lines = []
    for name, item in models.items():
        figures.append(_change(name, item, "with a fixed pattern in this head's place"))
        figures.append(_pattern_table(name, item))
        flat = [score - item.full for row in item.scores for score in row]
        harmless = sum(change >= 0 for change in flat)
        lines.append(
            f"{name}: {harmless} of {len(flat)} heads can be replaced by a fixed pattern alone at no loss."
        )
    return Section(title="Heads: fixed patterns", text=" ".join(lines), figures=tuple(figures))


def _change(name: str, item: Scan, what: str) -> Heat:
    grid = tuple(tuple(score - item.full for score in row) for row in item.scores)
    note = f"{item.metric} {item.full:.2f} with all heads as they are."
    return head_grid(f"{name}: change of score {what}", grid, "points", note, center=0.0)


def _pattern_table(name: str, item: Scan) -> Table:
    rows = tuple(
        (f"{layer + 1}.{head + 1}", pattern, round(item.scores[layer][head] - item.full, 3))
        for layer, patterns in enumerate(item.patterns)
        for head, pattern in enumerate(patterns)
    )
    return Table(
        title=f"{name}: the nearest fixed pattern of each head",
        columns=("layer.head", "looks at", "change of score"),
        rows=rows,
    )
