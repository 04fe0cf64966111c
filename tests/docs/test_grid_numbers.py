"""Numbers within sentences on trainings of the grid are those of results/grid.json."""

from collections.abc import Callable
from statistics import fmean, stdev

import pytest

from scripts.tables.claim import SST2_PART
from scripts.tables.evidence import measured_grid, mix_gaps
from scripts.tables.grid import welch
from scripts.tables.grid_pages import seeds_for
from scripts.tables.judged import differing
from scripts.tables.numbers import last_scores as scores_of
from scripts.tables.numbers import num_seeds, read, spread
from scripts.tables.pruning import survival
from tests.docs.stated import both_in_grid, in_grid, last_scores_in_grid, number_or_word, text_of


def large_plain_encoder_by_size() -> str:
    plain, mix = both_in_grid("mpnet-base", "SST-2, 20,000 rows", "size")
    return f"(plain {plain:.1f}, mixed {mix:.1f}, three seeds each)"


def plain_encoders_by_sensitivity() -> str:
    plain, mix = both_in_grid("mpnet-base", "SST-2, 20,000 rows", "sensitivity")
    return f"({plain:.1f} on 20,000 rows of SST-2, mixed {mix:.1f})"


def where_the_mix_gains_most() -> str:
    plain, mix = both_in_grid("gte-small", "mrpc", "sensitivity")
    return f"(gte-small on MRPC, {plain:.1f} plain and {mix:.1f} mixed)"


def what_a_dense_mix_costs_mpnet() -> str:
    gaps = [
        one
        for one in mix_gaps(measured_grid(), lambda _, arm: arm.method == "dense")
        if one.encoder == "mpnet-base"
    ]
    means = [float(one.value.partition(" ")[0].replace("−", "-")) for one in gaps]
    assert max(means) < 0
    assert len(differing(gaps)) == 2
    return (
        f"with mpnet-base it is behind on each of {number_or_word(len(gaps))} tasks, by {-max(means):.1f} to"
        f" {-min(means):.1f} points, on MRPC and RTE by more than chance"
    )


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
    arms = (("size-head", False), ("size-frozen", False), ("size-random", False), ("size-random", True))
    alive = [[r["last"] for r in rows if (r["method"], r["mix"]) == arm and not r["dead"]] for arm in arms]
    assert [len(scores) for scores in alive] == [3, 3, 1, 3]
    head, frozen, _, mix = map(fmean, alive)
    return (
        f"lives from a random head (3 of 3 seeds, {head:.1f}) and with frozen embeddings (3 of 3,"
        f" {frozen:.1f}); from the paper's start, which has both, 1 of 3 live, and all three with the mix"
        f" ({mix:.1f})"
    )


def what_keeps_a_large_plain_encoder_alive() -> str:
    rows = [r for r in read("grid.json") if (r["encoder"], r["task"]) == ("mpnet-base", "sst2")]
    slow, late, clip = (
        next(r for r in rows if r["method"] == f"size-random-{name}") for name in ("slow", "late", "clip")
    )
    assert {slow["seed"], late["seed"], clip["seed"]} == {25}
    assert clip["dead"]
    return (
        f"At rate 1e-5 that seed lives ({slow['last']:.1f}), and where pruning begins after 30 % of the steps"
        f" in place of 10 ({late['last']:.1f}); clipped at 0.1 in place of 1 it dies too"
    )


def how_a_large_plain_encoder_dies() -> str:
    rows = read("start-curves.json")["mpnet-sst2-size-random-plain-25"]
    first = next(row for row in rows if row["density"] < 0.6)
    dead = next(row for row in rows if row["loss"] > 0.68 and row["density"] < 0.6)
    before = max(row["gradient"][0] for row in rows if row["density"] > 0.4)
    return (
        f"From {first['density']:.2f} of the weights on its loss rises in waves from"
        f" {min(row['loss'] for row in rows if row['density'] > 0.6):.2f}; at {dead['density']:.2f} (step"
        f" {dead['step']:,} of 6,315) it is that of guessing, and layer 1's gradient has gone from up to"
        f" {before:.0f} to {dead['gradient'][0]:.0e}".replace("e-0", "e-")
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
    short = (
        num_seeds("score/score-plain") - len(scores_of("score/score-plain")),
        num_seeds("score/score-plain"),
    )
    assert mini == box
    return (
        "kills plain gte-small (on SST-2 {} of {} seeds) and plain mpnet-base ({} of {}); of MiniLM-L6 and"
        " the box {} of {} died"
    ).format(*(number_or_word(count) for count in (*short, *base, *mini)))


def all_plain_encoders_by_size() -> str:
    rows = [r for r in read("grid.json") if (r["task"], r["method"], r["mix"]) == (SST2_PART, "size", False)]
    encoders = {row["encoder"] for row in rows}
    assert not any(row["dead"] for row in rows)
    return f"all plain seeds of {number_or_word(len(encoders))} encoders live by size"


def large_encoder_taught() -> str:
    taught = spread(last_scores_in_grid("mpnet-base", "sst2", "taught", True))
    alone = last_scores_in_grid("mpnet-base", "sst2", "sensitivity", True)
    assert taught.interval is not None
    low, high = taught.interval
    dense = in_grid("mpnet-base", "sst2", "dense", True)
    return (
        f"mpnet-base has {taught.mean:.1f} at 10 % of all of SST-2 ({number_or_word(taught.count)} seeds,"
        f" {low:.1f} … {high:.1f}; wanted 92.0), {100 * taught.mean / dense:.1f} % of its dense {dense:.1f}"
        f" (97.5 wanted), untaught {fmean(alone):.1f}"
        f" ({number_or_word(len(alone))}; wanted 91.0)"
    )


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
    rows = [row for row in read("grid.json") if row["method"] == "soft"]
    short = [100 * r["density"] for r in rows if (r["encoder"], r["task"]) == ("mpnet-base", "qnli")]
    kept = [100 * r["density"] for r in rows if (r["encoder"], r["task"]) != ("mpnet-base", "qnli")]
    return (
        f"the grid's trainings by soft movement end at {min(kept):.1f} to {max(kept):.1f} % for a goal of 10,"
        f" but for those of mpnet-base on QNLI, whose 685 steps are too few ({min(short):.1f} to"
        f" {max(short):.1f} %; the run says so)"
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
        ("LOG.md", by_sensitivity_beside_soft_movement),
        ("LOG.md", by_sensitivity_on_all_of_sst2),
        ("docs/explanation/pruning.md", comparing_over_all_matrices),
        ("docs/explanation/pruning.md", density_that_soft_movement_reaches),
        ("docs/explanation/pruning.md", large_plain_encoder_by_size),
        ("docs/explanation/pruning.md", plain_encoders_by_sensitivity),
        ("docs/explanation/pruning.md", where_the_mix_gains_most),
        ("docs/explanation/pruning.md", taught_by_sensitivity),
        ("docs/explanation/pruning.md", seeds_dead_by_score),
        ("LOG.md", which_start_kills_a_large_plain_encoder),
        ("LOG.md", seeds_dead_by_score),
        ("docs/explanation/pruning.md", all_plain_encoders_by_size),
        ("README.md", plain_encoders_killed_by_score),
        ("docs/explanation/pruning.md", what_keeps_a_large_plain_encoder_alive),
        ("docs/explanation/pruning.md", how_a_large_plain_encoder_dies),
        ("results/README.md", which_start_kills_a_large_plain_encoder),
        ("docs/explanation/pruning.md", what_the_mix_gains_by_sensitivity),
        ("docs/explanation/mix.md", what_a_dense_mix_costs_mpnet),
        ("docs/how-to/train.md", what_a_dense_mix_costs_mpnet),
        ("docs/explanation/pruning.md", which_start_kills_a_large_plain_encoder),
        ("docs/explanation/pruning.md", without_scores),
        ("results/README.md", large_encoder_taught),
        ("results/README.md", large_plain_encoder),
    ],
)
def test_a_sentence_says_what_was_measured(document: str, sentence: Callable[[], str]) -> None:
    assert sentence() in text_of(document)


def test_the_row_of_the_default_has_its_seeds_alone() -> None:
    (row,) = [line for line in survival().splitlines() if line.startswith("| all by default")]
    scores = last_scores_in_grid("gte-small", "sst2", "sensitivity", True)
    assert f"| {len(scores)} of {len(scores)} | {fmean(scores):.2f} (" in row
