"""How the tables say things: an arm's name, means with intervals, paired differences, Markdown."""

import textwrap
from collections.abc import Sequence

from gpu_runs import FIVE, Arm, difference

from bermo.methods.probing.paired import Paired

TASKS = {"sst2": "SST-2, accuracy", "rte": "RTE, accuracy", "mrpc": "MRPC, mean of accuracy and F1"}
WORDS = {
    "dense": "dense",
    "magnitude": "magnitude",
    "score": "movement, by score",
    "size": "movement, by size · σ(score)",
    "soft": "soft movement",
    "l0": "L0",
}


def name_of(arm: Arm) -> str:
    what = (
        f"first {arm.layers} layer{'s' if arm.layers > 1 else ''}"
        if arm.layers
        else WORDS.get(arm.method, arm.method)
    )
    taught = ", taught" if arm.is_taught else ""
    return f"{what}, {'mix' if arm.is_mix else 'plain'}{taught}, {length(arm.epochs)}{_ended(arm)}"


def _ended(arm: Arm) -> str:
    """Say after how many epochs seeds were given up, where all were."""
    last = max((point[0] or 0 for seed in arm.seeds for point in seed.curve), default=0)
    is_early = arm.give_up is not None and bool(arm.seeds) and all(seed.is_diverged for seed in arm.seeds)
    return f", ended at step {last:,.0f}" if is_early and last else ""


def length(epochs: float | None) -> str:
    return "no epoch" if epochs is None else f"{epochs:g} epoch{'' if epochs == 1 else 's'}"


def seed_score(arm: Arm, seed: int) -> str:
    return "".join(f"{one.score:.2f}{' †' if one.is_diverged else ''}" for one in arm.at([seed]))


def summary(arm: Arm) -> list[str]:
    return [f"{len(arm.survivors())} of {len(arm.seeds)}", *mean_and_interval(arm.spread())]


def mean_and_interval(spread: Paired | None) -> list[str]:
    if spread is None:
        return ["–", "–"]
    low, high = spread.interval or (None, None)
    return [f"{spread.mean:.2f}", "–" if low is None else f"{low:.2f} … {high:.2f}"]


def cells(arm: Arm | None) -> list[str]:
    if arm is None:
        return ["–"] * 4
    seeds, mean = arm.at(FIVE), mean_and_interval(arm.spread(FIVE))
    score = mean[0] if mean[1] == "–" else f"{mean[0]} ({mean[1]})"
    diverged = sum(seed.is_diverged for seed in seeds)
    dead = f"{diverged} of {len(seeds)}"
    return [score, f"{arm.matthews(FIVE):.1f}", f"{100 * arm.density(FIVE):.1f} %", dead]


def weights_of(arm: Arm, total: int | None) -> list[str]:
    kept = arm.seeds[0].kept
    layers = 1.0 if arm.layers is None else arm.layers / total if total else None
    share = "–" if layers is None else f"{100 * layers * arm.density(FIVE):.1f} %"
    return ["not recorded" if kept is None else f"{kept:,}", share]


def compared(one: Arm | None, other: Arm | None, wanted: Sequence[int]) -> str:
    """Say one arm minus the other, paired by seed, and whether the interval leaves zero out."""
    if one is None or other is None:
        return "–"
    gap = difference(one, other, wanted)
    if gap is None:
        return "no seed survives in both"
    if gap.interval is None:
        return f"{gap.mean:+.2f} (one pair, no interval)"
    low, high = gap.interval
    verdict = "more" if low > 0 else "less" if high < 0 else "no difference shown"
    return f"{gap.mean:+.2f} ({low:+.2f} … {high:+.2f}, {gap.count} pairs, p = {gap.p:.3f}): {verdict}"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return "\nNo run of this kind is finished.\n"
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def bullets(sentences: Sequence[str]) -> str:
    return "\n" + "".join(f"{broken(f'- {sentence}')}\n" for sentence in sentences)


def broken(text: str) -> str:
    """Break a sentence into lines, those after the first under the first one's words."""
    return textwrap.fill(text, 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
