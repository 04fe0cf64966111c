"""The paper's claims, one by one: what it says, what was measured, the verdict that follows, and the command.

Verdicts follow from the numbers beside them, so that another encoder in results/grid.json can change one:

    a gain is claimed      every interval above 0: holds; every one below the claim: does not; else not shown
    no loss is claimed     every interval holds 0: holds
    seeds are claimed      the same on every encoder: holds or does not; else it depends on the encoder
"""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from scripts.tables.evidence import (
    Evidence,
    arm,
    evidence_table,
    fine_tuned,
    kept_ratios,
    measured_grid,
    of_grid,
    paired_arms,
    semantic,
    taught_gaps,
    teacher_gains,
)
from scripts.tables.numbers import read, table
from scripts.tables.scores import PAPER_GAIN, unknown_share

METHODS = {
    "magnitude": "magnitude",
    "score": "by score",
    "size": "by size",
    "soft": "soft movement",
    "l0": "L0",
}
FOLDERS = {"SST-2": "methods", "RTE": "rte", "MRPC": "mrpc"}
QUEUE = "benchmarks/gpu_queue.sh MODEL DATA OUT"
GRID = "python benchmarks/grid.py MODELS DATA OUT --only"
SST2_PART = "SST-2, 20,000 rows"
LEAST_RATIO = 1.1
"""Keeping fewer weights by less than this is no gain that the paper would have shown."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim of the paper and what became of it."""

    title: str
    paper: str
    verdict: str
    sentence: str
    command: str
    evidence: tuple[Evidence, ...] = ()
    figure: str = ""


def summary() -> str:
    """One line a claim."""
    rows = [[str(k), claim.title, claim.paper, claim.verdict] for k, claim in enumerate(claims(), 1)]
    return table(["", "the claim", "the paper", "verdict"], rows)


def details() -> str:
    """A section a claim: figure, numbers, sentence, command."""
    return "\n\n".join(_section(k, claim) for k, claim in enumerate(claims(), 1))


def _section(number: int, claim: Claim) -> str:
    said = f"The paper: {claim.paper}. **Verdict: {claim.verdict}.** {claim.sentence}".strip()
    parts = [f"### {number}. {claim.title}", textwrap.fill(said, 119, break_on_hyphens=False)]
    parts += [f"![{claim.title}](../results/{claim.figure})"] if claim.figure else []
    parts += [evidence_table(claim.evidence)] if claim.evidence else []
    return "\n\n".join([*parts, f"```text\n{claim.command}\n```"])


def claims() -> list[Claim]:
    """Every claim in the paper's order."""
    return [
        _probing(), _unknown_words(), _word_content(), _dense(), _stability(), _cure(), _convergence(),
        _methods(), _fewer_weights(), _teacher(), _taught_mix(), _memory(),
    ]  # fmt: skip


def gain_verdict(rows: Sequence[Evidence], claim: float) -> str:
    """Judge a claimed gain by the intervals."""
    known = [one.interval for one in rows if one.interval]
    if all(low > 0 for low, _ in known):
        return "holds"
    return "does not hold" if all(low <= 0 and high < claim for low, high in known) else "not shown"


def gains_by_encoder(rows: Sequence[Evidence]) -> str:
    """Judge a gain for each encoder: one word where they agree, else which says what."""
    judged = {
        name: gain_verdict([one for one in rows if one.encoder == name], 0.0) for name in _encoders(rows)
    }
    if len(set(judged.values())) == 1:
        return next(iter(judged.values()))
    return "; ".join(f"{word} on {name}" for name, word in judged.items())


def no_loss_verdict(rows: Sequence[Evidence]) -> str:
    """Judge the claim that the mix is about as good."""
    known = [one.interval for one in rows if one.interval]
    is_equal = all(low <= 0 <= high for low, high in known)
    return "holds: no difference shown" if is_equal else "holds in part"


def _differing(rows: Sequence[Evidence]) -> list[Evidence]:
    return [one for one in rows if one.interval and not one.interval[0] <= 0 <= one.interval[1]]


def _probing() -> Claim:
    rows = (semantic("gte-small", "gte-right"), semantic("the box", "box-right"))
    return Claim(
        title="Mixing helps semantic probing, fine-tuned",
        paper="+2.67 over five tasks, five seeds (Table 1); on the four judged here " + PAPER_GAIN,
        verdict=gain_verdict(rows, float(PAPER_GAIN)),
        sentence="Text in the case of the vocabulary, three epochs. X-Probe's fifth task has doubtful labels"
        " and is not counted.",
        command="benchmarks/probe_gpu.sh MODEL DATA OUT gte-right box-right",
        evidence=rows,
        figure="probing-tuned-mix.svg",
    )


def _unknown_words() -> Claim:
    rows = (semantic("gte-small", "gte-wrong"), semantic("the box", "box-wrong"))
    shares = " and ".join(f"{unknown_share(case):.1f} %" for case in ("gte-wrong", "box-wrong"))
    return Claim(
        title="… and on unknown words, which the paper's text probably had",
        paper="–",
        verdict=gain_verdict(rows, float(PAPER_GAIN)),
        sentence=f"Capitals kept for a vocabulary without them: {shares} of the tokens are unknown.",
        command="benchmarks/probe_gpu.sh MODEL DATA OUT gte-wrong box-wrong",
        evidence=rows,
    )


def _word_content() -> Claim:
    rows = tuple(
        fine_tuned(encoder, mix, f"{case}-right", f"word-content-{mix}")
        for encoder, case in (("gte-small", "gte"), ("the box", "box"))
        for mix in ("plain", "mix")
    )
    return Claim(
        title="On word content plain trainings diverge, mixed ones do not",
        paper="2 of 5 plain seeds diverge (Table 1)",
        verdict="not judged" if not any(one.dead for one in rows) else "does not hold here",
        sentence="Three epochs only: both models have hardly begun to learn the 1,000 words, and the seeds"
        " that are still at guessing are the mix's.",
        command="benchmarks/probe_gpu.sh MODEL DATA OUT gte-right-rest box-right-rest",
        evidence=rows,
    )


def _dense() -> Claim:
    arms = {
        "SST-2": ("dense/mix", "dense/plain"),
        "RTE": ("rte/mix", "rte/plain"),
        "MRPC": ("mrpc/mix", "mrpc/plain"),
    }
    rows = tuple(filter(None, (paired_arms(f"{task}, mix − plain", *both) for task, both in arms.items())))
    return Claim(
        title="Dense, the mix is about as good",
        paper="−0.5 to +0.7, one run a task (Table 2)",
        verdict=no_loss_verdict(rows),
        sentence="Three epochs on SST-2, ten on RTE and MRPC.",
        command=f"ONLY='dense|rte|mrpc' {QUEUE}",
        evidence=rows,
    )


def _seeds_verdict(is_as_claimed: dict[str, bool]) -> str:
    if len(set(is_as_claimed.values())) > 1:
        yes, no = (
            ", ".join(name for name, is_so in is_as_claimed.items() if is_so == want)
            for want in (True, False)
        )
        return f"depends on the encoder: holds on {yes}, not on {no}"
    return "holds" if all(is_as_claimed.values()) else "does not hold"


def _stability() -> Claim:
    rows = (
        arm("plain, 25 epochs, ended in the sixth", "long/plain"),
        arm("mix, 25 epochs", "long/mix"),
        arm("plain, 3 epochs", "score/score-plain"),
        arm("mix, 3 epochs", "score/score-mix"),
        *of_grid(measured_grid(), SST2_PART, ("score",)),
    )
    return Claim(
        title="Movement pruning to 10 % kills BERT and not BERMo",
        paper="2 of 10 seeds live, against 10 of 10 at 86.87 (Table 3)",
        verdict=_seeds_verdict({name: _dies_plain_only(rows, name) for name in _encoders(rows)}),
        sentence="SST-2, ranked by the score as in the paper. The plain trainings of 25 epochs were ended in"
        " the sixth, after three evaluations with one answer to everything; whether one would have come back"
        " is not known.",
        command=f"ONLY='long|score' {QUEUE}",
        evidence=rows,
        figure="gpu-stability-score.svg",
    )


def _encoders(rows: Sequence[Evidence]) -> list[str]:
    return list(dict.fromkeys(one.encoder for one in rows))


def _dies_plain_only(rows: Sequence[Evidence], encoder: str) -> bool:
    own = [one for one in rows if one.encoder == encoder]
    plain, mix = ([one for one in own if ("plain" in one.what) == is_plain] for is_plain in (True, False))
    return any(one.dead for one in plain) and not any(one.dead for one in mix)


def _cure() -> Claim:
    rows = (
        arm("plain, by size · σ(score), 10 epochs", "stability/size-plain"),
        arm("mix, by size · σ(score), 10 epochs", "stability/size-mix"),
        *of_grid(measured_grid(), SST2_PART, ("size", "sensitivity")),
    )
    return Claim(
        title="The mix is what makes pruning stable",
        paper="the only cure that is shown",
        verdict=_seeds_verdict({name: _dies_plain_only(rows, name) for name in _encoders(rows)}),
        sentence="Another ranking is a cure as well: by sensitivity, the default, plain encoders live. By"
        " |weight| · σ(score) plain gte-small lives, but a plain mpnet-base died at a rate of 3e-5 (two"
        " seeds, in no file of results/), and the mix saved it.",
        command=f"ONLY=stability {QUEUE}\n{GRID} 'sst2k-(size|sensitivity)'",
        evidence=rows,
        figure="gpu-stability-size.svg",
    )


def _convergence() -> Claim:
    lengths = {1: "epochs/1-epochs", 2: "epochs/2-epochs", 3: "methods/size", 10: "stability/size"}
    rows = tuple(
        filter(
            None,
            (
                paired_arms(f"by size, epochs: {n}, mix − plain", f"{a}-mix", f"{a}-plain")
                for n, a in lengths.items()
            ),
        )
    )
    return Claim(
        title="The mix needs fewer epochs to the same score at 10 %",
        paper="1.67 × fewer on MNLI, 1.15 × on QQP, 1 × on SQuAD (Figure 5)",
        verdict="not shown" if not _differing(rows) else "shown in part",
        sentence="SST-2. By the score, the paper's own ranking, the plain encoder dies at every length, so"
        " there is nothing to compare; MNLI was not run.",
        command=f"ONLY='epochs|methods|stability' {QUEUE}",
        evidence=rows,
        figure="gpu-epochs.svg",
    )


def method_gaps() -> tuple[Evidence, ...]:
    """Mix − plain of every method and task that has a pair of living seeds."""
    rows = (
        paired_arms(f"{task}, {words}, mix − plain", f"{folder}/{method}-mix", f"{folder}/{method}-plain")
        for task, folder in FOLDERS.items()
        for method, words in METHODS.items()
        if f"{folder}/{method}-mix" in read("gpu.json")
    )
    return tuple(one for one in rows if one is not None and one.interval is not None)


def _methods() -> Claim:
    rows = method_gaps()
    differing = ", ".join(
        f"{one.what.removesuffix(', mix − plain')}: {one.value}" for one in _differing(rows)
    )
    return Claim(
        title="The mix serves every pruning method",
        paper="−0.9 to +0.3 at about the same density, one run each (Table 4)",
        verdict="holds: no difference shown" if len(_differing(rows)) <= 1 else "holds in part",
        sentence=f"Of {len(rows)} comparisons {len(_differing(rows))} differs ({differing}); by chance"
        f" {0.05 * len(rows):.1f} would.",
        command=f"ONLY='methods|rte|mrpc' {QUEUE}",
        evidence=rows,
        figure="gpu-methods.svg",
    )


def _fewer_weights() -> Claim:
    rows = tuple(kept_ratios(measured_grid()))
    ratios = [float(one.value.removesuffix(" ×")) for one in rows]
    is_clear = ratios and min(ratios) >= LEAST_RATIO
    return Claim(
        title="At one penalty the mix keeps fewer weights",
        paper="1.29 × and 1.4 × fewer on QQP, L0 and soft movement (Table 4)",
        verdict="not judged" if not rows else "holds" if is_clear else "not shown",
        sentence="The paper's penalties, three epochs on a part of QQP: 2,000 steps, where the paper has"
        " 113,700, so that most weights are still there. Whether the gap grows with the training is not"
        " known.",
        command=f"{GRID} qqp-.*-penalty",
        evidence=rows,
    )


def _teacher() -> Claim:
    gain = paired_arms("SST-2, mix, by size: taught − untaught", "taught/mix", "stability/size-mix")
    assert gain is not None
    gains = (gain, *teacher_gains(measured_grid()))
    return Claim(
        title="A teacher helps the pruned mix",
        paper="+0.8 (MNLI), +0.5 (QQP), +2.6 (SQuAD), one run each (Table 5)",
        verdict=gains_by_encoder(gains),
        sentence="At 10 %: by size ten epochs, by sensitivity three; the teacher is the dense plain encoder"
        " of the same data.",
        command=f"ONLY='taught|stability' {QUEUE}\n{GRID} 'sst2.*-(teacher|taught|sensitivity)\\.'",
        evidence=(*gains, arm("mix, untaught", "stability/size-mix"), arm("mix, taught", "taught/mix")),
    )


def _taught_mix() -> Claim:
    rows = tuple(taught_gaps(measured_grid()))
    return Claim(
        title="Taught, the mix is as good as the plain encoder",
        paper="comparable, a little better on SQuAD (Table 5)",
        verdict=no_loss_verdict(rows) if rows else "not judged",
        sentence="Pruned to 10 %, means of unpaired seeds.",
        command=f"{GRID} 'gte-sst2k-(teacher|taught)'",
        evidence=rows,
    )


def _memory() -> Claim:
    mix = read("mix-cuda.json")["ways"]["text, mix streaming"]
    rows = tuple(
        Evidence(
            encoder="BERT-base's shape",
            what=f"{what} of the plain encoder's, text heads",
            value=f"{mix[key]:.3f} ×",
            n="1",
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
