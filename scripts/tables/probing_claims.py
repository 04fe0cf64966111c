"""The paper's claims about probing."""

from scripts.tables.claim import Claim
from scripts.tables.contrasts import of_probing, rows_of
from scripts.tables.evidence import fine_tuned_gap, semantic
from scripts.tables.judged import by_encoder, gain, listed, seeds_verdict
from scripts.tables.numbers import read
from scripts.tables.scores import PAPER_GAIN, cases, reading_of, unknown_share

GAIN = "mix − plain, points of test accuracy"
WORD_CONTENT = "word-content"
READINGS = {"within": "of each layer's units (within)", "tensor": "of the whole batch (tensor)"}
PAPER_DIVERGED = 0.4
"""Share of the paper's plain seeds that diverge on word content."""


def probing() -> Claim:
    rows = tuple(semantic(case) for case in cases("right"))
    readings = [READINGS[reading] for case in cases("right") if (reading := reading_of(case))]
    also = (
        f" The paper's norm can be read in three ways: of the layers, the usual one here, {listed(readings)}."
        if readings
        else " The paper's norm can be read in three ways, of which the usual one here, across, was run."
    )
    return Claim(
        title="Mixing helps semantic probing, fine-tuned",
        paper="+2.67 over five tasks, five seeds (Table 1); on the four judged here " + PAPER_GAIN,
        verdict=by_encoder(rows, gain(float(PAPER_GAIN))),
        sentence="Text in the case of the vocabulary, three epochs. X-Probe's fifth task has doubtful labels"
        f" and is not counted.{also}",
        command=f"benchmarks/probe_gpu.sh MODEL DATA OUT {' '.join(cases('right'))}",
        evidence=rows,
        figure="verdict-probing.svg",
        unit=GAIN,
        paper_values={"": float(PAPER_GAIN)},
    )


def unknown_words() -> Claim:
    rows = tuple(semantic(case) for case in cases("wrong"))
    shares = " and ".join(f"{unknown_share(case):.1f} %" for case in cases("wrong"))
    return Claim(
        title="… and on unknown words, which the paper's text probably had",
        paper="says nothing of them",
        verdict=by_encoder(rows, gain(float(PAPER_GAIN))),
        sentence=f"Capitals kept for a vocabulary without them: {shares} of the tokens are unknown.",
        command=f"benchmarks/probe_gpu.sh MODEL DATA OUT {' '.join(cases('wrong'))}",
        evidence=rows,
        figure="verdict-unknown-words.svg",
        unit=GAIN,
        paper_values={"": float(PAPER_GAIN)},
    )


def word_content() -> Claim:
    few = tuple(
        of_probing(case, WORD_CONTENT, "3 epochs") for case in cases("right") if has_word_content(case)
    )
    many = tuple(
        of_probing(case, WORD_CONTENT, "20 epochs") for case in cases("words") if has_word_content(case)
    )
    gaps = [
        fine_tuned_gap("20 epochs", case, WORD_CONTENT) for case in cases("words") if has_word_content(case)
    ]
    judged = many or few
    verdict = seeds_verdict(judged, PAPER_DIVERGED)
    short = "Three epochs only: both models have hardly begun to learn the 1,000 words. "
    still = [
        f"{row.dead} of {row.num_seeds} of {row.encoder} ({row.what})"
        for row in rows_of((*few, *many))
        if row.dead
    ]
    guessing = f" Such seeds: {'; '.join(still)}; no other." if still else ""
    return Claim(
        title="On word content plain trainings diverge, mixed ones do not",
        paper="2 of 5 plain seeds diverge (Table 1)",
        verdict=verdict if many else f"{verdict} after three epochs",
        sentence=f"{'' if many else short}A seed does not learn where its training loss is still that of"
        f" guessing and its answers are no better than one answer to everything.{guessing}",
        command="benchmarks/probe_gpu.sh MODEL DATA OUT gte-right-rest mpnet-right-rest box-right-rest"
        " gte-words box-words",
        evidence=(*rows_of((*few, *many)), *gaps),
        figure="verdict-word-content.svg",
        unit="test accuracy, seeds that learn",
    )


def has_word_content(case: str) -> bool:
    """Tell whether a case has both forms of word content."""
    arms = read("probing-gpu.json")["finetuned"][case]
    return all(f"{WORD_CONTENT}-{form}" in arms for form in ("plain", "mix"))
