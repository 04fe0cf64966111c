"""What heads are worth, as figures."""

import math
from collections.abc import Mapping, Sequence

from bermo.analyse.attention import Grid, known
from bermo.analyse.certainty import LEVEL, holm, least_seen, least_told, least_within, num_sure, told
from bermo.analyse.effects import Effects
from bermo.analyse.heads import POINT, Importance, Pruning, Scan
from bermo.figures.data import Bars, Figure, Heat, Lines, Section, Table, paragraphs
from bermo.printing import percent


def head_grid(title: str, grid: Grid, unit: str, note: str = "", center: float | None = None) -> Heat:
    """Draw layers × heads, with as many digits as small numbers need."""
    largest = max(abs(value) for row in grid for value in known(row))
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
        flat = sorted(
            (value, layer, head)
            for layer, row in enumerate(item.effects)
            for head, value in enumerate(row)
            if value is not None
        )
        middle, most = (told(v, item.ends[k][h], ".1%") for v, k, h in (flat[len(flat) // 2], flat[-1]))
        lines.append(
            f"{name}: the median head moves the output by {middle}, the strongest, {flat[-1][1] + 1}."
            f"{flat[-1][2] + 1}, by {most}, both chosen by the texts that measure them."
        )
    return Section(title="Heads: effect on the output", text=paragraphs(lines), figures=tuple(figures))


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
    text = paragraphs(
        f"{name}: {item.metric} {_full(item)} with all heads on." for name, item in models.items()
    )
    return Section(title="Heads: importance", text=text, figures=figures)


def one_off_section(models: Mapping[str, Scan]) -> Section:
    """Draw the loss of score with each head off."""
    figures = [_change(name, item, "with this head off") for name, item in models.items()]
    lines = []
    for name, item in models.items():
        lines.append(f"{name}: {_seen(item, 'turned off alone')}{_worst(item)}")
    return Section(title="Heads: one off", text=paragraphs(lines), figures=tuple(figures))


def one_left_section(models: Mapping[str, Scan]) -> Section:
    """Draw the best score that one head of each layer reaches alone."""
    figures: list[Figure] = [
        _change(name, item, "with this head alone in its layer") for name, item in models.items()
    ]
    depth = max(len(item.scores) for item in models.values())
    best = {
        name: (tuple(_best(row, item.full) for row in item.scores) + (None,) * depth)[:depth]
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
        lines.append(f"{name}: {_seen(item, 'left alone in its layer')}{_needed(item)}")
    return Section(title="Heads: one left", text=paragraphs(lines), figures=tuple(figures))


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
        least = least_within(item.kept, item.by_importance, POINT)
        share = least_told(least, item.least_ends, ".0%", item.metric, item.rows)
        lines.append(
            f"{name}: {item.metric} {_full(item)}; within one point of it with {share} of the heads, nothing"
            f" trained again. {_first_loss(item)}"
        )
    return Section(title="Heads: pruning", text=paragraphs(lines), figures=figures)


def fixed_section(models: Mapping[str, Scan]) -> Section:
    """Draw the change of score when a fixed pattern replaces a head."""
    figures: list[Figure] = []
    lines = []
    for name, item in models.items():
        figures.append(_change(name, item, "with a fixed pattern in this head's place"))
        figures.append(_pattern_table(name, item))
        lines.append(f"{name}: {_seen(item, 'replaced by a fixed pattern alone')}")
    return Section(title="Heads: fixed patterns", text=paragraphs(lines), figures=tuple(figures))


def _best(row: Sequence[float | None], full: float) -> float | None:
    return max(known(row)) - full if known(row) else None


def _full(item: Importance | Scan | Pruning) -> str:
    """Write the score with all heads on, its interval and how many rows gave it."""
    score = item.by_importance[0] if isinstance(item, Pruning) else item.full
    if item.interval is None:
        return f"{score:.2f} ({item.rows} rows, no interval)" if item.rows else f"{score:.2f}"
    low, high = item.interval
    return f"{score:.2f} ({item.rows} rows; 95 % of accuracy: {low:.1f} … {high:.1f})"


def _worst(item: Scan) -> str:
    """Say what the head that is missed most costs, and whether that is more than chance."""
    if item.is_one_answer or not item.chance:
        return ""
    chances = iter(holm([p for row in item.chance for p in known(row)]))
    costs = [(item.full - score, next(chances)) for row in item.scores for score in known(row)]
    cost, p = max(costs)
    return f" The worst costs {max(0.0, cost):.2f} points of {item.metric} (p {p:.2f}, corrected)."


def _needed(item: Scan) -> str:
    """Say in how many layers no head alone gives the answers of all."""
    if item.is_one_answer or not item.chance:
        return ""
    chances = iter(holm([p for row in item.chance for p in known(row)]))
    layers = [[next(chances) for _ in known(row)] for row in item.chance if known(row)]
    lost = sum(all(p < LEVEL for p in row) for row in layers)
    return f" In {lost} of {len(layers)} layers every head alone does so."


def _first_loss(item: Pruning) -> str:
    """Say at which share of heads the answers first change beyond chance."""
    if not item.chance:
        return f"{item.metric} of {item.rows} rows has no exact test, so no loss is judged."
    kept = [share for share, p in zip(item.kept[1:], holm(item.chance), strict=True) if p < LEVEL]
    test = f"(sign test over {item.rows} rows, corrected for {len(item.chance)} tries)"
    if not kept:
        return f"At no share do the answers change beyond chance {test}."
    return f"Answers change beyond chance from {percent(max(kept), 0)} of the heads on {test}."


def _seen(item: Scan, done: str) -> str:
    """Say for how many heads a change is more than chance, or why that cannot be said."""
    if item.is_one_answer:
        return "the model gives one answer to all of these rows, so no head can be judged."
    if not item.chance:
        return (
            f"{item.metric} of {item.rows} rows has no exact test, so changes of single heads are not judged."
        )
    values = [p for row in item.chance for p in known(row)]
    sure = num_sure(values)
    rows = least_seen(len(values))
    return (
        f"{sure} of {len(values)} heads change the answers beyond chance when {done} (sign test over"
        f" {item.rows} rows, corrected for {len(values)} tries). Of the others nothing is known: to be seen,"
        f" a head has to change {rows} answers one way ({100 * rows / item.rows:.1f} points)."
    )


def _change(name: str, item: Scan, what: str) -> Heat:
    grid = tuple(tuple(None if s is None else s - item.full for s in row) for row in item.scores)
    note = f"{item.metric} {item.full:.2f} with all heads as they are."
    return head_grid(f"{name}: change of score {what}", grid, "points", note, center=0.0)


def _pattern_table(name: str, item: Scan) -> Table:
    rows = tuple(
        (f"{layer + 1}.{head + 1}", pattern, round((item.scores[layer][head] or 0.0) - item.full, 3))
        for layer, patterns in enumerate(item.patterns)
        for head, pattern in enumerate(patterns)
    )
    return Table(
        title=f"{name}: the nearest fixed pattern of each head",
        columns=("layer.head", "looks at", "change of score"),
        rows=rows,
    )
