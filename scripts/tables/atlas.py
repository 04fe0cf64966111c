"""Scores of the atlas's methods, and of mixes that come or go, each beside the plain encoder."""

from scripts.tables.numbers import read, spread, table, with_interval

ARMS = {
    "plain": "no mix",
    "fixed": "a mix of all layers throughout",
    "opens": "a mix that opens from the last layer downwards",
    "closes": "a mix that closes, so that a plain encoder is left",
}


def methods(name: str = "atlas-gpu.json") -> str:
    """What each method's trained model scores and what is shipped of it, in the atlas's order."""
    rows = read(name)["rows"]
    dense = dict(zip(rows[0]["seeds"], rows[0]["scores"], strict=True))
    return table(
        [
            "method",
            "what it is",
            "trained (95 %)",
            "seeds",
            "of its teacher's",
            "shipped",
            "same answers",
            "MB",
        ],
        [
            [
                f"`{row['method']}`",
                row["summary"].removesuffix("; computed in fp32"),
                *(_trained(row, dense) if row["seeds"] else ["", "", ""]),
                *_shipped(row),
            ]
            for row in rows
        ],
    )


def _trained(row: dict, dense: dict[int, float]) -> list[str]:
    return [with_interval(row["scores"]), str(len(row["seeds"])), f"{_kept(row, dense):.1f} %"]


def _shipped(row: dict) -> list[str]:
    """The score, agreement and size of what is shipped: of seeds the mean, of scores an interval too."""
    if not (measured := row.get("shipped")):
        return ["", "", ""]
    same, size = (spread([one[key] for one in measured]).mean for key in ("same_labels", "megabytes"))
    return [with_interval([one["score"] for one in measured]), f"{same:.1f} %", f"{size:.1f}"]


def _kept(row: dict, dense: dict[int, float]) -> float:
    """The share of the dense model's score of the same seed, the mean over seeds."""
    shares = [100 * score / dense[seed] for seed, score in zip(row["seeds"], row["scores"], strict=True)]
    return sum(shares) / len(shares)


def gradual() -> str:
    """The last accuracy of each mix at 10 % of the weights."""
    arms = read("gradual-mix.json")["arms"]
    rows = [
        [name, with_interval(list(arms[arm].values())), ", ".join(f"{x:.2f}" for x in arms[arm].values())]
        for arm, name in ARMS.items()
    ]
    return table(["while a model is pruned", "accuracy (95 %)", "seeds 9, 25, 39"], rows)
