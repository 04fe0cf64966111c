"""Students over seeds: what benchmarks/students_gpu.sh gave, as rows and as one page.

    python benchmarks/student_rows.py OUT [--to results]           writes TO/students.json and TO/students.md
    python benchmarks/student_rows.py results/students.json [--to results]       the page alone

A row is one training: {"name", "seed", "dev", "test", "steps"}; dev is its last evaluation, test the score of
the model that was kept (the best evaluation on dev) on a file that chose nothing.
"""

import argparse
import json
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bermo.files import write_json, write_text
from bermo.methods.probing.paired import Paired, paired

TEACHER = "teacher"
WORDS = {
    "four-60": "first 4 layers, 60 % of heads and neurons, taught",
    "four": "first 4 layers whole, taught alike",
    "alone-4": "first 4 layers alone",
    "three-55": "first 3 layers, 55 % of heads and neurons, taught",
    "three": "first 3 layers whole, taught alike",
    "alone-3": "first 3 layers alone",
    "two": "first 2 layers whole, taught alike",
    "alone-2": "first 2 layers alone",
}
COMPARED = (("four-60", "four"), ("four-60", "three"), ("three-55", "three"), ("three-55", "two"))
HEAD = ("", "seeds", "dev, last evaluation (95 %)", "test (95 %)", "of the teacher's test")


def rows(out: Path) -> list[dict[str, Any]]:
    """Return a row for each seed that was trained and scored."""
    found = []
    for path in sorted(out.glob("*/seed-*/result.json")):
        folder, seed = path.parts[-3:-1]
        test = out / "test" / f"{folder}-{seed}.json"
        name = folder.partition(".")[0]
        if test.exists() and (name == TEACHER or name in WORDS):
            result, scored = (json.loads(file.read_text(encoding="utf-8")) for file in (path, test))
            found.append(
                {
                    "name": name,
                    "seed": result["seed"],
                    "dev": round(result["last_score"], 3),
                    "test": round(scored["values"]["accuracy"], 3),
                    "steps": result["steps"],
                }
            )
    order = [TEACHER, *WORDS]
    return sorted(found, key=lambda row: (order.index(row["name"]), row["seed"]))


def page(known: Sequence[dict[str, Any]]) -> str:
    """Return the table of means and the comparisons of students of like size."""
    teacher = next(row for row in known if row["name"] == TEACHER)
    lines = [["the teacher", "1", f"{teacher['dev']:.2f}", f"{teacher['test']:.2f}", "100.0 %"]]
    for name, words in WORDS.items():
        own = [row for row in known if row["name"] == name]
        if own:
            test = paired([row["test"] for row in own])
            dev = _interval(paired([row["dev"] for row in own]))
            share = f"{100 * test.mean / teacher['test']:.1f} %"
            lines.append([words, str(len(own)), dev, _interval(test), share])
    table = "\n".join(f"| {' | '.join(line)} |" for line in [HEAD, ["---"] * len(HEAD), *lines])
    said = "\n".join(_wrapped(f"- {sentence}", "  ") for sentence in _comparisons(known))
    head = (
        "gte-small on SST-2, one H200, bf16, from [students.json](students.json)"
        " (`benchmarks/students_gpu.sh`, `python benchmarks/student_rows.py`). Taught alike: the same"
        " teacher, the same variants of the texts, as many steps. Intervals are 95 % over seeds (Student's"
        " t); differences are paired by seed. test: 1,821 rows that chose nothing."
    )
    return f"# Students over seeds\n\n{_wrapped(head)}\n\n{table}\n\n{said}\n"


def _comparisons(known: Sequence[dict[str, Any]]) -> list[str]:
    scores: dict[str, dict[int, float]] = {}
    for row in known:
        scores.setdefault(row["name"], {})[row["seed"]] = row["test"]
    said = []
    for one, other in COMPARED:
        seeds = sorted(scores.get(one, {}).keys() & scores.get(other, {}).keys())
        if len(seeds) > 1:
            gap = paired([scores[one][seed] - scores[other][seed] for seed in seeds])
            low, high = gap.interval or (gap.mean, gap.mean)
            verdict = "more" if low > 0 else "less" if high < 0 else "no difference shown"
            value = f"{gap.mean:+.2f} ({low:+.2f} … {high:+.2f})".replace("-", "−")
            said.append(f"{WORDS[one]}, against {WORDS[other]}, test: {value}: {verdict}.")
    return said


def _interval(spread: Paired) -> str:
    if spread.interval is None:
        return f"{spread.mean:.2f}"
    low, high = spread.interval
    return f"{spread.mean:.2f} ({low:.2f} … {high:.2f})"


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(text, 119, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("--to", type=Path, default=Path("results"))
    options = parser.parse_args()
    if options.source.is_file():
        known = json.loads(options.source.read_text(encoding="utf-8"))
    else:
        known = rows(options.source)
        if not any(row["name"] == TEACHER for row in known):
            parser.error(f"{options.source} holds no scored teacher. Run benchmarks/students_gpu.sh first.")
        write_json(options.to / "students.json", known)
    write_text(options.to / "students.md", page(known))
    print(f"{len(known)} trainings: {options.to / 'students.md'}")


if __name__ == "__main__":
    main()
