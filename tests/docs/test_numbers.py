"""Measured numbers within sentences are those of results/, as tables are."""

import math
import re
from collections.abc import Callable
from statistics import fmean, stdev
from typing import Any

import pytest

from bermo.atlas.methods import METHODS
from bermo.atlas.steps import Export
from scripts.tables.grid import welch
from scripts.tables.grid_pages import seeds_for
from scripts.tables.numbers import difference, gap, num_seeds, read, spread
from scripts.tables.numbers import last_scores as scores_of
from scripts.tables.pruning import enough
from scripts.tables.ship import candidates
from scripts.tables.verdicts import SST2_PART, method_gaps
from tests.docs.documents import ROOT


def on_x86(name: str) -> float:
    """Return a form's throughput over the dense model's on the x86-64 processor."""
    (row,) = [row for row in read("ship-x86.json")["bench"]["rows"] if row["name"] == name]
    return float(row["speedup"])


def on_arm(bench: str, name: str) -> dict[str, Any]:
    """Return what a bench of students on the ARM processor measured of one of them."""
    (row,) = [row for row in read("ship-cpu.json")["students"][bench]["rows"] if row["name"] == name]
    return dict(row)


def step(name: str) -> float:
    """Return the milliseconds of a training step at length 32 on the H200."""
    (row,) = [row for row in read("step-cuda.json")["rows"] if (row["name"], row["length"]) == (name, 32)]
    return float(row["median_ms"])


def students_on_x86() -> str:
    four, three = (on_x86(f"{name}-openvino-bf16") for name in ("four-60", "three-55"))
    return f"such students reach {four:.0f} × and {three:.0f} × in OpenVINO"


def comparisons_of_methods() -> str:
    return f"(one of {len(method_gaps())} comparisons differs)"


def step_on_a_gpu() -> str:
    ours, theirs = step("plain, auto"), step("Hugging Face, eager")
    return (
        f"{ours:.1f} ms for BERT-base at batch 32 and length 32 where Hugging Face, eager, takes {theirs:.0f}"
    )


def step_beside_the_fused_adamw() -> str:
    (bert,) = [row for row in read("step-families-cuda.json")["rows"] if row["family"] == "bert"]
    ours, theirs = bert["ms"]["plain"]["128"], bert["ms"]["fused"]["128"]
    return f"at length 128 {ours:.1f} where its Trainer's fused AdamW takes {theirs:.0f}"


def fast_student() -> str:
    best = candidates()["first 4 layers, 60 % of heads and neurons, taught, int8"]
    share = 100 * (best.test_share or 0)
    return f"What made {best.throughput:.0f} × at {share:.1f} % of gte-small's SST-2 score"


def fast_student_share() -> str:
    best = candidates()["first 4 layers, 60 % of heads and neurons, taught, int8"]
    return f"have {100 * (best.test_share or 0):.1f} % of the score at {best.throughput:.0f} × the throughput"


def students_without_spinning() -> str:
    four, first_four = (on_arm("compress_speedup_8", f"{name} int8") for name in ("four-60", "alone-4"))
    three, first_three = (on_arm("compress_speedup_15", f"{name} int8") for name in ("three-55", "alone-3"))
    gains = [row["latency_gain"] for row in (four, first_four, three, first_three)]
    return (
        "four-60 has {:.1f} × beside the first four layers' {:.1f}, and three-55 {:.1f} × beside the first"
        " three's {:.1f}; throughput hardly differs ({:.1f} and {:.1f} ×)"
    ).format(*gains, four["speedup"], three["speedup"])


def sparse_container() -> str:
    known = read("ship-cpu.json")["sparse"]
    half, bytes_ = known["fp16"], known["int8"]
    return (
        f"encoder {known['encoder_fp32_mb']:.1f} → {half['encoder_mb']:.2f} MB ({half['times']:.1f} ×, fp16"
        f" values) or {bytes_['encoder_mb']:.2f} MB ({bytes_['times']:.1f} ×, int8)"
    )


def in_grid(encoder: str, task: str, method: str, is_mix: bool) -> float:
    """Return the mean of the last evaluations of a cell's seeds that live."""
    return fmean(last_scores_in_grid(encoder, task, method, is_mix))


def both_in_grid(encoder: str, task: str, method: str) -> tuple[float, float]:
    """Return a cell's means without the mix and with it."""
    return in_grid(encoder, task, method, False), in_grid(encoder, task, method, True)


def large_plain_encoder_by_size() -> str:
    plain, mix = both_in_grid("mpnet-base", "SST-2, 20,000 rows", "size")
    return f"(plain {plain:.1f}, mixed {mix:.1f}, three seeds each)"


def plain_encoders_by_sensitivity() -> str:
    plain, mix = both_in_grid("mpnet-base", "SST-2, 20,000 rows", "sensitivity")
    return f"({plain:.1f} on 20,000 rows of SST-2, mixed {mix:.1f})"


def where_the_mix_gains_most() -> str:
    plain, mix = both_in_grid("gte-small", "mrpc", "sensitivity")
    return f"(gte-small on MRPC, {plain:.1f} plain and {mix:.1f} mixed)"


def what_the_mix_gains_by_sensitivity() -> str:
    rows = [row for row in read("grid.json") if row["method"] == "sensitivity" and not row["mix"]]
    places = sorted({(row["encoder"], row["task"]) for row in rows})
    pairs = [both_in_grid(*place, "sensitivity") for place in places]
    gains = [mix - plain for plain, mix in pairs]
    encoders = {encoder for encoder, _ in places}
    return (
        f"on {number_or_word(len(places))} tasks and lengths of training of {number_or_word(len(encoders))}"
        f" encoders it gains {min(gains):.1f} to {max(gains):.1f} points"
    ).replace("-", "−")


def which_start_kills_a_large_plain_encoder() -> str:
    rows = [r for r in read("grid.json") if (r["encoder"], r["task"]) == ("mpnet-base", "sst2")]
    alive = {
        name: [r["last"] for r in rows if r["method"] == name and not r["mix"] and not r["dead"]]
        for name in ("size-head", "size-frozen", "size-random")
    }
    assert [len(scores) for scores in alive.values()] == [3, 3, 0]
    head, frozen = fmean(alive["size-head"]), fmean(alive["size-frozen"])
    return (
        f"lives from a random head (3 of 3 seeds, {head:.1f}) and with frozen embeddings (3 of 3,"
        f" {frozen:.1f}), and dies from the paper's start, which has both (0 of 3)"
    )


def taught_by_sensitivity() -> str:
    plain, mix = both_in_grid("gte-small", SST2_PART, "taught")
    wide_plain, wide = both_in_grid("mpnet-base", SST2_PART, "taught")
    whole = in_grid("mpnet-base", "sst2", "taught", True) - in_grid("mpnet-base", "sst2", "sensitivity", True)
    return (
        f"A teacher adds a point more to gte-small ({mix:.1f}; plain {plain:.1f}), and nothing that is shown"
        f" to MPNet on the same 20,000 rows ({wide:.1f}; plain {wide_plain:.1f}), on all of SST-2"
        f" {whole:.1f} points"
    )


def dead_by_score(encoder: str, is_mix: bool = False) -> tuple[int, int]:
    """Count the seeds of an encoder that die by score on 20,000 rows of SST-2, and all."""
    cell = (encoder, SST2_PART, "score", is_mix)
    rows = [r for r in read("grid.json") if (r["encoder"], r["task"], r["method"], r["mix"]) == cell]
    return sum(r["dead"] for r in rows), len(rows)


def seeds_dead_by_score() -> str:
    base, gte, mini, box = map(dead_by_score, ("mpnet-base", "gte-small", "MiniLM-L6", "the box"))
    mixed = [dead_by_score(name, True) for name in ("mpnet-base", "gte-small", "MiniLM-L6", "the box")]
    assert mini == box
    assert not any(dead for dead, _ in mixed)
    return (
        "{} of {} of mpnet-base, {} of {} of gte-small and {} of {} each of MiniLM-L6 and the box;".format(
            *base, *gte, *mini
        )
        + f" of {sum(total for _, total in mixed)} mixed ones it is none"
    )


def plain_encoders_killed_by_score() -> str:
    base, mini, box = map(dead_by_score, ("mpnet-base", "MiniLM-L6", "the box"))
    long = (num_seeds("long/plain") - len(scores_of("long/plain")), num_seeds("long/plain"))
    assert mini == box
    return (
        "(on SST-2 {} of {} seeds of gte-small, {} of {} of mpnet-base, {} of {} of MiniLM-L6 and of the box)"
    ).format(*(number_or_word(count) for count in (*long, *base, *mini)))


def all_plain_encoders_by_size() -> str:
    rows = [r for r in read("grid.json") if (r["task"], r["method"], r["mix"]) == (SST2_PART, "size", False)]
    encoders = {row["encoder"] for row in rows}
    assert not any(row["dead"] for row in rows)
    return f"all plain seeds of {number_or_word(len(encoders))} encoders live by size"


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


def last_scores_in_grid(encoder: str, task: str, method: str, is_mix: bool) -> list[float]:
    """Return the last evaluations of a cell's seeds that live."""
    cell = (encoder, task, method, is_mix)
    rows = [r for r in read("grid.json") if (r["encoder"], r["task"], r["method"], r["mix"]) == cell]
    return [row["last"] for row in rows if not row["dead"]]


NUMBERS = [
    "no",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
]


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


def large_encoder_taught() -> str:
    taught = spread(last_scores_in_grid("mpnet-base", "sst2", "taught", True))
    alone = last_scores_in_grid("mpnet-base", "sst2", "sensitivity", True)
    assert taught.interval is not None
    low, high = taught.interval
    return (
        f"mpnet-base has {taught.mean:.1f} at 10 % of all of SST-2 ({number_or_word(taught.count)} seeds,"
        f" {low:.1f} … {high:.1f}; wanted 92.0), untaught {fmean(alone):.1f}"
        f" ({number_or_word(len(alone))}; wanted 91.0)"
    )


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


def number_or_word(count: int) -> str:
    return NUMBERS[count] if count < len(NUMBERS) else str(count)


def large_plain_encoder() -> str:
    by = {name: in_grid("mpnet-base", SST2_PART, name, False) for name in ("sensitivity", "size")}
    return f"Without a mix it lives by sensitivity ({by['sensitivity']:.1f}) and by size ({by['size']:.1f})"


def without_scores() -> str:
    pairs = [
        (in_grid(encoder, "mrpc", "no-scores", True), in_grid(encoder, "mrpc", "sensitivity", True))
        for encoder in ("gte-small", "MiniLM-L6")
    ]
    (gte, gte_scored), (minilm, minilm_scored) = pairs
    return f"{gte:.1f} and {minilm:.1f} remain of {gte_scored:.1f} and {minilm_scored:.1f}"


def what_stays_at_a_tenth() -> str:
    taught, plain = (fmean(scores_of(name).values()) for name in ("taught/mix", "stability/size-plain"))
    return f"{taught:.1f} with mix and teacher, {plain:.1f} plain without either"


def first_layers_alone() -> str:
    two, taught = (
        fmean(scores_of(name).values()) for name in ("baselines/first-2-plain", "baselines/taught-2")
    )
    return f"the first two layers alone (17 % of the weights) have {two:.1f}, taught {taught:.1f}"


def int8_of_all_methods() -> str:
    lost = dict[tuple[str, int], float]()
    for row in read("atlas-gpu.json")["rows"]:
        method = METHODS.get(row["method"])
        if method is None or not isinstance(last := method.steps[-1], Export) or last.to != "onnx-int8":
            continue
        shipped = {one["seed"]: one["score"] for one in row.get("shipped", ())}
        trained = zip(row["seeds"], row["scores"], strict=True)
        lost |= {(method.name, seed): score - shipped[seed] for seed, score in trained if seed in shipped}
    worst, best = (pick(lost, key=lambda one: lost[one]) for pick in (max, min))
    methods = {name for name, _ in lost}
    return (
        f"Over the {len(lost)} models above that ship in int8** ({len(methods)} methods, one"
        f" seed or three of each) it loses {fmean(lost.values()):.2f} points in the mean, from"
        f" {lost[worst]:.2f} lost (`{worst[0]}`) to {-lost[best]:.2f} gained (`{best[0]}`), with a standard"
        f" deviation of {stdev(lost.values()):.2f}"
    )


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
        f"and keep {number_or_word(plain)} of the twelve layers in use (with the mix {number_or_word(mix)})"
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
    return f"Plain encoders survive ({', '.join(lives)})"


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


def comparing_over_all_matrices() -> str:
    gains = {
        method: [
            in_grid("gte-small", task, method, True) - in_grid("gte-small", task, "size", True)
            for task in (SST2_PART, "mrpc")
        ]
        for method in ("size-global", "sensitivity")
    }
    by_size, by_sensitivity = ("{:.1f} and {:.1f}".format(*both) for both in gains.values())
    return f"by size that adds {by_size} points, by sensitivity there are {by_sensitivity}"


def density_that_soft_movement_reaches() -> str:
    kept = [100 * row["density"] for row in read("grid.json") if row["method"] == "soft"]
    return (
        f"the grid's trainings by soft movement end at {min(kept):.1f} to {max(kept):.1f} % for a goal of 10"
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


def seeds_for_an_interval() -> str:
    scores = last_scores_in_grid("gte-small", "sst2", "sensitivity", True)
    known, deviation = spread(scores), stdev(scores)
    assert known.interval is not None
    half = (known.interval[1] - known.interval[0]) / 2
    return (
        f"where one training deviates by {deviation:.1f} points, {number_or_word(known.count)} seeds give ±"
        f" {half:.1f}, and ± 0.3 takes {seeds_for(deviation, 0.3)}"
    )


def the_box_on_sst2() -> str:
    rows = [
        row["last"]
        for row in read("box-gpu.json")["judged"]
        if row["encoder"].endswith("(the box)") and (row["rate"], row["task"]) == (2e-4, "sst2")
    ]
    return f"(6 layers, 11 MB; SST-2 {fmean(rows):.1f})"


def the_box_on_a_processor() -> str:
    rows = read("grid-cpu.json")
    here = {
        name: [row["last"] for row in rows if row["method"] == name]
        for name in ("sensitivity", "size", "magnitude", "soft")
    }
    assert {len(scores) for scores in here.values()} == {2}
    there = last_scores_in_grid("the box", "cola", "sensitivity", True)
    gap, half = welch(here["sensitivity"], there)
    assert half is not None
    return (
        "{:.1f} by sensitivity, {:.1f} by size, {:.1f} by magnitude and {:.1f} by soft movement".format(
            *(fmean(scores) for scores in here.values())
        )
        + f" (two seeds each): the default leads there too. But it stands {gap:.1f} ± {half:.1f} points over"
        f" the {fmean(there):.1f} of the H200's {number_or_word(len(there))} seeds"
    )


def by_sensitivity_beside_soft_movement() -> str:
    tasks = (SST2_PART, "mrpc", "cola", "mr")
    pairs = {
        encoder: ", ".join(
            " and ".join(f"{in_grid(encoder, task, method, True):.1f}" for method in ("sensitivity", "soft"))
            for task in tasks[:count]
        )
        for encoder, count in (("gte-small", 4), ("MiniLM-L6", 4), ("mpnet-base", 2))
    }
    return "; ".join(f"{encoder} {scores}" for encoder, scores in pairs.items())


def by_sensitivity_on_all_of_sst2() -> str:
    scores = [
        f"{name} {in_grid(name, 'sst2', 'sensitivity', True):.1f}" for name in ("gte-small", "mpnet-base")
    ]
    plain = [
        f"{in_grid(encoder, task, 'sensitivity', False):.1f}"
        for encoder in ("mpnet-base", "gte-small")
        for task in (SST2_PART, "mrpc")
    ]
    return (
        f"{scores[0]}, {scores[1]}. Plain it lives too: mpnet-base {plain[0]} and {plain[1]} (SST-2, MRPC),"
        f" gte-small {plain[2]} and {plain[3]}"
    )


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ("results/README.md", the_box_on_a_processor),
        ("docs/how-to/train.md", seeds_for_an_interval),
        ("docs/how-to/train.md", the_box_on_sst2),
        ("LOG.md", by_sensitivity_beside_soft_movement),
        ("LOG.md", by_sensitivity_on_all_of_sst2),
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
        ("docs/explanation/pruning.md", comparing_over_all_matrices),
        ("docs/explanation/pruning.md", density_that_soft_movement_reaches),
        ("docs/explanation/pruning.md", fast_student_share),
        ("results/README.md", rte_is_too_hard),
        ("docs/verdicts.md", rte_is_too_hard),
        ("results/README.md", word_content_of_the_box),
        ("README.md", students_on_x86),
        ("README.md", step_on_a_gpu),
        ("README.md", step_beside_the_fused_adamw),
        ("results/README.md", comparisons_of_methods),
        ("docs/how-to/ship.md", fast_student),
        ("results/README.md", students_without_spinning),
        ("results/README.md", sparse_container),
        ("docs/explanation/pruning.md", large_plain_encoder_by_size),
        ("docs/explanation/pruning.md", plain_encoders_by_sensitivity),
        ("docs/explanation/pruning.md", where_the_mix_gains_most),
        ("docs/explanation/pruning.md", taught_by_sensitivity),
        ("docs/explanation/pruning.md", seeds_dead_by_score),
        ("docs/explanation/pruning.md", what_zeros_cost_each_encoder),
        ("LOG.md", norms_with_zeros),
        ("LOG.md", which_start_kills_a_large_plain_encoder),
        ("LOG.md", seeds_dead_by_score),
        ("docs/explanation/pruning.md", all_plain_encoders_by_size),
        ("README.md", plain_encoders_killed_by_score),
        ("results/README.md", which_start_kills_a_large_plain_encoder),
        ("results/README.md", lambda: word_content_for_twenty_epochs().format("with the mix")),
        ("LOG.md", lambda: word_content_for_twenty_epochs().format("mixed")),
        ("docs/explanation/pruning.md", what_the_mix_gains_by_sensitivity),
        ("docs/explanation/pruning.md", which_start_kills_a_large_plain_encoder),
        ("docs/explanation/pruning.md", without_scores),
        ("docs/explanation/pruning.md", what_stays_at_a_tenth),
        ("docs/explanation/pruning.md", first_layers_alone),
        ("results/README.md", plain_by_size_beside_the_mix_by_score),
        ("results/README.md", mix_by_size),
        ("results/README.md", best_of_four_on_mrpc),
        ("results/README.md", soft_movement_on_rte),
        ("results/README.md", large_encoder_taught),
        ("results/README.md", large_plain_encoder),
        ("results/README.md", int8_of_all_methods),
    ],
)
def test_a_sentence_says_what_was_measured(document: str, sentence: Callable[[], str]) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    assert sentence() in re.sub(r"\s+", " ", text)
