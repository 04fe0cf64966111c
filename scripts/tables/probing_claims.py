"""The paper's claims about probing."""

from scripts.tables.claim import Claim
from scripts.tables.evidence import fine_tuned, semantic
from scripts.tables.judged import by_encoder, dies_plain_only, encoders, gain, seeds_verdict
from scripts.tables.numbers import read
from scripts.tables.scores import PAPER_GAIN, cases, reading_of, unknown_share

GAIN = "mix − plain, points of test accuracy"


def probing() -> Claim:
    rows = tuple(semantic(case) for case in cases("right"))
    readings = ", ".join(reading for case in cases("right") if (reading := reading_of(case)))
    also = f" Norms beside the usual one (across): {readings}." if readings else ""
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
        paper_value=float(PAPER_GAIN),
    )


def unknown_words() -> Claim:
    rows = tuple(semantic(case) for case in cases("wrong"))
    shares = " and ".join(f"{unknown_share(case):.1f} %" for case in cases("wrong"))
    return Claim(
        title="… and on unknown words, which the paper's text probably had",
        paper="–",
        verdict=by_encoder(rows, gain(float(PAPER_GAIN))),
        sentence=f"Capitals kept for a vocabulary without them: {shares} of the tokens are unknown.",
        command=f"benchmarks/probe_gpu.sh MODEL DATA OUT {' '.join(cases('wrong'))}",
        evidence=rows,
        figure="verdict-unknown-words.svg",
        unit=GAIN,
        paper_value=float(PAPER_GAIN),
    )


def word_content() -> Claim:
    both = ("plain", "mix")
    few = tuple(
        fine_tuned(f"{mix}, 3 epochs", case, f"word-content-{mix}")
        for case in ("gte-right", "box-right")
        for mix in both
    )
    many = tuple(
        fine_tuned(f"{mix}, 20 epochs", case, f"word-content-{mix}")
        for case in cases("words")
        for mix in both
        if f"word-content-{mix}" in read("probing-gpu.json")["finetuned"][case]
    )
    judged = many or few
    own = {name: [one for one in judged if one.encoder == name] for name in encoders(judged)}
    verdict = seeds_verdict({name: dies_plain_only(rows) for name, rows in own.items()})
    short = " Three epochs only: both models have hardly begun to learn the 1,000 words."
    still = [f"{one.dead} of {one.num_seeds} of {one.encoder} ({one.what})" for one in judged if one.dead]
    guessing = f" Seeds that are still at guessing: {'; '.join(still)}." if still else ""
    return Claim(
        title="On word content plain trainings diverge, mixed ones do not",
        paper="2 of 5 plain seeds diverge (Table 1)",
        verdict=verdict if many else f"{verdict} after three epochs",
        sentence=(("" if many else short) + guessing).strip(),
        command="benchmarks/probe_gpu.sh MODEL DATA OUT gte-right-rest box-right-rest gte-words box-words",
        evidence=(*few, *many),
        figure="verdict-word-content.svg",
        unit="test accuracy, seeds that learn",
    )
