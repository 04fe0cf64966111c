"""Tasks of a sentence's shape: how long it is, how deep its tree, which constituents it is made of.

SentLen, TreeDepth and TopConst of Conneau et al. 2018. Depth counts the nodes from the root to a word's part
of speech; all depths are drawn in one range of lengths, so that the length says little about the depth.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

from bermo.data.sentences import grammar
from bermo.data.sentences.drawn import Drawn, as_drawn
from bermo.data.sentences.grammar import TENSES, Demand, Tense, Tree, leaf, pick

_BARE: dict[str, Any] = dict.fromkeys(("phrase", "relative", "fronted", "reason"), 0.0)
LENGTHS: Mapping[str, tuple[range, Demand]] = {
    "5-8": (range(5, 9), Demand(adjective=0.4, fronted=0.1, reason=0.0, relative=0.05, phrase=0.1)),
    "9-12": (range(9, 13), Demand(adjective=0.4, name=0.1)),
    "13-16": (range(13, 17), Demand(adjective=0.4, fronted=0.5, reason=0.2)),
    "17-20": (range(17, 21), Demand(adjective=0.5, fronted=0.6, reason=0.4, phrase=0.3)),
    "21-25": (range(21, 26), Demand(adjective=0.6, fronted=0.7, reason=0.6, phrase=0.4, location=0.4)),
    "26-28": (range(26, 29), Demand(adjective=0.6, fronted=0.8, reason=0.7, phrase=0.4, location=0.5)),
}
"""SentEval's six ranges, marks counted as words, and how rich a sentence of that length is."""

DEPTHS: Mapping[str, tuple[Demand, ...]] = {
    "5": (Demand(**_BARE | {"fronted": 0.9}, front="PP", adjective=0.7, adverb=0.5, name=0.0, location=0.0),),
    "6": (
        Demand(**_BARE | {"phrase": 0.4}, adjective=0.5, name=0.05, location=0.8),
        Demand(**_BARE | {"fronted": 0.7, "phrase": 0.3}, front="PP", adjective=0.2, location=0.4),
    ),
    "7": (
        Demand(**_BARE | {"phrase": 0.7}, adjective=0.4, location=0.3),
        Demand(**_BARE | {"reason": 0.9}, adjective=0.2, location=0.1),
    ),
    "8": (
        Demand(**_BARE | {"reason": 0.8}, adjective=0.2, name=0.4, location=0.6),
        Demand(**_BARE | {"relative": 0.5}, adjective=0.2, name=0.3, location=0.1),
    ),
    "9": (
        Demand(**_BARE | {"relative": 0.8}, adjective=0.2, name=0.3, location=0.6),
        Demand(**_BARE, clausal=0.9, adjective=0.3, name=0.3, location=0.7),
    ),
}
DEPTH_LENGTHS = range(9, 15)


def depth(tree: Tree) -> int:
    """Count the nodes on the longest way from the root to a part of speech, both included."""
    below = (depth(item) for item in tree.children if isinstance(item, Tree))
    return 1 + max(below, default=0)


@cache
def _in(demand: Demand, tense: Tense) -> Demand:
    return replace(demand, tense=tense)


def draw_length(rng: Random, label: str) -> Drawn:
    """Draw a sentence whose number of words is in a range."""
    wanted, demand = LENGTHS[label]
    while True:
        drawn = as_drawn(grammar.sentence(rng, _in(demand, pick(rng, TENSES))))
        if len(drawn.words) in wanted:
            return drawn


def draw_depth(rng: Random, label: str) -> Drawn:
    """Draw a sentence whose tree has a depth, of 9 to 14 words."""
    wanted = int(label)
    while True:
        tree = grammar.sentence(rng, _in(pick(rng, DEPTHS[label]), pick(rng, TENSES)))
        if len(grammar.tags(tree)) in DEPTH_LENGTHS and depth(tree) == wanted:
            return as_drawn(tree)


_ORDERS = [
    f"{front}NP_{adverb}VP{reason}"
    for front in ("", "PP_,_", "ADVP_,_", "SBAR_,_")
    for adverb in ("", "ADVP_")
    for reason in ("", "_SBAR")
]
TOPS = (*_ORDERS, "S_,_CC_S", "CC_NP_VP", "CC_PP_,_NP_VP", "other")
"""Sixteen orders of one clause, two joined clauses, two with a conjunction first; other: the others."""
_OTHERS = tuple(f"CC_{order}" for order in _ORDERS if f"CC_{order}" not in TOPS)


def top(tree: Tree) -> str:
    """Name the constituents of the topmost clause, the full stop left out."""
    main = tree.children[0]
    assert isinstance(main, Tree)
    labels = [item.label.partition("-")[0] for item in main.children if isinstance(item, Tree)]
    return "_".join(labels)


def draw_top(rng: Random, label: str) -> Drawn:
    """Draw a sentence made of the named constituents."""
    order = pick(rng, _OTHERS) if label == "other" else label
    if order == "S_,_CC_S":
        clauses = [grammar.clause(rng, _demand(rng, "NP_VP")) for _ in range(2)]
        joint = leaf("CC", pick(rng, ("and", "but", "so")))
        body = Tree("S", (clauses[0], leaf(",", ","), joint, clauses[1]))
    else:
        body = grammar.clause(rng, _demand(rng, order.removeprefix("CC_")))
        if order.startswith("CC_"):
            body = Tree("S", (leaf("CC", pick(rng, ("and", "but", "so"))), *body.children))
    return as_drawn(Tree("ROOT", (body, leaf(".", "."))))


def _demand(rng: Random, order: str) -> Demand:
    """Demand one clause of the given order; inside it, clauses and adverbs may come in other orders too."""
    front = order.partition("_,_")[0] if "_,_" in order else None
    return Demand(
        tense=pick(rng, TENSES),
        front=front,  # type: ignore[arg-type]
        fronted=float(front is not None),
        adverb=float("NP_ADVP" in order),
        reason=float(order.endswith("VP_SBAR")),
        clausal=0.2,
        relative=0.3,
    )
