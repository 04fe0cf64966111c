"""The paper's claims, one by one: what it says, what was measured, the verdict that follows, and the command.

Verdicts follow from the numbers beside them (scripts/tables/judged.py), so that another encoder in
results/grid.json or results/probing-gpu.json can change one.
"""

from scripts.tables.claim import GRID, QUEUE, SST2_PART, Claim, section
from scripts.tables.contrasts import of_arms, of_grid, rows_of
from scripts.tables.evidence import (
    Evidence,
    arm,
    core_pairs,
    kept_ratios,
    measured_grid,
    mix_gaps,
    paired_arms,
    teacher_gains,
)
from scripts.tables.grid import STARTS, Arm, Place
from scripts.tables.judged import (
    by_encoder,
    differing,
    encoders,
    gain,
    listed,
    no_loss_verdict,
    ratio_verdict,
    sooner_verdict,
)
from scripts.tables.numbers import read, table
from scripts.tables.probing_claims import probing, unknown_words, word_content
from scripts.tables.survival_claims import cure, stability

METHODS = {
    "magnitude": "magnitude",
    "score": "by score",
    "size": "by size",
    "soft": "soft movement",
    "l0": "L0",
}
FOLDERS = {"SST-2": "methods", "RTE": "rte", "MRPC": "mrpc"}
LENGTHS = (f"{SST2_PART}, 1 epoch", f"{SST2_PART}, 2 epochs", SST2_PART)
"""The grid's tasks of Figure 5: one epoch, two, three."""
LEAST_RATIO = 1.1
"""Keeping fewer weights by less is no gain that the paper would have shown."""
PAPER_RATIOS = {"soft movement": 1.29, "L0": 1.4}
FEW_KEPT = 0.5
"""A penalty that leaves more than this has not had the steps to be judged."""


def summary() -> str:
    """One line a claim."""
    rows = [
        [str(k), claim.title, claim.paper, ", ".join(encoders(claim.evidence)), claim.verdict]
        for k, claim in enumerate(claims(), 1)
    ]
    return table(["", "the claim", "the paper", "measured on", "verdict"], rows)


def details() -> str:
    """A section a claim: figure, numbers, sentence, command."""
    return "\n\n".join(section(k, claim) for k, claim in enumerate(claims(), 1))


def claims() -> list[Claim]:
    """Every claim in the paper's order."""
    return [
        probing(), unknown_words(), word_content(), _dense(), stability(), cure(), _convergence(),
        _methods(), _fewer_weights(), _teacher(), _taught_mix(), _memory(),
    ]  # fmt: skip


def _dense() -> Claim:
    arms = {
        "SST-2": ("dense/mix", "dense/plain"),
        "RTE": ("rte/mix", "rte/plain"),
        "MRPC": ("mrpc/mix", "mrpc/plain"),
    }
    known = filter(None, (paired_arms(f"{task}, mix − plain", *both) for task, both in arms.items()))
    rows = (*known, *core_pairs(), *mix_gaps(measured_grid(), lambda _, one: one.dense))
    return Claim(
        title="Dense, the mix is about as good",
        paper="−0.5 to +0.7, one run a task (Table 2)",
        verdict=by_encoder(rows, no_loss_verdict),
        sentence="Three epochs on SST-2 and CoNLL-2003, two on SQuAD, ten on RTE and MRPC.",
        command=f"ONLY='dense|rte|mrpc' {QUEUE}\nbenchmarks/core_gpu.sh MODEL DATA OUT\n{GRID} dense",
        evidence=rows,
        figure="verdict-dense.svg",
        unit="mix − plain, points",
    )


def _convergence() -> Claim:
    lengths = {1: "epochs/1-epochs", 2: "epochs/2-epochs", 3: "methods/size", 10: "stability/size"}
    known = measured_grid()
    by_size = (
        paired_arms(f"by size, epochs: {n}, mix − plain", f"{a}-mix", f"{a}-plain")
        for n, a in lengths.items()
    )
    gaps = (*filter(None, by_size), *mix_gaps(known, _is_of_figure_5))
    by_score = (
        of_arms("SST-2, by score, 3 epochs", "score/score"),
        *(one for task in LENGTHS for one in of_grid(known, task, ("score",))),
    )
    alone = [f"{one.encoder} ({one.data})" for one in by_score if one.plain.num_seeds - one.plain.dead < 2]
    dead = (
        " By the score, the paper's own ranking, means are compared where two plain seeds live; on"
        f" {listed(alone)} fewer do."
    )
    return Claim(
        title="The mix needs fewer epochs to the same score at 10 %",
        paper="1.67 × fewer on MNLI, 1.15 × on QQP, 1 × on SQuAD (Figure 5)",
        verdict=by_encoder(gaps, sooner_verdict),
        sentence="SST-2; its part in the grid, 20,000 rows, has three epochs unless another number is named."
        f"{dead if alone else ''} MNLI was not run.",
        command=f"ONLY='epochs|methods|stability|score' {QUEUE}\n{GRID} 'sst2k[12]?-(sensitivity|score)'",
        evidence=(*gaps, *rows_of(by_score)),
        figure="verdict-epochs.svg",
        unit="mix − plain, points",
    )


def _is_of_figure_5(place: Place, one: Arm) -> bool:
    return place.task in LENGTHS and one.method in ("sensitivity", "score")


def _is_of_table_4(place: Place, one: Arm) -> bool:
    return one.is_rival and not one.dense and one.method not in STARTS and place.task not in LENGTHS[:2]


def method_gaps() -> tuple[Evidence, ...]:
    """Mix − plain of every method and task that has a pair of living seeds."""
    rows = (
        paired_arms(f"{task}, {words}, mix − plain", f"{folder}/{method}-mix", f"{folder}/{method}-plain")
        for task, folder in FOLDERS.items()
        for method, words in METHODS.items()
        if f"{folder}/{method}-mix" in read("gpu.json")
    )
    return tuple(one for one in rows if one is not None and one.interval is not None)


def _left_out() -> str:
    """Name the methods of which too few seeds live both ways to compare them."""
    shown = {one.what for one in method_gaps()}
    names = [
        f"{task} by {words.removeprefix('by ')}"
        for task, folder in FOLDERS.items()
        for method, words in METHODS.items()
        if f"{folder}/{method}-mix" in read("gpu.json") and f"{task}, {words}, mix − plain" not in shown
    ]
    return f" Fewer than two seeds live both ways, on gte-small, on {listed(names)}." if names else ""


def _methods() -> Claim:
    rows = (*method_gaps(), *mix_gaps(measured_grid(), _is_of_table_4))
    named = "; ".join(
        f"{one.encoder}, {one.what.removesuffix(', mix − plain')}: {one.value}" for one in differing(rows)
    )
    count = len(differing(rows))
    have = "has" if count == 1 else "have"
    return Claim(
        title="The mix serves every pruning method",
        paper="−0.9 to +0.3 at about the same density, one run each (Table 4)",
        verdict=by_encoder(rows, no_loss_verdict),
        sentence=f"Of {len(rows)} comparisons {count} {have} an interval without 0 ({named});"
        f" by chance {0.05 * len(rows):.1f} would.{_left_out()}",
        command=f"ONLY='methods|rte|mrpc' {QUEUE}\n{GRID} '(sensitivity|size|soft|magnitude|l0)(-plain)?\\.'",
        evidence=rows,
        figure="verdict-methods.svg",
        unit="mix − plain, points",
    )


def _fewer_weights() -> Claim:
    known = kept_ratios(measured_grid())
    rows = tuple(one for one, _ in known)
    judged = [one for one, share in known if share < FEW_KEPT]
    least = min(PAPER_RATIOS.values())
    verdict = by_encoder(judged, lambda own: ratio_verdict(own, LEAST_RATIO, least)) if judged else ""
    short = (
        "The paper's penalties, three epochs on a part of QQP: 2,000 steps, where the paper has 113,700, so"
        " that most weights are still there. Whether the gap grows with the training is not known."
    )
    long = (
        "Three epochs on a part of QQP: 2,000 steps, where the paper has 113,700, so that at its penalties"
        " most weights are still there. Judged are trainings at stronger ones, after which less than half"
        " is kept."
    )
    return Claim(
        title="At one penalty the mix keeps fewer weights",
        paper="1.29 × fewer by soft movement, 1.4 × by L0, on QQP (Table 4)",
        verdict=verdict or ("not shown" if rows else "not judged"),
        sentence=long if judged else short,
        command=f"{GRID} qqp.*-penalty",
        evidence=rows,
        figure="verdict-fewer-weights.svg",
        unit="weights kept by plain ÷ by the mix",
        paper_values=PAPER_RATIOS,
    )


def _teacher() -> Claim:
    first = paired_arms("SST-2, mix, by size: taught − untaught", "taught/mix", "stability/size-mix")
    assert first is not None
    gains = (first, *teacher_gains(measured_grid()))
    return Claim(
        title="A teacher helps the pruned mix",
        paper="+0.8 (MNLI), +0.5 (QQP), +2.6 (SQuAD), one run each (Table 5)",
        verdict=by_encoder(gains, gain(0.0)),
        sentence="At 10 %: by size ten epochs, by sensitivity three; the teacher is the dense plain encoder"
        " of the same data.",
        command=f"ONLY='taught|stability' {QUEUE}\n{GRID} 'sst2.*-(teacher|taught|sensitivity)\\.'",
        evidence=(*gains, arm("mix, untaught", "stability/size-mix"), arm("mix, taught", "taught/mix")),
        figure="verdict-teacher.svg",
        unit="taught − untaught, points",
    )


def _taught_mix() -> Claim:
    has_both = "taught/plain" in read("gpu.json")
    first = paired_arms("SST-2, by size, mix − plain", "taught/mix", "taught/plain") if has_both else None
    rows = (*filter(None, (first,)), *mix_gaps(measured_grid(), lambda _, one: one.is_taught))
    return Claim(
        title="Taught, the mix is as good as the plain encoder",
        paper="comparable, a little better on SQuAD (Table 5)",
        verdict=by_encoder(rows, no_loss_verdict) if rows else "not judged",
        sentence="Pruned to 10 %.",
        command=f"ONLY=taught {QUEUE}\n{GRID} 'sst2.*-(teacher|taught)'",
        evidence=rows,
        figure="verdict-taught-mix.svg",
        unit="mix − plain, both taught, points",
    )


def _memory() -> Claim:
    mix_bench = read("mix-cuda.json")
    mix = mix_bench["ways"]["text, mix streaming"]
    rows = tuple(
        Evidence(
            encoder="BERT-base's shape",
            what=f"{what} of the plain encoder's, text heads",
            value=f"{mix[key]:.3f} ×",
            n=f"median of {mix_bench['rounds']} rounds",
            source=f"mix-cuda.json: {key}",
        )
        for what, key in (("peak memory", "memory_ratio"), ("time", "time_ratio"))
    )
    return Claim(
        title="All layers' activations must be kept at inference",
        paper="its stated limitation",
        verdict="gone",
        sentence="Three running sums give the same mix.",
        command="python benchmarks/mix.py --device cuda",
        evidence=rows,
    )
