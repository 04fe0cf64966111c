"""Sentences as figures: what tokens bring, answers after each layer, attention maps, the mix, contexts."""

from collections.abc import Mapping

from bermo.analyse.sentence import HeadMap, Looked, Rows, SentenceFacts
from bermo.figures.data import Bars, Figure, Heat, Lines, Section, Table
from bermo.printing import percent

LONGEST = 48
"""Letters of a sentence in a figure's title."""


def sentence_section(models: Mapping[str, SentenceFacts]) -> Section:
    """Draw every sentence for every model; the answers after each layer side by side."""
    figures: list[Figure] = []
    lines: list[str] = []
    first = next(iter(models.values()))
    for number, looked in enumerate(first.sentences):
        seen = {name: facts.sentences[number] for name, facts in models.items()}
        if any(one.layers for one in seen.values()):
            figures.append(_by_layer(looked.text, seen))
        for name, one in seen.items():
            lines.append(said(name, one))
            figures += _own_figures(name, one, models[name])
    lines.append(_rule(first))
    return Section(title="Sentences", text="\n\n".join(lines), figures=tuple(figures))


def said(name: str, one: Looked) -> str:
    """Say what the model answers and which tokens bring most of it."""
    answer = f" answers {one.answer} ({written_score(one)})" if one.answer else ": the vector"
    top = sorted(range(len(one.tokens)), key=lambda k: -one.contributions[k])[:3]
    brings = ", ".join(f"{one.tokens[k]} {percent(one.contributions[k], 0)}" for k in top)
    cut = " The text was cut at its first tokens." if one.is_cut else ""
    reason = f" {one.reason}" if one.reason else ""
    return f"{short(one.text)} {name}{answer}; most of it comes from {brings}.{cut}{reason}"


def written_score(one: Looked) -> str:
    """Write the score of an answer: a probability in percent, a value as it is."""
    score = one.score or 0.0
    return f"{score:.3f}" if one.kind == "value" else percent(score)


def short(text: str) -> str:
    """Quote a sentence, cut where it is long."""
    flat = " / ".join(text.split("\t"))
    return f"“{flat if len(flat) <= LONGEST else flat[: LONGEST - 1].rstrip() + '…'}”"


def _rule(facts: SentenceFacts) -> str:
    shown = [head for one in facts.sentences for head in one.heads]
    if not shown:
        return "Attention of this family cannot be seen."
    same = all(not head.effective for head in shown)
    effective = " Effective attention is the same: so few tokens leave no null space." if same else ""
    if facts.chosen:
        return f"The heads were named by --heads.{effective}"
    return (
        "Shown are the most telling heads: those whose words give most, on average, to one word that is"
        f" neither themselves nor a neighbour. --heads names others.{effective}"
    )


def _by_layer(text: str, seen: Mapping[str, Looked]) -> Lines:
    depth = max(len(one.layers) for one in seen.values())
    kinds = {one.kind for one in seen.values()}
    label = {"vector": "cosine with the text's vector", "value": "value"}.get(
        next(iter(kinds)) if len(kinds) == 1 else "", "score of the answer"
    )
    return Lines(
        title=f"{short(text)}: the answer after each layer",
        x_label="layer (0: embeddings)",
        y_label=label,
        x=tuple(map(float, range(depth))),
        series={name: (one.layers + (None,) * depth)[:depth] for name, one in seen.items()},
        note="The head reads each layer as the mix would give it alone; it was trained for the whole mix.",
    )


def _own_figures(name: str, one: Looked, facts: SentenceFacts) -> list[Figure]:
    start = f"{name}, {short(one.text)}"
    figures: list[Figure] = [
        Bars(
            title=f"{start}: what each token brings",
            x_label="token",
            y_label="share of the answer",
            names=one.tokens,
            series={"share": one.contributions},
            note="By the norm of the answer's derivative by each token's input; the shares sum to 1.",
        ),
        Table(
            title=f"{start}: with each token hidden",
            columns=("token", "share", "change of the score without it"),
            rows=tuple(
                (token, round(share, 4), round(change, 4))
                for token, share, change in zip(one.tokens, one.contributions, one.without, strict=True)
            ),
        ),
    ]
    if one.answers:
        figures.append(
            Table(
                title=f"{start}: the answer after each layer",
                columns=("layer", "answer", "score of the final answer"),
                rows=tuple(
                    (str(k), answer, round(score, 4))
                    for k, (answer, score) in enumerate(zip(one.answers, one.layers, strict=True))
                ),
            )
        )
    if one.shares:
        figures.append(_mix(start, one))
    for head in one.heads:
        figures += _maps(start, one, head)
    if one.contexts:
        figures.append(
            Table(
                title=f"{start}: nearest contexts at layer {facts.layer}",
                columns=("word", "cosine", "nearest", "context"),
                rows=tuple((c.word, round(c.cosine, 4), c.found, c.text) for c in one.contexts),
            )
        )
    return figures


def _mix(start: str, one: Looked) -> Bars:
    return Bars(
        title=f"{start}: the mix",
        x_label="layer (0: embeddings)",
        y_label="share",
        names=tuple(map(str, range(len(one.shares)))),
        series={"learned share": one.shares, "of this sentence's vectors": one.made_of},
        note="The second is by projection on the mixed vectors: below 0, a layer takes away from them.",
    )


def _maps(start: str, one: Looked, head: HeadMap) -> list[Figure]:
    name = f"{start}, head {head.layer}.{head.head}"
    maps: list[Figure] = [_heat(f"{name}: attention", one, head.attention)]
    if head.effective:
        maps.append(_heat(f"{name}: effective attention", one, head.effective))
    return maps


def _heat(title: str, one: Looked, rows: Rows) -> Heat:
    return Heat(
        title=title,
        x_label="is attended to",
        y_label="attends",
        columns=one.tokens,
        rows=one.tokens,
        values=rows,
    )
