"""Scores and speeds of the atlas's methods, and scores of mixes that come or go."""

from collections.abc import Mapping
from typing import Any

from bermo.atlas.methods import BASELINES
from bermo.atlas.variants import RULES
from scripts.tables.numbers import gap, read, spread, table, with_interval

ARMS = {
    "plain": "no mix",
    "fixed": "a mix of all layers throughout",
    "opens": "a mix that opens from the last layer downwards",
    "closes": "a mix that closes, so that a plain encoder is left",
}


SPEEDS = "atlas-x86.json"
SAME_SHAPE: Mapping[str, str] = {
    **dict.fromkeys(("movement", "soft-movement", "l0", "proximal"), "magnitude"),
    **dict.fromkeys(("lora", "mixout", "r-drop", "smart", "freelb"), "int8"),
    **{f"{rule}-layers": "first-layers" for rule in RULES},
    **{f"{paper}-loss": "first-layers" for paper in ("distilbert", "pkd", "minilm")},
    **dict.fromkeys(("first-layers-taught", "even-layers-taught", "theseus", "pd"), "first-layers"),
    **dict.fromkeys(("groups", "groups2", "ternary"), "gobo"),
}
"""Methods that ship the shape of another one, and are as fast; only that one was timed."""
SECTIONS: Mapping[str, tuple[str, ...]] = {
    "int8": ("onnx", "int8", "int8-calibrated", "qat", "third-60", "third-60-qat"),
    "kept": ("int8-kept",),
    "binary": ("ternary", "binary"),
    "theseus": ("first-layers", "theseus"),
    "tied": ("tied",),
    "power": ("power",),
    "low-rank": ("low-rank", "structured", "structure-then-rank"),
    "layers": ("first-layers", "last-layers", "alternate-layers", "symmetric-layers", "contribution-layers"),
    "tuned": ("dense", "mixout", "r-drop", "smart", "freelb"),
    "rounds": ("magnitude", "imp"),
    "units": ("fisher", "structured", "ff2"),
    "proximal": ("magnitude", "movement", "soft-movement", "l0", "proximal"),
    "lora": ("lora",),
    "gobo": ("gobo",),
    "groups": ("groups", "groups2"),
    "taught": ("first-layers-taught", "even-layers-taught", "quarter-taught", "thin-taught"),
    "answers": ("pd",),
    "plain-students": ("bilstm", "static-mlp", "tf-idf", "static"),
    "chains": ("words", "third-60", "third-60-qat", "quarter-55-words", "compress"),
    "papers": ("even-layers-taught", "distilbert-loss", "pkd-loss", "tinybert-loss", "minilm-loss"),
}
"""The sections of documents that show methods of the atlas, each of them in one at least."""


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
            "throughput",
            "latency",
        ],
        [
            [
                f"`{row['method']}`",
                row["summary"].removesuffix("; computed in fp32"),
                *(_trained(row, dense) if row["seeds"] else ["", "", ""]),
                *_shipped(row),
                *(_speed(row["method"]) if is_timed(row) else ["", ""]),
            ]
            for row in rows
        ],
    )


def int8() -> str:
    """What int8 costs trainings with it and without, by torch; how far it moves their logits."""
    rows = []
    for row in read("qat.json")["rows"]:
        looks = row["seeds"].values()
        whole, few = ([one[key] for one in looks] for key in ("fp32", "fake_int8"))
        moved = spread([100 * one["moved"]["fake_int8"] for one in looks]).mean
        seeds = ", ".join(row["seeds"])
        cells = (f"{spread(whole).mean:.2f}", f"{spread(few).mean:.2f}", f"{moved:.1f} %")
        rows.append([row["what"], seeds, *cells])
    return table(["training", "seeds", "fp32", "int8", "logits move"], rows)


FORMS: Mapping[str, str] = {
    "int8": "int8",
    "openvino": "int8, OpenVINO",
    "kept": "four matrices in fp32",
    "gobo": "three bits (GOBO)",
    "groups3": "three bits, groups",
    "groups2": "two bits, groups",
}
"""Forms of bermo export whose cost is measured, as a table names them."""


def few_bits() -> str:
    """What forms of few bits cost trained models: the score in fp32, and how it changes, paired by seed."""
    known = read("int8-x86.json")["rows"]
    forms = [form for form in FORMS if any(form in one for row in known for one in row["seeds"].values())]
    rows = []
    for row in known:
        seeds = row["seeds"].values()
        lost = [[one[form]["score"] - one["fp32"] for one in seeds if form in one] for form in forms]
        cells = [gap(spread(values)) if values else "–" for values in lost]
        rows.append(
            [row["model"], ", ".join(row["seeds"]), f"{spread([one['fp32'] for one in seeds]).mean:.2f}"]
        )
        rows[-1] += cells
    return table(["trained model", "seeds", "fp32", *(FORMS[form] for form in forms)], rows)


def ours(*names: str) -> str:
    """Some methods on both tasks, beside what a document says of their papers; nothing if none has rows."""
    tasks = [
        {row["method"]: row for row in read(name)["rows"]} for name in ("atlas-gpu.json", "atlas-mrpc.json")
    ]
    head = ["ours: gte-small", "SST-2", "of the dense", "throughput", "MB", "MRPC", "of the dense"]
    rows = []
    for name in names:
        if not any(name in known for known in tasks):
            continue
        (score, share, *_), (other, other_share, *_) = (_on_task(name, known) for known in tasks)
        own = tasks[0].get(name, {"method": name})
        speed, size = _speed(name)[0] if is_timed(own) else "", _shipped(own)[2]
        rows.append([f"`{name}`", score, share, speed, size, other, other_share])
    return table(head, [[cell or "–" for cell in row] for row in rows]) if rows else ""


def _on_task(name: str, rows: Mapping[str, dict]) -> tuple[str, str]:
    """Score and share of the dense model's: as trained, or of what is shipped where nothing was trained."""
    dense, row = rows["dense"], rows.get(name, {})
    if row.get("seeds"):
        score, _, share = _trained(row, dict(zip(dense["seeds"], dense["scores"], strict=True)))
        return score, share
    if "shipped" not in row:
        return "–", "–"
    score, *_ = _shipped(row)
    return score, f"{shipped_share(row, dense):.1f} %"


def shipped_share(row: dict, dense: dict) -> float:
    """What is shipped as a share of the dense model of the same seed, the mean over seeds; of a baseline,
    which is fitted once, beside the dense models of all seeds.
    """
    own, whole = ({one["seed"]: one["score"] for one in known["shipped"]} for known in (row, dense))
    if row["method"] in BASELINES:
        own = dict.fromkeys(whole, next(iter(own.values())))
    return spread([100 * own[seed] / whole[seed] for seed in sorted(own.keys() & whole.keys())]).mean


def _trained(row: dict, dense: dict[int, float]) -> list[str]:
    return [with_interval(row["scores"], "accuracy"), str(len(row["seeds"])), f"{_kept(row, dense):.1f} %"]


def _shipped(row: dict) -> list[str]:
    """The score, agreement and size of what is shipped: of seeds the mean, of scores an interval too."""
    if not (measured := row.get("shipped")):
        return ["", "", ""]
    same, size = (spread([one[key] for one in measured]).mean for key in ("same_labels", "megabytes"))
    score = with_interval([one["score"] for one in measured], "accuracy")
    return [score, f"{same:.1f} %", f"{size:.1f}"]


def speed_of(name: str) -> Mapping[str, Any] | None:
    """How many times as fast as the dense model what a method ships is, if that was timed."""
    timed: Mapping[str, Any] | None = read(SPEEDS)["rows"].get(SAME_SHAPE.get(name, name))
    return timed


def _speed(name: str) -> list[str]:
    """Throughput by rows a second, latency by the time of one short text."""
    timed = speed_of(name)
    return ["", ""] if timed is None else [f"{timed[key]:.1f} ×" for key in ("throughput", "latency")]


def is_timed(row: dict) -> bool:
    """Whether the model that was timed is the one that was scored: bermo compress chooses by the machine."""
    timed, shipped = speed_of(row["method"]) or {}, row.get("shipped") or [{}]
    return all(timed.get("picked") == one.get("picked") for one in shipped)


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
