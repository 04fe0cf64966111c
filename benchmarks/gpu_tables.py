"""The paper's pruning tables and figures from runs on a GPU: made from the gathered JSON alone.

    python benchmarks/gpu_tables.py results/gpu.json [--out results]

Writes gpu.md and gpu-*.svg. Every verdict is computed from the numbers beside it; what is missing or
unfinished is named and left out.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from gpu_figures import draw_all
from gpu_runs import (
    FIVE,
    GUESSING,
    METHODS,
    Arm,
    difference,
    epochs_of_methods,
    find,
    longest,
    missing,
    num_layers,
    read,
)
from gpu_words import (
    TASKS,
    WORDS,
    bullets,
    cells,
    compared,
    length,
    mean_and_interval,
    name_of,
    seed_score,
    summary,
    table,
    weights_of,
)

from bermo.errors import BermoError
from bermo.files import write_text
from bermo.methods.probing.paired import Paired, paired
from bermo.recipes.core import PAPER_SEEDS

PAPER = {
    "paper: BERT-base, 25 epochs": (79.85, None, None, 82.22, *(None,) * 6),
    "paper: BERMo, 25 epochs": (87.39, 87.61, 85.88, 87.04, 87.39, 86.47, 87.39, 86.70, 86.58, 86.24),
}
"""Table 3, seeds as in PAPER_SEEDS; None diverged."""
SEEDS = ", ".join(map(str, FIVE))
METHOD_HEADS = (
    "",
    *(f"{arm}: {what}" for arm in ("plain", "mix") for what in ("score", "Matthews", "kept", "†")),
    "mix − plain",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results"))
    options = parser.parse_args()
    try:
        arms = read(options.results)
    except BermoError as error:
        parser.error(str(error))
    options.out.mkdir(parents=True, exist_ok=True)
    figures = draw_all(arms, options.out)
    write_text(options.out / "gpu.md", page(arms, options.results.name, figures))
    print(f"{options.out / 'gpu.md'} and {', '.join(figures) or 'no figure'}")


def page(arms: Sequence[Arm], source: str, figures: Sequence[str]) -> str:
    """Return the whole text: a section for each question, its table, its verdict and its figures."""
    sections: dict[str, tuple[Callable[[Sequence[Arm]], str], tuple[str, ...]]] = {
        "Does training survive pruning to 10 %? (Table 3)": (
            stability,
            ("gpu-stability-size.svg", "gpu-stability-score.svg", "gpu-mix.svg"),
        ),
        "Which method? (Table 4)": (methods, ("gpu-methods.svg",)),
        "As many weights without pruning": (baselines, ()),
        "What a teacher gives (Table 5)": (teacher, ()),
        "How many epochs? (Figure 5)": (convergence, ("gpu-epochs.svg",)),
        "What the mix costs and gives, dense (Table 2)": (dense, ()),
    }
    text = (
        "# The paper's pruning experiments, as measured\n\n"
        f"gte-small unless said, from `{source}` (benchmarks/gpu_queue.sh, benchmarks/gather.py) by\n"
        "`python benchmarks/gpu_tables.py`."
        " A score is that of a seed's last evaluation on the dev set, at its final\n"
        "density. Means and 95 % intervals (Student's t) are over the seeds that did not diverge;"
        " † marks one that did:\n"
        "one answer for everything. Matthews' correlation (× 100, 0 for guessing) is that of the best\n"
        "evaluation, over all seeds. Differences are paired by seed.\n"
    )
    for title, (section, names) in sections.items():
        shown = "".join(f"\n![{name}]({name})\n" for name in names if name in figures)
        text += f"\n## {title}\n{section(arms)}{shown}"
    return text + _rest(arms)


def stability(arms: Sequence[Arm]) -> str:
    """Every seed of the ten-seed arms beside the paper's."""
    rows, verdicts = [], []
    for method in ("score", "size"):
        plain, mix = longest(arms, method)
        taught = [find(arms, method, is_mix, is_taught=True) for is_mix in (False, True)]
        for arm in (plain, mix, *taught):
            if arm is not None:
                rows.append(_stability_row(arm))
                verdicts += _given_up(arm)
        if plain is not None and mix is not None:
            gap = compared(mix, plain, PAPER_SEEDS)
            verdicts.append(f"{WORDS[method]}, mix − plain: {gap}.")
    for name, scores in PAPER.items():
        alive = [score for score in scores if score is not None]
        shown = ["†" if score is None else f"{score:.2f}" for score in scores]
        rows.append([name, *shown, f"{len(alive)} of 10", *mean_and_interval(paired(alive)), ""])
    heads = ["seed", *map(str, PAPER_SEEDS), "survive", "mean", "95 %", "mean of the best evaluations"]
    return table(heads, rows) + bullets(verdicts)


def _stability_row(arm: Arm) -> list[str]:
    best = [seed.best for seed in arm.seeds if not seed.is_diverged]
    shown = f"{sum(best) / len(best):.2f}" if best else "–"
    return [name_of(arm), *(seed_score(arm, seed) for seed in PAPER_SEEDS), *summary(arm), shown]


def methods(arms: Sequence[Arm]) -> str:
    """Five seeds of every method, plain beside mixed, on each task."""
    text, best = "", []
    gaps: dict[str, Paired] = {}
    for task, title in TASKS.items():
        epochs = epochs_of_methods(arms, task)
        rows: list[list[str]] = []
        means: dict[str, float] = {}
        for method in ("dense", *METHODS):
            own = None if method == "dense" else epochs
            both = [find(arms, method, is_mix, task=task, epochs=own) for is_mix in (False, True)]
            present = [arm for arm in both if arm is not None]
            if not present:
                continue
            said_gap = compared(both[1], both[0], FIVE)
            rows.append([WORDS[method], *(cell for arm in both for cell in cells(arm)), said_gap])
            if method != "dense":
                gap = difference(both[1], both[0], FIVE)
                gaps |= {f"{task} {method}": gap} if gap else {}
                spreads = {name_of(arm): arm.spread(FIVE) for arm in present if arm.alive(FIVE) == 1}
                means |= {name: spread.mean for name, spread in spreads.items() if spread}
        if rows:
            text += (
                f"\n{title}; {length(epochs)} for the pruned; seeds {SEEDS}; guessing has {GUESSING[task]}\n"
            )
            text += table(METHOD_HEADS, rows)
            name = max(means, key=lambda one: means[one], default="")
            best.append(f"{task}: {name} ({means[name]:.2f})" if means else f"{task}: none")
    return (text or table([], [])) + bullets(_method_verdicts(gaps, best))


def _method_verdicts(gaps: Mapping[str, Paired], best: Sequence[str]) -> list[str]:
    known = {name: gap.interval for name, gap in gaps.items() if gap.interval}
    better = [name for name, (low, _) in known.items() if low > 0]
    worse = [name for name, (_, high) in known.items() if high < 0]
    return [
        "Highest mean of an arm whose seeds all survive, whatever density was reached:"
        f" {'; '.join(best) or 'no pruned arm is finished'}.",
        f"Of {len(known)} comparisons with pairs the mix is better in {len(better)}"
        f" ({', '.join(better) or 'none'}) and worse in {len(worse)} ({', '.join(worse) or 'none'});"
        f" if there were no difference, {0.05 * len(known):.1f} would be expected at 95 %.",
    ]


def baselines(arms: Sequence[Arm]) -> str:
    """The first layers alone, dense and taught, beside pruned arms, with their weights as numbers."""
    total = num_layers(arms)
    wanted = [find(arms, "dense", False, layers=k, is_taught=t) for t in (False, True) for k in (1, 2)]
    wanted += [find(arms, "size", m, epochs=3) for m in (False, True)]
    wanted += [find(arms, "size", m, epochs=10) for m in (False, True)]
    wanted += [find(arms, "size", m, is_taught=True) for m in (False, True)]
    rows = [
        [name_of(arm), *weights_of(arm, total), *mean_and_interval(arm.spread(FIVE))]
        for arm in wanted
        if arm is not None
    ]
    verdicts = [
        f"{name_of(pruned)}, against {name_of(cut)}: {compared(pruned, cut, FIVE)}."
        for cuts, kept in ((wanted[0:2], wanted[4:6]), (wanted[2:4], wanted[8:10]))
        for cut in cuts
        for pruned in kept
        if pruned is not None and cut is not None
    ]
    heads = ["", "encoder weights kept", "share of the encoder", "mean", "95 %"]
    return table(heads, rows) + bullets(verdicts or ["No pair of a pruned and a cut arm is finished."])


def teacher(arms: Sequence[Arm]) -> str:
    """The pruned arms with and without a teacher, paired by seed."""
    rows, verdicts = [], []
    for is_mix in (False, True):
        taught = find(arms, "size", is_mix, is_taught=True)
        alone = find(arms, "size", is_mix, epochs=taught.epochs) if taught else None
        if taught is None:
            continue
        rows += [[name_of(one), *summary(one)] for one in (alone, taught) if one is not None]
        verdicts.append(
            f"{'mix' if is_mix else 'plain'}: a teacher gives {compared(taught, alone, PAPER_SEEDS)}."
        )
    whole = find(arms, "dense", False)
    rows += [[name_of(whole), *summary(whole)]] if whole else []
    return table(["", "survive", "mean", "95 %"], rows) + bullets(
        verdicts or ["No arm with a teacher is finished."]
    )


def convergence(arms: Sequence[Arm]) -> str:
    """Scores after so many epochs, and how many each model needs for the same score."""
    rows: list[list[str]] = []
    curves: dict[bool, dict[float, float]] = {False: {}, True: {}}
    intervals = []
    for epochs in sorted({arm.epochs for arm in arms if arm.method == "size"}):
        both = [find(arms, "size", is_mix, epochs=epochs) for is_mix in (False, True)]
        spreads = [arm.spread(FIVE) if arm else None for arm in both]
        if spreads == [None, None]:
            continue
        cells = [cell for spread in spreads for cell in mean_and_interval(spread)]
        rows.append([f"{epochs:g}", *cells, compared(both[1], both[0], FIVE)])
        gap = difference(both[1], both[0], FIVE)
        intervals += [gap.interval] if gap and gap.interval else []
        for is_mix, spread in zip((False, True), spreads, strict=True):
            curves[is_mix] |= {epochs: spread.mean} if spread else {}
    heads = ["epochs", "plain: mean", "95 %", "mix: mean", "95 %", "mix − plain"]
    is_shown = any(low > 0 or high < 0 for low, high in intervals)
    doubt = "" if is_shown else " No length of training shows a difference, so neither does this ratio."
    return table(heads, rows) + bullets([_needed(curves) + doubt])


def dense(arms: Sequence[Arm]) -> str:
    """Nothing pruned, input right: score and seconds, plain beside mixed."""
    rows, verdicts = [], []
    for task in TASKS:
        both = [find(arms, "dense", is_mix, task=task) for is_mix in (False, True)]
        for arm in both:
            if arm is not None:
                first = arm.seeds[0]
                cost = f"{1000 * first.seconds_per_step / first.together:.2f}"
                rows.append([f"{task}, {name_of(arm)}", *summary(arm), cost])
        if both[0] is not None and both[1] is not None:
            verdicts.append(f"{task}: the mix gives {compared(both[1], both[0], PAPER_SEEDS)}.")
    heads = [
        "",
        "survive",
        "mean",
        "95 %",
        "ms a step and seed (evaluations included, other runs beside)",
    ]
    return table(heads, rows) + bullets(
        verdicts or ["No task has both arms finished, so nothing can be said."]
    )


def _rest(arms: Sequence[Arm]) -> str:
    """List the runs that are unfinished or missing, and those left out because their spec differs."""
    open_ = [f"- {a.name}: {', '.join(a.unfinished)}" for a in arms if a.unfinished]
    other = [
        [a.name, a.differs or f"task {a.task}", *summary(a)]
        for a in arms
        if a.seeds and (a.differs or a.task not in TASKS)
    ]
    open_ += [f"- no finished run: {one.task}, {name_of(one)}" for one in missing(arms)]
    text = "\n## Missing or unfinished, left out\n" + ("\n".join(open_) or "Nothing.") + "\n"
    if other:
        text += "\n## Runs with other settings\n"
        text += table(["run", "differs by", "survive", "mean", "95 %"], other)
    return text


def _given_up(arm: Arm) -> list[str]:
    """State where collapsed seeds were stopped early: their density is not the requested one."""
    dead = [seed for seed in arm.seeds if seed.is_diverged]
    if arm.give_up is None or not dead:
        return []
    density, steps = (
        sum(seed.density for seed in dead) / len(dead),
        max(seed.steps for seed in dead),
    )
    return [
        f"{name_of(arm)}: {len(dead)} seeds were given up after {arm.give_up} evaluations in a row"
        " at one answer to everything: "
        f"{density:.1%} kept, step {steps:,}.".replace("%", " %")
    ]


def _needed(curves: dict[bool, dict[float, float]]) -> str:
    """State after how many epochs each model reaches the common score, interpolated between means."""
    if not all(len(curve) > 1 for curve in curves.values()):
        return "Too few lengths of training are finished to say how many epochs a score needs."
    goal = min(max(curve.values()) for curve in curves.values())
    plain, mix = (_first_reach(curves[is_mix], goal) for is_mix in (False, True))
    return (
        f"To {goal:.2f}, the best mean that both reach, plain needs {plain:.2f} epochs and the mix"
        f" {mix:.2f}: {plain / mix:.2f} × "
        "(the paper: 1.67 × on MNLI, 1.15 × on QQP)."
    )


def _first_reach(curve: dict[float, float], goal: float) -> float:
    points = sorted(curve.items())
    if points[0][1] >= goal:
        return points[0][0]
    for (x0, y0), (x1, y1) in pairwise(points):
        if y1 >= goal:
            return x0 + (x1 - x0) * (goal - y0) / (y1 - y0)
    raise AssertionError("the goal is at most the highest point")


if __name__ == "__main__":
    main()
