"""The paper's claims about which seeds live through pruning."""

from collections.abc import Sequence

from scripts.tables.claim import GRID, QUEUE, SST2_PART, Claim
from scripts.tables.contrasts import Contrast, of_arms, of_box, of_grid, over_tasks, rows_of
from scripts.tables.evidence import Evidence, cell_evidence, matthews, measured_grid
from scripts.tables.grid import STARTS, Grid
from scripts.tables.judged import CHANCE, cure_verdict, listed, over_encoders, seeds_verdict
from scripts.tables.pruning import whole_epochs

BOX = (
    "bermo run gpu/stability model.backbone=box data.folder=DATA/sst2 data.limit=10000 --seeds 9, \\\n"
    "    train.epochs=3 train.lr=3e-4 train.precision=fp32 train.together=1 train.device=cpu \\\n"
    "    --out OUT/box --arms"
)
PAPER_DEAD = 0.8
"""Share of the paper's plain seeds that die at 10 %."""
LONG = 25
"""Epochs of the paper's stability experiment."""


def stability() -> Claim:
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


def cure() -> Claim:
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
