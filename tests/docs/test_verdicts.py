"""Every number of docs/verdicts.md is computed again from the file that stands beside it, by slow sums."""

import json
import math
import re
import shlex
import statistics
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from benchmarks.grid_plan import PLAN
from scripts.tables import evidence, numbers, verdicts
from scripts.tables.claim import Claim
from scripts.tables.claim_figures import figure_of
from scripts.tables.contrasts import Contrast
from scripts.tables.counts import chance_of_more, counted
from scripts.tables.evidence import Evidence
from scripts.tables.judged import (
    by_encoder,
    cure_verdict,
    gain,
    gain_verdict,
    no_loss_verdict,
    over_encoders,
    ratio_verdict,
    seeds_verdict,
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
    for task in (
        task for task in tasks if {f"{task}-plain", f"{task}-mix"} <= {*runs[plain_case or case], *runs[case]}
    ):
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
    if " tasks/" in name:
        return []
    if file == "box-rank-cpu.json":
        return [read(file)[name]["last_score"]]
    if name.startswith("kept "):
        plain, mix = (grid_cell(cell, "density") for cell in name.removeprefix("kept ").split(" ÷ "))
        return [math.exp(end) for end in welch(*([math.log(share) for share in arm] for arm in (plain, mix)))]
    if file == "grid.json" and other:
        return welch(grid_cell(one), grid_cell(other))
    if file == "grid.json":
        values = grid_cell(name)
    elif file == "probing-gpu.json" and "/" in name and other:
        both = [
            {
                run["seed"]: run["last_score"]
                for run in read(file)["finetuned"][case][arm]
                if not run["diverged"]
            }
            for case, _, arm in (part.partition("/") for part in (one, other))
        ]
        values = [both[0][seed] - both[1][seed] for seed in both[0].keys() & both[1].keys()]
    elif file == "probing-gpu.json" and "/" in name:
        case, _, arm = name.partition("/")
        runs = read(file)["finetuned"][case][arm]
        values = [run["last_score"] for run in runs if run["diverged"] is None]
    elif file == "probing-gpu.json":
        values = semantic(one, other)
    elif file == "core-gpu.json":
        runs = {(r["arm"], r["seed"]): r["last_score"] for r in read(file)["runs"] if r["task"] == name}
        values = [score - runs["plain", seed] for (arm, seed), score in runs.items() if arm == "mix"]
    elif name.startswith("matthews "):
        seeds = read(file)[name.removeprefix("matthews ")]["seeds"]
        values = [seed["values"]["matthews"] for seed in seeds]
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


def alive_and_all(source: str) -> tuple[int, int]:
    """Count the seeds of an arm: those whose last evaluation gives more than one answer, and all."""
    file, _, name = source.partition(": ")
    if file == "gpu.json":
        return len(alive(name)), len(read(file)[name]["seeds"])
    if file == "box-rank-cpu.json":
        return int(read(file)[name]["diverged"] is None), 1
    if file == "probing-gpu.json":
        case, _, arm = name.partition("/")
        runs = read(file)["finetuned"][case][arm]
        return sum(run["diverged"] is None for run in runs), len(runs)
    encoder, task, method, form = name.split("/")
    rows = [r for r in read(file) if (r["encoder"], r["method"]) == (encoder, method)]
    both = {r["task"] for r in rows if r["mix"]} & {r["task"] for r in rows if not r["mix"]}
    tasks = both if task.endswith(" tasks") else {task}
    own = [r for r in rows if r["task"] in tasks and r["mix"] == (form == "mix")]
    assert not task.endswith(" tasks") or task == f"{len(tasks)} tasks"
    return sum(not r["dead"] for r in own), len(own)


def test_how_many_seeds_live_is_counted_by_their_answers() -> None:
    arms = [row for _, row in EVIDENCE if " live" in row["n"] or " learn" in row["n"]]
    assert len(arms) > 20
    for row in arms:
        word = "learn" if " learn" in row["n"] else "live"
        assert row["n"] == counted(*alive_and_all(row["from"].strip("`")), word)


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


def test_a_gain_that_is_shown_on_some_data_names_them() -> None:
    def taught(data: str, low: float) -> Evidence:
        what = f"{data}, mix, by size: taught − untaught"
        return Evidence(encoder="e", what=what, value="", n="", source="", interval=(low, 1.0))

    rows = [taught("MRPC", 0.1), taught("SST-2, 20,000 rows", -0.1), taught("RTE", -0.2)]
    others = "SST-2, 20,000 rows, by size and RTE, by size"
    assert gain_verdict(rows, 0.0) == f"depends (shown: MRPC, by size; not shown: {others})"


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
        paper_values={"": 2.0},
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
    assert sooner_verdict([same, ahead]) == "shown in 1 of 2 comparisons"
    assert sooner_verdict([ahead, *[same] * 9]) == "not shown"


def test_fewer_weights_are_judged_by_the_paper_s_own_ratio() -> None:
    assert ratio_verdict([gap(1.2, 1.4)], 1.1, 1.29) == "holds"
    assert ratio_verdict([gap(0.9, 1.1)], 1.1, 1.29) == "does not hold"
    assert ratio_verdict([gap(0.9, 1.3)], 1.1, 1.29) == "not shown"


def contrast(case: str, plain: tuple[int, int], mix: tuple[int, int], encoder: str = "base") -> Contrast:
    """So many dead of so many, plain and mixed."""
    both = (
        Evidence(encoder=encoder, what=case, value="", n="", source="", dead=dead, num_seeds=total)
        for dead, total in (plain, mix)
    )
    return Contrast(case=case, plain=next(both), mix=next(both))


def test_the_mix_is_a_cure_only_where_more_plain_seeds_died_than_chance_gives() -> None:
    lives = contrast("SST-2, by sensitivity", (0, 5), (0, 5))
    died = contrast("SST-2, by size", (3, 3), (0, 3))
    one_died = contrast("MRPC, by size", (1, 5), (0, 5))
    assert cure_verdict([lives], 0.8) == "does not hold"
    assert cure_verdict([died], 0.8) == "holds"
    assert cure_verdict([lives, one_died], 0.8) == "does not hold"
    assert cure_verdict([contrast("by size", (0, 1), (0, 1))], 0.8) == "not shown"
    assert cure_verdict([lives, died], 0.8) == (
        "depends on the ranking and the start: the mix is needed on base (SST-2, by size), not elsewhere"
    )


def test_counts_of_seeds_are_judged_by_what_chance_gives_and_by_the_paper_s_share() -> None:
    killed = contrast("SST-2, 3 epochs", (10, 10), (0, 10))
    alive = contrast("SST-2", (0, 5), (0, 5))
    open_ = contrast("RTE, 10 epochs", (5, 5), (2, 5))
    assert seeds_verdict([killed], 0.8) == "holds"
    assert seeds_verdict([alive], 0.8) == "does not hold"
    assert seeds_verdict([alive], 0.4) == "not shown"
    assert seeds_verdict([killed, open_], 0.8) == "holds on base (SST-2); not shown on base (RTE)"
    other = contrast("SST-2", (0, 3), (0, 3), "wide")
    assert seeds_verdict([killed, other], 0.8) == "depends: holds on base; does not hold on wide"
    part = contrast("SST-2, 20,000 rows, movement by score (the paper's)", (2, 3), (0, 5))
    assert seeds_verdict([killed, open_, part], 0.8) == (
        "holds on base (SST-2); not shown on base (RTE; SST-2, 20,000 rows)"
    )


def test_seeds_of_all_encoders_are_counted_together_where_that_is_more_than_chance() -> None:
    few = [contrast("SST-2", (2, 3), (0, 3), name) for name in ("small", "base", "wide")]
    assert chance_of_more(2, 3, 0, 3) > 0.05
    assert "6 of 9 plain seeds of all encoders die, and none of 9 mixed ones" in over_encoders(few)
    assert over_encoders(few[:1]) == ""
    assert over_encoders([contrast("SST-2", (1, 3), (0, 3), name) for name in "ab"]) == ""


def test_a_command_for_the_grid_names_trainings_that_its_plan_has() -> None:
    planned = {
        f"{encoder}-{task}-{method}."
        for encoders, tasks, methods, *_ in PLAN
        for encoder in encoders.split()
        for task in tasks.split()
        for method in methods.split()
    }
    lines = [line for claim in claims() for line in claim.command.splitlines() if "grid.py" in line]
    assert len(lines) > 5
    for line in lines:
        pattern = shlex.split(line)[-1]
        assert not pattern.startswith("-"), f"{line}: the command would take it for an option"
        assert any(re.search(pattern, name) for name in planned), line


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
    assert kills.verdict == (
        "depends: holds on gte-small (SST-2, MRPC); does not hold on base;"
        " not shown on gte-small (RTE) and the box"
    )
    cure = known["The mix is what makes pruning stable"]
    assert cure.verdict.startswith("depends on the ranking and the start: the mix is needed on base (SST-2")
    counts = [one.n for one in cure.evidence if one.encoder == "base"]
    assert counts == ["0 of 3 live (0 … 71 %)", "3 of 3 live (29 … 100 %)"]
    taught = known["Taught, the mix is as good as the plain encoder"]
    assert taught.evidence[0].value.startswith("+1.00 (")
    assert taught.verdict == "holds: no difference shown"
