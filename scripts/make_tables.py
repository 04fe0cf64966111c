"""Fill every marked block of the documents from results/ and from the table of rooms.

    python scripts/make_tables.py            write them
    python scripts/make_tables.py --check    exit code 1 if a document differs

A block stands between `<!-- table: NAME -->` and `<!-- end -->`; `BLOCKS` says which function makes it.
"""

import argparse
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from bermo.files import write_text

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from scripts.tables import (  # noqa: E402
    atlas,
    box,
    chain,
    grid_pages,
    heads,
    little,
    pretraining,
    pruning,
    scale,
    scores,
    sentence,
    serve,
    ship,
    speed,
    taught,
    torture,
    tree,
    verdicts,
    words,
)

BLOCKS: dict[str, Callable[[], str]] = {
    "front": chain.front,
    "ship-cpu": ship.cpu,
    "ship-forms": ship.forms,
    "ship-chain": chain.chain,
    "int8-error": ship.int8_error,
    "ship-gpu": ship.gpu,
    "pruning-survival": pruning.survival,
    "pruning-summary": pruning.summary,
    "pruning-first-runs": pruning.first_runs,
    "pruning-rank": pruning.rank,
    "pruning-grid": grid_pages.ranks,
    "pruning-first-cut": pruning.first_cut,
    "pruning-zeroed": pruning.zeroed,
    "pruning-alive": pruning.alive,
    "pruning-box": pruning.box_rank,
    "step": speed.steps,
    "step-kernels": speed.kernels,
    "step-families": speed.families,
    "step-parts": speed.step_parts,
    "step-long": speed.long_texts,
    "step-kernels-families": speed.family_kernels,
    "step-bytes": speed.layer_bytes,
    "fast-ways": speed.fast_ways,
    "inference": speed.inference,
    "cold-start": speed.cold_start,
    "epoch": speed.epoch,
    "mix-cost": speed.mix_cost,
    "loop": speed.loop,
    "atlas-methods": atlas.methods,
    "atlas-int8": atlas.int8,
    "atlas-few-bits": atlas.few_bits,
    "atlas-pairs": lambda: atlas.methods("atlas-mrpc.json"),
    "gradual-mix": atlas.gradual,
    **{f"ours-{section}": partial(atlas.ours, *names) for section, names in atlas.SECTIONS.items()},
    "little-data": little.scores,
    "little-data-reached": little.reached,
    "little-data-apart": little.apart,
    "little-data-contrast": little.contrast,
    "little-data-mean": little.kept_mean,
    "taught": taught.taught,
    "torture-kills": torture.kills,
    "torture": torture.faults,
    "fuzz-inputs": torture.inputs,
    "fuzz": torture.fuzz,
    "scale-parts": scale.parts,
    "scale-checked": scale.checked,
    "scale-comparison": scale.comparison,
    "scale-pretraining": scale.pretraining,
    "scale-limits": scale.limits,
    "core": scores.core,
    "box": box.judged,
    "objectives": pretraining.objectives,
    "habits": pretraining.habits,
    "elmo": pretraining.elmo,
    "probing": scores.probing,
    "sentence-students": sentence.students,
    "serve": serve.load,
    "heads-relations": heads.relations,
    "heads-patterns": heads.patterns,
    "words": words.tasks,
    "words-trees": words.trees,
    "verdicts-summary": verdicts.summary,
    "verdicts": verdicts.details,
    "tree": tree.tree,
    "floors": tree.floors,
}
MARKED = re.compile(r"<!-- table: (?P<name>[\w-]+) -->\n.*?<!-- end -->", flags=re.S)


def documents() -> Iterator[Path]:
    """Every document that may hold a block."""
    for name in ("README.md", "CONTRIBUTING.md", "LOG.md"):
        yield ROOT / name
    for folder in ("docs", "results"):
        yield from sorted((ROOT / folder).rglob("*.md"))


def filled(text: str) -> str:
    """Return a document with every block made anew."""

    def block(mark: re.Match[str]) -> str:
        return f"<!-- table: {mark['name']} -->\n{BLOCKS[mark['name']]()}\n<!-- end -->"

    return MARKED.sub(block, text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    stale = []
    for path in documents():
        text = path.read_text(encoding="utf-8")
        made = filled(text)
        if made != text:
            stale.append(str(path.relative_to(ROOT)))
            if not options.check:
                write_text(path, made)
    print("\n".join(stale) or "Every table is as its numbers are.")
    return int(options.check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
