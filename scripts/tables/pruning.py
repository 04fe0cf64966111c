"""Tables about pruning: who survives, what ranks, what dies first, which layers are alive."""

import math
from typing import Any

from scripts.tables.grid import grid
from scripts.tables.numbers import (
    PRUNING,
    last_scores,
    num_seeds,
    read,
    table,
    with_interval,
)

ARMS = {
    "dense, plain": ("dense/plain", 3),
    "dense, mix": ("dense/mix", 3),
    "movement by score (the paper's), plain": ("long/plain", 25),
    "movement by score (the paper's), mix": ("long/mix", 25),
    "movement by score, plain": ("score/score-plain", 3),
    "movement by score, mix": ("score/score-mix", 3),
    "movement by size · σ(score), plain": ("stability/size-plain", 10),
    "movement by size · σ(score), mix": ("stability/size-mix", 10),
    "the same, mix, with a teacher": ("taught/mix", 10),
    "first layer alone (8 % of the weights), plain": ("baselines/first-1-plain", 3),
    "first 2 layers alone (17 %), plain": ("baselines/first-2-plain", 3),
    "first layer alone, plain, with a teacher": ("baselines/taught-1", 10),
    "first 2 layers alone, plain, with a teacher": ("baselines/taught-2", 10),
}
SURVIVAL = (
    "movement by score (the paper's), plain",
    "movement by score (the paper's), mix",
    "movement by size · σ(score), plain",
    "movement by size · σ(score), mix",
    "the same, mix, with a teacher",
    "dense, plain",
)
DIVERGED = 50.92
"""SST-2's most common answer on dev."""
TRAINING_ROWS = 67_349
"""SST-2's."""


def _row(name: str) -> list[str]:
    arm, epochs = ARMS[name]
    alive = list(last_scores(arm).values())
    shown = with_interval(alive) if alive else f"– (all at {DIVERGED})"
    return [name, _epochs(arm, epochs), f"{len(alive)} of {num_seeds(arm)}", shown]


def _epochs(arm: str, epochs: int) -> str:
    """Say how many epochs were asked for, and where --give-up ended all seeds before."""
    done = whole_epochs(arm)
    return str(epochs) if done >= epochs else f"{epochs}, ended after {done}"


def whole_epochs(arm: str) -> int:
    """Return after how many epochs of SST-2 the last seed of an arm ended."""
    known = read(PRUNING)[arm]
    steps_an_epoch = math.ceil(TRAINING_ROWS / known["spec"]["train"]["batch_size"])
    return int(max(row["steps"] for row in known["seeds"]) // steps_an_epoch)


HEAD = ["SST-2, last evaluation", "epochs", "seeds that survive", "mean (95 % interval)"]


def survival() -> str:
    """The short table: who survives pruning to 10 %; the defaults come from the grid."""
    *pruned, dense = map(_row, SURVIVAL)
    return table(HEAD, [*pruned, _default_row(), dense])


def _default_row() -> list[str]:
    """What --prune movement gives by itself: by sensitivity, embeddings trained too, rate by the width."""
    (place,) = [place for place in grid(read("grid.json")).of("gte-small") if place.task == "sst2"]
    assert place.default is not None
    alive = place.default.alive
    name = "all by default: movement by sensitivity, mix, embeddings trained"
    return [name, "3", f"{len(alive)} of {len(place.default.rows)}", with_interval(alive)]


def summary() -> str:
    """All SST-2 arms at 10 % beside dense models and first layers alone."""
    return table(HEAD, map(_row, ARMS))


def first_runs() -> str:
    """One or two seeds of three epochs: which start, which rate, which method."""
    known: dict[tuple[str, str], list[str]] = {}
    for run in sorted(read("stability-gpu.json")["runs"], key=lambda run: run["seed"]):
        text = f"{run['last_score']:.1f}" + (" (diverged)" if run["diverged"] else "")
        known.setdefault((run["variant"], run["arm"]), []).append(f"{text}, seed {run['seed']}")
    names = {
        "zeros": "movement",
        "magnitude-start": "movement, scores start at the weights' sizes",
        "slow-scores": "movement, score rate 1e-3",
        "within": "movement, mix within",
        "magnitude": "magnitude",
    }
    rows = [
        [name, *("; ".join(known.get((variant, arm), ["–"])) for arm in ("plain", "mix"))]
        for variant, name in names.items()
    ]
    return table(["", "plain", "mix (across)"], rows)


def rank() -> str:
    """One seed, three epochs: what the masks are ranked by. Two numbers are two runs of the same seed."""
    known = read("rank-gpu.json")
    again, first = known["runs"], known["first_wave"]
    rows = [
        ["dense (embeddings frozen)", _score(again["dense"], "score"), "–"],
        [
            "the score (the paper's)",
            f"{first['zeros plain']:.2f}, diverged",
            f"{first['zeros mix']:.2f}, {_score(again['zeros-mix'])}",
        ],
        [
            "size · σ(score) (`--rank size`)",
            f"{first['size plain']:.2f}, {_score(again['size-plain'])}",
            f"{first['size mix']:.2f}, {_score(again['size-mix'])}",
        ],
    ]
    for name, key in (
        ("size · σ(score), score rate 1e-3", "size, score rate 1e-3"),
        ("size · σ(score), base rate 1e-4", "size, base rate 1e-4"),
        ("score that starts at the size, rate 1e-3", "scores from sizes, rate 1e-3"),
    ):
        plain, mix = first[f"{key}: plain"], first[f"{key}: mix"]
        dead = ", diverged" if plain < DIVERGED + 1 else ""
        rows.append([name, f"{plain:.2f}{dead}", f"{mix:.2f}"])
    rows.append(["size · σ(score), mix within", "–", f"{first['size, mix within']:.2f}"])
    return table(["ranked by", "plain", "mix (across)"], rows)


def _score(run: Any, key: str = "last_score") -> str:
    return f"{run[key]:.2f}"


def first_cut() -> str:
    """Accuracy after zeroing a share of every matrix in one shot, without training after it."""
    known = read("first-cut.json")
    shares = ("1%", "2%", "5%", "10%")
    kinds = ("lowest scores", "highest scores", "smallest weights", "largest weights", "random")
    rows = [
        [kind, *(f"{known[f'{kind}, {share}']['score']:.2f}" for share in shares)]
        for kind in kinds
        if f"{kind}, 1%" in known
    ]
    return table(["zeroed in each matrix", *(share.replace("%", " %") for share in shares)], rows)


ZEROED = (
    ("all layers", 0.3), ("all layers", 0.5), ("all layers", 0.7), ("all layers", 0.9),
    ("first quarter", 0.7), ("last quarter", 0.7), ("attention", 0.7), ("feed-forward", 0.7),
    ("all layers, at random", 0.3),
)  # fmt: skip


def zeroed() -> str:
    """What is left of how texts differ in the last layer when the smallest weights are zeroed."""
    known = read("zeroed.json")["encoders"]
    left = {
        name: {(row["part"], row["share"]): row["differences"][-1] for row in rows}
        for name, rows in known.items()
    }
    rows = [
        [f"{part}, {100 * share:.0f} %", *(f"{own[part, share]:.2f}" for own in left.values())]
        for part, share in ZEROED
    ]
    return table(["zeroed in each matrix", *left], rows)


def alive() -> str:
    """Score when a model is cut after a layer."""
    known, deep = read("alive.json")["cut_after_layer"], read("deep-gpu.json")["cut_after_layer"]
    named = {
        "dense, plain": known["dense"],
        "10 %, size · σ(score), plain": known["size-plain"],
        "10 %, size · σ(score), mix": known["size-mix"],
        "10 %, score, mix": known["zeros-mix"],
        "10 %, score, mix, another training": deep["3 epochs"],
        "10 %, score, mix, whole layers dropped from the mix at 0.3": deep["3 epochs, layer dropout 0.3"],
        "10 %, score, mix, 25 epochs": deep["25 epochs"],
    }
    cuts = (2, 3, 5, 6, 7, 8, 9, 10, 12)
    rows = [
        [name, *(f"{scores[cut - 1]:.1f}" for cut in cuts), f"{enough(scores)} of {len(scores)}"]
        for name, scores in named.items()
    ]
    return table(["cut after layer", *map(str, cuts), "enough layers"], rows)


def enough(scores: list[float]) -> int:
    """Return the fewest first layers that are within half a point of the whole."""
    return next(count for count, score in enumerate(scores, 1) if score >= scores[-1] - 0.5)


def box_rank() -> str:
    """The box: three evaluations of one seed, by score and by size."""
    known = read("box-rank-cpu.json")
    rows = [
        [
            name,
            *(
                ", ".join(f"{score:.1f}" for score in known[f"{key}-{arm}"]["looks"])
                for arm in ("plain", "mix")
            ),
        ]
        for name, key in (("the score", "score"), ("size · σ(score)", "size"))
    ]
    return table(["the box, three epochs, ranked by", "plain", "mix"], rows)
