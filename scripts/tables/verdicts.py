"""The paper's claims, one by one: what it says, what was measured, the verdict that follows, and the command.

Verdicts follow from the numbers beside them (scripts/tables/judged.py), so that another encoder in
results/grid.json or results/probing-gpu.json can change one.
"""

from collections.abc import Sequence

from scripts.tables.claim import Claim, section
from scripts.tables.contrasts import Contrast, of_arms, of_box, of_grid, over_tasks, rows_of
from scripts.tables.evidence import (
    Evidence,
    arm,
    cell_evidence,
    core_pairs,
    kept_ratios,
    matthews,
    measured_grid,
    mix_gaps,
    paired_arms,
    teacher_gains,
)
from scripts.tables.grid import STARTS, Arm, Grid, Place
from scripts.tables.judged import (
    CHANCE,
    by_encoder,
    cure_verdict,
    differing,
    encoders,
    gain,
    listed,
    no_loss_verdict,
    over_encoders,
    ratio_verdict,
    seeds_verdict,
    sooner_verdict,
)
from scripts.tables.numbers import read, table
from scripts.tables.probing_claims import probing, unknown_words, word_content
from scripts.tables.pruning import whole_epochs

METHODS = {
    "magnitude": "magnitude",
    "score": "by score",
    "size": "by size",
    "soft": "soft movement",
    "l0": "L0",
}
FOLDERS = {"SST-2": "methods", "RTE": "rte", "MRPC": "mrpc"}
QUEUE = "benchmarks/gpu_queue.sh MODEL DATA OUT"
BOX = (
    "bermo run gpu/stability model.backbone=box data.folder=DATA/sst2 data.limit=10000 --seeds 9, \\\n"
    "    train.epochs=3 train.lr=3e-4 train.precision=fp32 train.together=1 train.device=cpu \\\n"
    "    --out OUT/box --arms"
)
GRID = "python benchmarks/grid.py MODELS DATA OUT --only"
SST2_PART = "SST-2, 20,000 rows"
LENGTHS = (f"{SST2_PART}, 1 epoch", f"{SST2_PART}, 2 epochs", SST2_PART)
"""The grid's tasks of Figure 5: one epoch, two, three."""
LEAST_RATIO = 1.1
"""Keeping fewer weights by less is no gain that the paper would have shown."""
PAPER_RATIOS = {"soft movement": 1.29, "L0": 1.4}
PAPER_DEAD = 0.8
"""Share of the paper's plain seeds that die at 10 %."""
LONG = 25
"""Epochs of the paper's stability experiment."""
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
        probing(), unknown_words(), word_content(), _dense(), _stability(), _cure(), _convergence(),
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


def _stability() -> Claim:
    done = whole_epochs("long/plain")
    is_early = done < LONG
    early = (
        f" The plain trainings of {LONG} epochs were ended after epoch {done}, at the third evaluation in a"
        " row with one answer to everything; whether one would have come back is not known."
    )
    part = of_grid(measured_grid(), SST2_PART, ("score",))
    known = (
        of_arms(f"SST-2, {LONG} epochs", "long/", ended=f", ended after {done}" if is_early else ""),
        of_arms("SST-2, 3 epochs", "score/score"),
        of_arms("MRPC, 10 epochs", "mrpc/score"),
        of_arms("RTE, 10 epochs", "rte/score"),
        of_box("SST-2, 10,000 rows", "score"),
        *part,
    )
    return Claim(
        title="Movement pruning to 10 % kills BERT and not BERMo",
        paper="2 of 10 seeds live, against 10 of 10 at 86.87 (Table 3)",
        verdict=seeds_verdict(known, PAPER_DEAD),
        sentence="Ranked by the score as in the paper, whose task is SST-2; MRPC and RTE go beyond it. The"
        " box on 10,000 rows has its first weights and a rate of 3e-4."
        + (early if is_early else "")
        + over_encoders(part)
        + " On MRPC one answer for everything has the higher score, as F1 is half of it; Matthews, which is 0"
        " for one answer, tells who has learned. On RTE the mixed seeds that live have learned next to"
        " nothing.",
        command=f"ONLY='long|score|mrpc|rte' {QUEUE}\n{GRID} sst2k-score\n{BOX} score-plain,score-mix",
        evidence=(*rows_of(known), *_chance_corrected("score")),
        figure="gpu-stability-score.svg",
    )


def _cure() -> Claim:
    as_the_paper = of_grid(measured_grid(), "sst2", ("size", *STARTS))
    known = (
        of_arms("SST-2, by size · σ(score), 10 epochs", "stability/size"),
        of_arms("MRPC, by size · σ(score), 10 epochs", "mrpc/size"),
        of_arms("RTE, by size · σ(score), 10 epochs", "rte/size"),
        of_box("SST-2, 10,000 rows, by size · σ(score)", "size"),
        *of_grid(measured_grid(), SST2_PART, ("size", "sensitivity", *STARTS)),
        *over_tasks(measured_grid(), "sensitivity"),
        *as_the_paper,
    )
    starts = large_plain_starts(measured_grid())
    return Claim(
        title="The mix is what makes pruning stable",
        paper="the only cure that is shown",
        verdict=cure_verdict(known, PAPER_DEAD),
        sentence="Another ranking is a cure as well: by sensitivity, the default, every plain seed lives."
        + _lone_deaths(known)
        + _what_kills(),
        command=f"ONLY='stability|mrpc|rte' {QUEUE}\n{GRID} 'sensitivity|sst2k-size|mpnet-sst2-size'"
        f"\n{BOX} size-plain,size-mix",
        evidence=(*rows_of(known), *_chance_corrected("size"), *starts.values()),
        figure="gpu-stability-size.svg",
    )


def _chance_corrected(ranking: str) -> tuple[Evidence, ...]:
    """Matthews' correlation where the task's own score hides that a model gives one answer."""
    return tuple(
        matthews(f"{task}, by {ranking}, {form}", f"{task.lower()}/{ranking}-{form}")
        for task in ("MRPC", "RTE")
        for form in ("plain", "mix")
    )


def large_plain_starts(known: Grid | None) -> dict[str, Evidence]:
    """Return the plain arms of mpnet-base on all of SST-2 that start otherwise and have no mix beside."""
    arms = _large_starts(known)
    return {name: arms[name, False] for name in STARTS if (name, False) in arms and (name, True) not in arms}


def _large_starts(known: Grid | None) -> dict[tuple[str, bool], Evidence]:
    return {
        (cell.arm.method, cell.arm.mix): cell_evidence("mpnet-base", "sst2", cell)
        for place in (known.of("mpnet-base") if known else ())
        if place.task == "sst2"
        for cell in place.pruned
        if cell.arm.method in STARTS
    }


def _what_kills() -> str:
    """Say from which start a plain mpnet-base dies by size."""
    counts = {
        arm: f"{one.num_seeds - one.dead} of {one.num_seeds}"
        for arm, one in _large_starts(measured_grid()).items()
    }
    if not {("size-random", True), *((name, False) for name in STARTS)} <= counts.keys():
        return ""
    return (
        " By |weight| · σ(score) a plain mpnet-base, on all of SST-2 and at the paper's rate of 3e-5, lives"
        f" from a random head ({counts['size-head', False]} seeds) and with frozen embeddings"
        f" ({counts['size-frozen', False]}); from the paper's start, which has both,"
        f" {counts['size-random', False]} live, and {counts['size-random', True]} mixed ones."
    )


def _lone_deaths(known: Sequence[Contrast]) -> str:
    """Name the trainings in which a plain seed died and no mixed one, but no more than chance gives."""
    lone = [one for one in known if one.chance > CHANCE and one.plain.dead and not one.mix.dead]
    counts = [
        f"{one.plain.dead} of {one.plain.num_seeds} plain seeds of {one.encoder} ({one.case}) died and none"
        f" of {one.mix.num_seeds} mixed ones"
        for one in lone
    ]
    return f" By chance or not, {listed(counts)}." if counts else ""


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
