"""Measured numbers within sentences are those of results/, as tables are.

Those of the grid and of what is shipped have files of their own.
"""

import math
from collections.abc import Callable
from statistics import fmean

import pytest

from scripts.tables.numbers import difference, gap, num_seeds, read, spread
from scripts.tables.numbers import last_scores as scores_of
from scripts.tables.pruning import enough
from scripts.tables.verdicts import method_gaps
from tests.docs.stated import number_or_word, text_of


def comparisons_of_methods() -> str:
    return f"(one of {len(method_gaps())} comparisons differs)"


def word_content_for_twenty_epochs() -> str:
    runs = read("probing-gpu.json")["finetuned"]
    scores = {
        (case, arm): [run["last_score"] for run in runs[case][f"word-content-{arm}"]]
        for case in ("gte-words", "box-words")
        for arm in ("plain", "mix")
    }
    assert not any(
        run["diverged"] for case in ("gte-words", "box-words") for a in runs[case].values() for run in a
    )
    gte, gte_mix, box, box_mix = (fmean(values) for values in scores.values())
    gain = spread(
        [a - b for a, b in zip(scores["box-words", "mix"], scores["box-words", "plain"], strict=True)]
    )
    assert gain.interval is not None
    low, high = gain.interval
    return (
        f"gte-small has {gte:.2f} plain and {gte_mix:.2f} {{}}, the box {box:.2f} and {box_mix:.2f}"
        f" (+{gain.mean:.1f}, +{low:.1f} … +{high:.1f}"
    )


def plain_by_size_beside_the_mix_by_score() -> str:
    plain, mix = (fmean(scores_of(name).values()) for name in ("stability/size-plain", "long/mix"))
    return f"{plain - mix:.1f} points higher in ten epochs than the mix by score in 25"


def mix_by_size() -> str:
    return f"the mix then gives {gap(difference('stability/size-mix', 'stability/size-plain'))}"


def best_of_four_on_mrpc() -> str:
    plain, mix = (fmean(scores_of(f"mrpc/soft-{arm}").values()) for arm in ("plain", "mix"))
    return f"soft movement is the best on MRPC (plain {plain:.2f}, mix {mix:.2f})"


def soft_movement_on_rte() -> str:
    return f"(soft movement, plain, {fmean(scores_of('rte/soft-plain').values()):.1f})"


def norms_with_zeros() -> str:
    last = {
        name: [row["norm"][-1] for row in rows if row["part"] == "all layers"]
        for name, rows in read("zeroed.json")["encoders"].items()
    }
    grown = max(last.pop("MiniLM-L6"))
    norms = [norm for own in last.values() for norm in own]
    low, high = min(norms), max(norms)
    return f"the norms stay at {low:.2f} to {high:.2f}, but for MiniLM-L6, whose grow to {grown:.1f}"


def what_zeros_cost_each_encoder() -> str:
    left = {
        (name, row["part"], row["share"]): row["differences"][-1]
        for name, rows in read("zeroed.json")["encoders"].items()
        for row in rows
    }
    names = {name for name, _, _ in left}

    def of(part: str, share: float) -> dict[str, float]:
        return {name: left[name, part, share] for name in names}

    lost = {
        part: [1 - value for value in of(part, 0.3).values()]
        for part in ("all layers", "all layers, at random")
    }
    assert max(lost["all layers"]) < 0.06
    assert 8 < fmean(lost["all layers, at random"]) / fmean(lost["all layers"]) < 12
    for part in ("all layers", "feed-forward"):
        assert all(
            min(of(part, share), key=of(part, share).__getitem__) == "mpnet-base" for share in (0.5, 0.7)
        )
    assert min(of("all layers", 0.9), key=of("all layers", 0.9).__getitem__) == "gte-small"
    attention = of("attention", 0.7)
    assert max(attention, key=attention.__getitem__) == "mpnet-base"
    return "the smallest 30 % of all weights cost the four pretrained encoders alike"


def what_stays_at_a_tenth() -> str:
    taught, plain = (fmean(scores_of(name).values()) for name in ("taught/mix", "stability/size-plain"))
    return f"{taught:.1f} with mix and teacher, {plain:.1f} plain without either"


def first_layers_alone() -> str:
    two, taught = (
        fmean(scores_of(name).values()) for name in ("baselines/first-2-plain", "baselines/taught-2")
    )
    return f"the first two layers alone (17 % of the weights) have {two:.1f}, taught {taught:.1f}"


def magnitude_leaves() -> str:
    score = fmean(scores_of("methods/magnitude-plain").values())
    return f"magnitude pruning to the same density leaves {score:.1f} in three epochs"


def the_first_cut_costs() -> str:
    known = read("first-cut.json")
    lowest, random, smallest = (
        known["dense"]["score"] - known[f"{kind}, 5%"]["score"]
        for kind in ("lowest scores", "random", "smallest weights")
    )
    return f"costs {lowest:.1f} points; 5 % at random cost {random:.1f} and the smallest {smallest:.1f}"


def what_goes_first_is_not_large() -> str:
    return f"({read('first-cut.json')['lowest scores, 5%']['size']:.2f} times the mean size of their matrix)"


def when_a_plain_encoder_dies() -> str:
    rows = read("stability-gpu.json")["curves"]["zeros-plain-9"]
    dense = [row["step"] for row in rows if row["density"] == 1.0]
    died = next(row for row in rows if row["gradient"][0] < 1e-6)
    return (
        f"Within {died['step'] - max(dense)} steps of the first pruned weight, at a density of"
        f" {math.floor(100 * died['density'] + 0.5) / 100:.2f}"
    )


def layers_in_use_by_size() -> str:
    plain, mix = (enough(read("alive.json")["cut_after_layer"][f"size-{arm}"]) for arm in ("plain", "mix"))
    return (
        f"and keeps {number_or_word(plain)} of the twelve layers in use (with the mix {number_or_word(mix)})"
    )


def layers_in_use_by_score() -> str:
    short = enough(read("alive.json")["cut_after_layer"]["zeros-mix"])
    long = enough(read("deep-gpu.json")["cut_after_layer"]["25 epochs"])
    return (
        f"cut off all but the first {number_or_word(short)} layers (after three epochs of training) or the"
        f" first {number_or_word(long)} (after 25)"
    )


def seeds_that_live_by_size() -> str:
    arms = {"SST-2": "stability/size-plain", "RTE": "rte/size-plain", "MRPC": "mrpc/size-plain"}
    lives = [f"{len(scores_of(arm))} of {num_seeds(arm)} on {task}" for task, arm in arms.items()]
    return f"Plain gte-small survives ({', '.join(lives)})"


def seeds_that_die_beyond_sst2() -> str:
    by_size, by_score = (num_seeds(arm) - len(scores_of(arm)) for arm in ("mrpc/size-plain", "rte/score-mix"))
    assert num_seeds("mrpc/size-plain") == num_seeds("rte/score-mix") == 5
    return (
        f"On MRPC {number_or_word(by_size)} of five plain seeds died by size, on RTE"
        f" {number_or_word(by_score)} of five mixed ones by score"
    )


def a_seed_that_dies_by_size() -> str:
    dead = num_seeds("mrpc/size-plain") - len(scores_of("mrpc/size-plain"))
    total = num_seeds("mrpc/size-plain")
    return f"on MRPC {number_or_word(dead)} of gte-small's {number_or_word(total)} plain seeds died"


def the_box_by_score_and_by_size() -> str:
    last = {name: arm["last_score"] for name, arm in read("box-rank-cpu.json").items() if "-" in name}
    return "by score {:.1f} plain and {:.1f} mixed, by size {:.1f} and {:.1f}".format(
        *(last[f"{rank}-{arm}"] for rank in ("score", "size") for arm in ("plain", "mix"))
    )


def rte_is_too_hard() -> str:
    alive = {name: list(scores_of(name).values()) for name in read("gpu.json") if name.startswith("rte/")}
    dense = fmean(alive.pop("rte/plain"))
    pruned = [fmean(scores) for name, scores in alive.items() if scores and name != "rte/mix"]
    dead = [run["last_score"] for run in read("gpu.json")["rte/l0-plain"]["seeds"] if run["diverged"]]
    one_answer = max(dead)
    return (
        f"dense {dense:.0f}, pruned {min(pruned):.0f} to {max(pruned):.0f}, where one answer to everything"
        f" has {one_answer:.0f}"
    )


def word_content_of_the_box() -> str:
    arms = read("probing-gpu.json")["finetuned"]["box-right"]
    learned = {
        arm: [run["last_score"] for run in arms[f"word-content-{arm}"] if run["diverged"] is None]
        for arm in ("plain", "mix")
    }
    still = len(arms["word-content-mix"]) - len(learned["mix"])
    return (
        f"plain {fmean(learned['plain']):.1f} by all {number_or_word(len(learned['plain']))} seeds, of the"
        f" mixed ones {number_or_word(still)} are still at guessing and the others have"
        f" {fmean(learned['mix']):.1f}"
    )


def the_box_on_sst2() -> str:
    rows = [
        row["last"]
        for row in read("box-gpu.json")["judged"]
        if row["encoder"].endswith("(the box)") and (row["rate"], row["task"]) == (2e-4, "sst2")
    ]
    return f"(6 layers, 11 MB; SST-2 {fmean(rows):.1f})"


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ("docs/how-to/train.md", the_box_on_sst2),
        ("docs/explanation/pruning.md", magnitude_leaves),
        ("docs/explanation/pruning.md", the_first_cut_costs),
        ("docs/explanation/pruning.md", what_goes_first_is_not_large),
        ("docs/explanation/pruning.md", when_a_plain_encoder_dies),
        ("docs/explanation/pruning.md", layers_in_use_by_size),
        ("docs/explanation/pruning.md", layers_in_use_by_score),
        ("docs/explanation/pruning.md", the_box_by_score_and_by_size),
        ("docs/explanation/pruning.md", seeds_that_live_by_size),
        ("results/README.md", seeds_that_die_beyond_sst2),
        ("docs/how-to/prune.md", a_seed_that_dies_by_size),
        ("results/README.md", rte_is_too_hard),
        ("docs/verdicts.md", rte_is_too_hard),
        ("results/README.md", word_content_of_the_box),
        ("results/README.md", comparisons_of_methods),
        ("docs/explanation/pruning.md", what_zeros_cost_each_encoder),
        ("LOG.md", norms_with_zeros),
        ("results/README.md", lambda: word_content_for_twenty_epochs().format("with the mix")),
        ("LOG.md", lambda: word_content_for_twenty_epochs().format("mixed")),
        ("docs/explanation/pruning.md", what_stays_at_a_tenth),
        ("docs/explanation/pruning.md", first_layers_alone),
        ("results/README.md", plain_by_size_beside_the_mix_by_score),
        ("results/README.md", mix_by_size),
        ("results/README.md", best_of_four_on_mrpc),
        ("results/README.md", soft_movement_on_rte),
    ],
)
def test_a_sentence_says_what_was_measured(document: str, sentence: Callable[[], str]) -> None:
    assert sentence() in text_of(document)
