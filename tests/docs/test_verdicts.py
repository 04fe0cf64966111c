"""Every number of docs/verdicts.md is computed again from the file that stands beside it, by slow sums."""

import json
import math
import re
import statistics
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from scripts.tables import evidence, numbers, verdicts
from scripts.tables.claim import Claim
from scripts.tables.claim_figures import figure_of
from scripts.tables.evidence import Evidence
from scripts.tables.judged import (
    by_encoder,
    cure_verdict,
    gain,
    gain_verdict,
    no_loss_verdict,
    ratio_verdict,
    sooner_verdict,
)
from scripts.tables.scores import cases, unknown_share
from scripts.tables.verdicts import claims
from tests.docs.documents import ROOT, rows_of

PAGE = (ROOT / "docs" / "verdicts.md").read_text(encoding="utf-8")
SECTIONS = {part.splitlines()[0]: part for part in re.split(r"^### ", PAGE, flags=re.M)[1:]}
EVIDENCE = [
    (title, row)
    for title, part in SECTIONS.items()
    for row in rows_of("\n".join(line for line in part.splitlines() if line.startswith("|")) or "||\n||")
]
NUMBER = re.compile(r"[+−-]?\d+\.\d+")


@cache
def read(name: str) -> Any:
    return json.loads((ROOT / "results" / name).read_text(encoding="utf-8"))


def alive(name: str) -> dict[int, float]:
    """Last scores of the seeds of a pruning arm that give more than one answer."""
    seeds = read("gpu.json")[name]["seeds"]
    return {s["seed"]: s["last_score"] for s in seeds if "every prediction is" not in (s["diverged"] or "")}


def interval(values: list[float]) -> list[float]:
    """Mean, low and high end."""
    mean = statistics.fmean(values)
    half = stats.t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
    return [mean, mean - half, mean + half]


def welch(one: list[float], other: list[float]) -> list[float]:
    """Difference of means, low and high end; degrees of freedom are whole, as in a printed table of t."""
    test = stats.ttest_ind(one, other, equal_var=False)
    mean = statistics.fmean(one) - statistics.fmean(other)
    error = (statistics.variance(one) / len(one) + statistics.variance(other) / len(other)) ** 0.5
    half = stats.t.ppf(0.975, max(1, int(test.df))) * error
    return [mean, mean - half, mean + half]


def semantic(case: str, plain_case: str) -> list[float]:
    tasks = ("tense", "subject-number", "object-number", "coordination-inversion")
    runs = read("probing-gpu.json")["finetuned"]
    gains: dict[int, list[float]] = {}
    for task in tasks:
        plain = {run["seed"]: run["last_score"] for run in runs[plain_case or case][f"{task}-plain"]}
        for run in runs[case][f"{task}-mix"]:
            gains.setdefault(run["seed"], []).append(run["last_score"] - plain[run["seed"]])
    return [statistics.fmean(of_seed) for of_seed in gains.values()]


def grid_cell(name: str, key: str = "last") -> list[float]:
    encoder, task, method, mix = name.split("/")
    return [
        row[key]
        for row in read("grid.json")
        if (row["encoder"], row["task"], row["method"], row["mix"]) == (encoder, task, method, mix == "mix")
        and not row["dead"]
    ]


def expected(source: str) -> list[float]:
    """The mean and the ends of its interval that a source stands for; nothing where no seed lives."""
    file, _, name = source.partition(": ")
    one, _, other = name.partition(" − ")
    if file == "mix-cuda.json":
        return [read(file)["ways"]["text, mix streaming"][name]]
    if name.startswith("kept "):
        plain, mix = (grid_cell(cell, "density") for cell in name.removeprefix("kept ").split(" ÷ "))
        return [math.exp(end) for end in welch(*([math.log(share) for share in arm] for arm in (plain, mix)))]
    if file == "grid.json" and other:
        return welch(grid_cell(one), grid_cell(other))
    if file == "grid.json":
        values = grid_cell(name)
    elif file == "probing-gpu.json" and "/" in name:
        case, _, arm = name.partition("/")
        runs = read(file)["finetuned"][case][arm]
        values = [run["last_score"] for run in runs if run["diverged"] is None]
    elif file == "probing-gpu.json":
        values = semantic(one, other)
    elif file == "core-gpu.json":
        runs = {(r["arm"], r["seed"]): r["last_score"] for r in read(file)["runs"] if r["task"] == name}
        values = [score - runs["plain", seed] for (arm, seed), score in runs.items() if arm == "mix"]
    elif other:
        both = alive(one), alive(other)
        values = [both[0][seed] - both[1][seed] for seed in both[0].keys() & both[1].keys()]
    else:
        values = list(alive(name).values())
    return interval(values) if len(values) > 1 else values


@pytest.mark.parametrize(("title", "row"), EVIDENCE, ids=[row["from"].strip("`") for _, row in EVIDENCE])
def test_a_printed_number_is_that_of_its_file(title: str, row: dict[str, str]) -> None:
    source = row["from"].strip("`")
    shown = [float(text.replace("−", "-")) for text in NUMBER.findall(row["mean (95 % interval)"])]
    wanted = expected(source)
    assert len(shown) == len(wanted), f"{title}: {source}"
    assert shown == pytest.approx(wanted, abs=0.00501), f"{title}: {source}"


def test_how_many_seeds_live_is_counted_by_their_answers() -> None:
    for _, row in EVIDENCE:
        name = row["from"].strip("`").removeprefix("gpu.json: ")
        if row["from"].startswith("`gpu.json") and " − " not in name:
            assert row["n"] == f"{len(alive(name))} of {len(read('gpu.json')[name]['seeds'])} live"


@pytest.mark.parametrize("claim", claims(), ids=lambda claim: claim.title)
def test_a_claim_has_a_verdict_a_command_and_no_number_of_its_own(claim: Claim) -> None:
    assert claim.verdict
    assert claim.command
    assert claim.evidence or claim.verdict == "not judged"
    known = " ".join(one.value for one in claim.evidence) + claim.paper
    known += f"{0.05 * len(claim.evidence):.1f}"
    known += " ".join(f"{unknown_share(case):.1f}" for case in cases("wrong"))
    for number in NUMBER.findall(claim.sentence):
        assert number in known, f"{claim.title}: {number} is in no table beside it"


def test_the_comparisons_of_methods_are_counted() -> None:
    names = read("gpu.json")
    pairs = [
        (f"{folder}/{method}-mix", f"{folder}/{method}-plain")
        for folder in ("methods", "rte", "mrpc")
        for method in ("magnitude", "score", "size", "soft", "l0")
    ]
    both = [(a, b) for a, b in pairs if a in names and len(alive(a).keys() & alive(b).keys()) > 1]
    assert len(verdicts.method_gaps()) == len(both)
    (claim,) = [claim for claim in claims() if claim.title == "The mix serves every pruning method"]
    assert claim.evidence[: len(both)] == verdicts.method_gaps()
    assert f"Of {len(claim.evidence)} comparisons" in claim.sentence
    assert all(one.interval for one in claim.evidence)


def gap(low: float, high: float, encoder: str = "e") -> Evidence:
    return Evidence(encoder=encoder, what="w", value="", n="", source="", interval=(low, high))


def test_a_gain_is_judged_by_its_intervals() -> None:
    assert gain_verdict([gap(0.1, 0.9), gap(0.2, 0.5)], 2.0) == "holds"
    assert gain_verdict([gap(-0.1, 0.9), gap(-0.2, 0.5)], 2.0) == "does not hold"
    assert gain_verdict([gap(-0.1, 2.9), gap(-0.2, 0.5)], 2.0) == "not shown"


def test_a_claim_s_figure_shows_its_rows_with_their_intervals_and_the_paper_s_number() -> None:
    rows = (
        Evidence(
            encoder="one", what="A, mix − plain", value="−0.50 (…)", n="", source="", interval=(-1.0, 0.0)
        ),
        Evidence(
            encoder="two", what="B, mix − plain", value="+0.25 (…)", n="", source="", interval=(0.0, 0.5)
        ),
        Evidence(encoder="two", what="C, one pair", value="+9.00", n="", source=""),
    )
    claim = Claim(
        title="t",
        paper="",
        verdict="",
        sentence="",
        command="",
        evidence=rows,
        unit="points",
        paper_value=2.0,
    )
    figure = figure_of(claim)
    assert figure.names == ("A", "B")
    assert figure.series == {"one": (-0.5, None), "two": (None, 0.25), "the paper": (2.0, 2.0)}
    assert figure.errors["one"][0] == (-1.0, 0.0)
    assert math.isnan(figure.errors["two"][0][0])


def test_names_under_a_figure_are_short() -> None:
    what = "SST-2, 20,000 rows, 1 epoch, movement by sensitivity, mix − plain"
    row = Evidence(encoder="one", what=what, value="−0.50 (…)", n="", source="", interval=(-1.0, 0.0))
    claim = Claim(title="t", paper="", verdict="", sentence="", command="", evidence=(row,))
    assert figure_of(claim).names == ("SST-2 part, 1 epoch, by sensitivity",)


def test_every_claim_that_compares_scores_has_a_figure() -> None:
    without = [claim.title for claim in claims() if not claim.figure]
    assert without == ["All layers' activations must be kept at inference"]
    assert all((ROOT / "results" / claim.figure).exists() for claim in claims() if claim.figure)


def test_encoders_that_disagree_make_a_verdict_that_depends() -> None:
    good, bad, open_ = gap(0.1, 0.9, "one"), gap(-0.1, 0.9, "two"), gap(-0.1, 2.9, "three")
    assert by_encoder([good, gap(0.3, 0.4, "two")], gain(2.0)) == "holds"
    assert by_encoder([good, bad], gain(2.0)) == "depends on the encoder: holds on one; does not hold on two"
    assert by_encoder([open_, bad], gain(2.0)) == "not shown on three; does not hold on two"


def test_about_as_good_counts_what_is_worse_and_allows_for_chance_among_many() -> None:
    same, worse, better = gap(-0.1, 0.2), gap(-0.5, -0.1), gap(0.1, 0.2)
    assert no_loss_verdict([same, same]) == "holds: no difference shown"
    assert no_loss_verdict([same, better]) == "holds: 1 better of 2 comparisons"
    assert no_loss_verdict([same, worse, better]) == "holds in part: 1 worse, 1 better of 3 comparisons"
    assert no_loss_verdict([worse]) == "holds in part: 1 worse of 1 comparisons"
    assert no_loss_verdict([gap(-2.0, -1.0)]) == "does not hold"
    assert no_loss_verdict([worse, *[same] * 9]) == "holds: no difference shown"


def test_fewer_epochs_are_judged_by_lengths_at_which_the_mix_is_ahead_less_those_of_chance() -> None:
    same, ahead = gap(-0.1, 0.2), gap(0.1, 0.2)
    assert sooner_verdict([same, same]) == "not shown"
    assert sooner_verdict([same, ahead]) == "shown at 1 of 2 lengths of training"
    assert sooner_verdict([ahead, *[same] * 9]) == "not shown"


def test_fewer_weights_are_judged_by_the_paper_s_own_ratio() -> None:
    assert ratio_verdict([gap(1.2, 1.4)], 1.1, 1.29) == "holds"
    assert ratio_verdict([gap(0.9, 1.1)], 1.1, 1.29) == "does not hold"
    assert ratio_verdict([gap(0.9, 1.3)], 1.1, 1.29) == "not shown"


def test_the_mix_is_a_cure_only_where_a_plain_seed_died() -> None:
    def seeds(what: str, dead: int, encoder: str = "base") -> Evidence:
        return Evidence(encoder=encoder, what=what, value="", n="", source="", dead=dead)

    lives = [seeds("by sensitivity, plain", 0), seeds("by sensitivity, mix", 0)]
    died = [seeds("by size, plain", 2), seeds("by size, mix", 0)]
    assert cure_verdict(lives) == "does not hold"
    assert cure_verdict(died) == "holds"
    assert cure_verdict([*lives, *died]) == (
        "depends on the ranking and the rate: the mix is needed on base (by size), not elsewhere"
    )


def test_another_encoder_in_the_grid_changes_the_verdicts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        {
            "encoder": "base",
            "task": "SST-2, 20,000 rows",
            "method": method,
            "mix": is_mix,
            "seed": seed,
            "score": 88.0 + seed,
            "last": 50.9 if is_dead else 88.0 + seed + is_mix,
            "dead": is_dead,
            "density": 0.1,
            "dense": False,
            "device": "a card",
        }
        for method, is_mix, is_dead in (
            ("score", False, False),
            ("score", True, False),
            ("size", False, True),
            ("size", True, False),
            ("size-taught", False, False),
            ("size-taught", True, False),
        )
        for seed in range(3)
    ]
    (tmp_path / "grid.json").write_text(json.dumps(rows), encoding="utf-8")
    monkeypatch.setattr(evidence, "RESULTS", tmp_path)
    monkeypatch.setattr(evidence, "read", lambda name: rows if name == "grid.json" else numbers.read(name))
    known = {claim.title: claim for claim in claims()}
    kills = known["Movement pruning to 10 % kills BERT and not BERMo"]
    assert kills.verdict == "depends on the encoder: holds on gte-small, not on base"
    cure = known["The mix is what makes pruning stable"]
    assert cure.verdict.startswith("depends on the ranking and the rate: the mix is needed on base (movement")
    assert [one.n for one in cure.evidence if one.encoder == "base"] == ["0 of 3 live", "3 of 3 live"]
    taught = known["Taught, the mix is as good as the plain encoder"]
    assert taught.evidence[0].value.startswith("+1.00 (")
    assert taught.verdict == "holds: no difference shown"
