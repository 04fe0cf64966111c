"""What a task draws: a tree, and the words as they are said."""

from typing import NamedTuple

from bermo.data.sentences import grammar
from bermo.data.sentences.grammar import Tree


class Drawn(NamedTuple):
    """A tree, and the words as they are said; they differ where a task disturbs them."""

    tree: Tree
    words: list[str]


def said(tree: Tree) -> Drawn:
    """Say a tree as it is."""
    return Drawn(tree, grammar.words(tree))
