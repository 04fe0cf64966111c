"""A claim of the paper, and how the page of verdicts shows it."""

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field

from scripts.tables.evidence import Evidence, evidence_table

QUEUE = "benchmarks/gpu_queue.sh MODEL DATA OUT"
GRID = "python benchmarks/grid.py MODELS DATA OUT --only"
"""Commands that measure several claims."""
SST2_PART = "SST-2, 20,000 rows"


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
    unit: str = ""
    """What the upright axis of its figure shows, where that is drawn from the evidence (claim_figures.py)."""
    paper_values: Mapping[str, float] = field(default_factory=dict)
    """The paper's own numbers, to stand beside ours: by words of the rows that they are about; "" is all."""


def section(number: int, claim: Claim) -> str:
    """Write a claim: what the paper says, the verdict, the figure, the numbers, the command."""
    said = f"The paper: {claim.paper}. **Verdict: {claim.verdict}.** {claim.sentence}".strip()
    parts = [f"### {number}. {claim.title}", textwrap.fill(said, 119, break_on_hyphens=False)]
    parts += [f"![{claim.title}](../results/{claim.figure})"] if claim.figure else []
    parts += [evidence_table(claim.evidence)] if claim.evidence else []
    return "\n\n".join([*parts, f"```text\n{claim.command}\n```"])
