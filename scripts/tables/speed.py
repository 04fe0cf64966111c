"""Tables about speed and memory: a training step, an epoch, inference, the mix, the loop on a CPU."""

import re
from statistics import fmean
from typing import Any

from scripts.tables.grid import welch
from scripts.tables.numbers import RESULTS, read, signed, table, with_interval

STEPS = {
    "Hugging Face, eager": "Hugging Face, eager",
    "the reference pruning algorithm (sorting), eager": "reference pruning, eager",
    "bermo, plain": "plain, auto",
    "bermo, mix": "mix, auto",
    "bermo, mix + magnitude": "mix + magnitude, auto",
    "bermo, mix + movement": "mix + movement, auto",
    "bermo, mix + soft movement": "mix + soft movement, auto",
    "bermo, mix + L0": "mix + l0, auto",
    "bermo without graphs and fused kernels, plain": "plain, off",
    "bermo without graphs and fused kernels, mix + movement": "mix + movement, off",
}

TUNED = {
    "the same with the fused AdamW of its Trainer": "fused",
    "the same, too, by torch.compile, max-autotune": "compiled",
}
"""Rows of compile-cuda.json, below Hugging Face's."""

LOOPS = ("loop-cpu.json", "loop-x86-shared.json", "loop-x86.json")


def steps() -> str:
    """Milliseconds and peak memory of a training step."""
    rows = {(row["name"], row["length"]): row for row in read("step-cuda.json")["rows"]}
    first, *lines = [
        [name, *(f"{rows[key, n]['median_ms']:.2f}" for n in (32, 128)), f"{rows[key, 32]['peak_mib']:,}"]
        for name, key in STEPS.items()
    ]
    ms = read("compile-cuda.json")["ms"]
    tuned = [[name, *(f"{ms[key][n]:.2f}" for n in ("32", "128")), "–"] for name, key in TUNED.items()]
    return table(["ms a step", "length 32", "length 128", "peak MiB, length 32"], [first, *tuned, *lines])


def kernels() -> str:
    """Microseconds that the device computes in a step, by kind of kernel, and launches."""
    ways = [("plain, auto", 32), ("mix + movement, auto", 32), ("Hugging Face, eager", 128)]
    ways += [("plain, auto", 128), ("mix + movement, auto", 128)]
    return _kernels_of(ways, "step-kernels-cuda.json")


def family_kernels() -> str:
    """The same of some families' plain steps."""
    families = ("bert", "mobilebert", "deberta", "deberta-v2", "xlnet")
    return _kernels_of([(f"{name}, auto", 128) for name in families], "step-kernels-families-cuda.json")


def _kernels_of(ways: list[tuple[str, int]], file: str) -> str:
    rows = {(row["name"], row["length"]): row for row in read(file)["rows"]}
    lines = []
    # The last way has every kind.
    for kind in rows[ways[-1]]["kinds"]:
        cells = [rows[way]["kinds"].get(kind) for way in ways]
        lines.append([kind, *("–" if cell is None else f"{cell['us']:,.0f}" for cell in cells)])
    lines.append(["all", *(f"{rows[way]['us']:,.0f}" for way in ways)])
    launches = [sum(kind["launches"] for kind in rows[way]["kinds"].values()) for way in ways]
    lines.append(["launches", *(f"{count:,.0f}" for count in launches)])
    return table(["µs on the device", *(f"{name.removesuffix(', auto')}, {n}" for name, n in ways)], lines)


def layer_bytes() -> str:
    """What a layer of some families moves through memory in a pass, and its launches."""
    rows = {(row["family"], row["way"]): row for row in read("step-bytes.json")["rows"]}
    ways = ["eager", "captured, not fused", "fused"]
    families = list(dict.fromkeys(family for family, _ in rows))
    lines = []
    for family in families:
        found = [rows[family, way] for way in ways]
        sizes = [f"{row['beside_products_mb']:,.0f}" for row in found]
        lines.append([family, *sizes, *(str(row["launches"]) for row in found)])
    heads = ["", "MB, eager", "not fused", "fused", "launches, eager", "not fused", "fused"]
    return table(heads, lines)


def mix_cost() -> str:
    """Memory and time of the mix at inference, as ratios to the plain encoder of the same run."""
    gpu, cpu = read("mix-cuda.json")["ways"], read("mix-cpu.json")["ways"]
    names = {
        "text head, streaming": "text, mix streaming",
        "text head, stacked": "text, mix stacked",
        "token head, streaming": "tokens, mix streaming",
        "token head, stacked": "tokens, mix stacked",
    }
    rows = [
        [name, *(f"{way[key][ratio]:.3f}" for way in (gpu, cpu) for ratio in ("memory_ratio", "time_ratio"))]
        for name, key in names.items()
    ]
    return table(["", "memory, H200", "time, H200", "memory, 16 x86 cores", "time, 16 x86 cores"], rows)


def loop() -> str:
    """Our loop against transformers.Trainer on the CPUs that were measured, each with its file."""
    rows = []
    for file in LOOPS:
        if not (RESULTS / file).exists():
            continue
        known = read(file)
        where = f"{known['device']}, {known['threads']} threads ([{file}]({file}))"
        rate = known["examples_per_second"]
        both_frozen = known["pruning_step_ratio_both_frozen"]
        rows += [
            [where, "bermo", f"{rate['ours']:.1f}", f"{known['loop_ratio']:.2f} × Trainer"],
            ["", "transformers.Trainer", f"{rate['Trainer']:.1f}", "–"],
            [
                "",
                "bermo, movement pruning (embeddings frozen)",
                f"{rate['pruning']:.1f}",
                f"a step takes {known['pruning_step_ratio']:.2f} × a plain one",
            ],
            [
                "",
                "bermo, plain, embeddings frozen",
                f"{rate['frozen']:.1f}",
                f"a pruning step takes {both_frozen:.2f} × this one",
            ],
        ]
        if "ours bf16" in rate:
            rows += [
                [
                    "",
                    "bermo, bf16",
                    f"{rate['ours bf16']:.1f}",
                    f"{known['loop_ratio_bf16']:.2f} × Trainer in bf16, {known['bf16_ratio']:.2f} × fp32",
                ],
                ["", "transformers.Trainer, bf16", f"{rate['Trainer bf16']:.1f}", "–"],
            ]
    return table(["", "", "examples a second", "ratio"], rows)


def epoch() -> str:
    """Where the seconds of one epoch as a command go."""
    text = (RESULTS / "start-cuda.txt").read_text(encoding="utf-8")
    bare, again = re.split(r"^== .*$", text, flags=re.M)[1:3]
    names = {
        "the loop: captures, steps, logging, the evaluation, the saved model": "the loop",
        "choosing the pooling and starting the head by probes": (
            "choosing the pooling by probes",
            "  starting the head by a probe",
        ),
        "importing torch, transformers and bermo": "imports",
        "the command but for these imports": "the command without its imports",
    }
    rows = [[name, *(_seconds(part, key) for part in (again, bare))] for name, key in names.items()]
    whole = re.search(r"took ([\d.]+) and ([\d.]+) s", text)
    assert whole is not None
    rows.append(["the whole process, timed by parts", whole[2], whole[1]])
    rows.append(["the same as a command", f"{command_seconds(text):.1f}", "–"])
    head = ["seconds", "kernels built, tokens cached", "a bare machine"]
    return table(head, rows)


def cold_start() -> str:
    """Seconds from the start of `bermo predict` to its end."""
    found = read("predict-start-x86.json")["seconds"]
    names = {"torch": "a run of gte-small, by torch", "int8": "its ONNX export in int8"}
    columns = [(when, unit) for when in ("before", "now") for unit in ("clock", "processor")]
    rows = [
        [name, *(f"{found[f'{key}, {when}'][unit]:.2f}" for when, unit in columns)]
        for key, name in names.items()
    ]
    return table(["seconds", *(f"{unit}, {when}" for when, unit in columns)], rows)


def command_seconds(text: str) -> float:
    """Return what an epoch takes as a command by itself, kernels built and tokens cached (start-cuda.txt)."""
    line = re.search(r"tokens cached: ([\d.]+) s", text)
    assert line is not None
    return float(line[1])


def _seconds(part: str, names: str | tuple[str, ...]) -> str:
    """The seconds of a part of a run, or of several together."""
    spent = 0.0
    for name in (names,) if isinstance(names, str) else names:
        line = re.search(rf"^{re.escape(name)} +([\d.]+) ", part, flags=re.M)
        assert line is not None, name
        spent += float(line[1])
    return f"{spent:.1f}"


def families() -> str:
    """The step of every family that was measured, beside Hugging Face's and beside BERT's."""
    rows = [row for row in read("step-families-cuda.json")["rows"] if row["ms"]]
    return families_table(rows)


def families_table(rows: list[Any]) -> str:
    """The columns of step_families.py; torch.compile has one where a row of it was timed."""
    is_compiled = any("compiled" in row["ms"] for row in rows)
    lines = []
    for row in rows:
        ms, bert = row["ms"], row["bert"]
        for length in ms["plain"]:
            ours, eager = ms["plain"][length], ms["eager"][length]
            lines.append(
                [
                    row["family"],
                    length,
                    f"{ours:.2f}",
                    _known(ms["pruned"].get(length), 2),
                    f"{eager:.1f}",
                    f"{ms['fused'][length]:.1f}",
                    *([_known(ms.get("compiled", {}).get(length), 1)] if is_compiled else []),
                    f"{eager / ours:.1f} ×",
                    f"{ours / bert[length]:.2f}",
                ]
            )
    head = ["", "length", "plain", "mix + movement", "Hugging Face, eager", "its fused AdamW"]
    head += ["and torch.compile"] if is_compiled else []
    return table([*head, "eager / plain", "plain / BERT's"], lines)


def step_parts() -> str:
    """What single pieces gave to whole steps: the tree before each and with it, timed by turns."""
    head = ["piece, alone", "", "", "length", "ms before", "ms with it", "before / with it"]
    lines = []
    for row in read("step-parts-cuda.json")["rows"]:
        old, new = fmean(row["old_ms"]), fmean(row["new_ms"])
        lines.append([row["piece"], row["family"], row["way"], str(row["length"])])
        lines[-1] += [f"{old:.2f}", f"{new:.2f}", f"{old / new:.2f} ×"]
    return table(head, lines)


def long_texts() -> str:
    """The steps of step_long.py: each row has as many tokens, so that memory linear in length is the same."""
    return long_table(read("step-long-cuda.json")["rows"])


def long_table(rows: list[Any]) -> str:
    head = ["", "tokens a text", "texts", "ours, ms", "Hugging Face, eager", "eager / ours"]
    lines = []
    for row in rows:
        ours, eager = row["ms"], row["eager_ms"]
        ratio = f"{eager / ours:.1f} ×" if ours and eager else "–"
        peaks = [f"{row[key]:,}" for key in ("peak_mib", "eager_peak_mib")]
        cells = [f"{row['length']:,}", str(row["rows"]), _known(ours, 1), _known(eager, 1), ratio]
        lines.append([row["family"], *cells, *peaks])
    return table([*head, "ours, MiB", "eager, MiB"], lines)


def _known(ms: float | None, digits: int) -> str:
    return "–" if ms is None else f"{ms:.{digits}f}"


def fast_ways() -> str:
    """What gte-small pruned to 10 % scores by fused kernels and by the plain step's, and their difference."""
    scores = {name: list(by_seed.values()) for name, by_seed in read("fast-cuda.json")["accuracy"].items()}
    rows = [[f"`--fast {name}`", str(len(each)), with_interval(each)] for name, each in scores.items()]
    gap, half = welch(scores["auto"], scores["exact"])
    between = f"{signed(gap)} ({signed(gap - (half or 0))} … {signed(gap + (half or 0))})"
    return table(["", "seeds", "accuracy (95 %)"], [*rows, ["auto − exact", "", between]])


def inference() -> str:
    """Texts a second and the latency of one text, beside Hugging Face's."""
    rows = [
        [
            row["name"],
            f"{row['texts_a_second']:,}",
            f"{row['latency_ms']:.2f}",
            f"{row['latency_p95_ms']:.2f}",
        ]
        for row in read("infer-cuda.json")["rows"]
    ]
    return table(["", "texts a second", "ms, one text", "p95"], rows)
